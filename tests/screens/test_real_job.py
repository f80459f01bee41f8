"""One real job, steered from the screens: followed, halted, resumed, killed, deleted by a real controller."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from screens.jobs.table_screen import JobsScreen
from tests.screens.support import Shown, journey, opened
from tests.support.processes import end_everything
from tests.support.waiting import patience
from workbench.clock import now_us
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.resolve import resolve

FABRIC = Path(sys.executable).with_name("fabric")
TRAIN = """
import signal, sys, time
from workbench.learner import report
def stop(*_):
    print("saving", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
for step in range(1, 10_000):
    print("step", step, flush=True)
    report(loss=1.0 / step, step=step)
    time.sleep(0.05)
"""


@pytest.fixture
def real_home(clean_environment: Path, home: Home) -> Iterator[Home]:
    folder = clean_environment / "work"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    args = ["run", "-d", "--runner", "process", "--name", "endless", "--", sys.executable, "train.py"]
    subprocess.run([FABRIC, *args], cwd=folder, check=True, capture_output=True, timeout=patience())
    yield home
    end_everything(home)


async def answer_yes(shown: Shown, key: str, question: str) -> None:
    await shown.press(key)
    await shown.until_shown(question)
    await shown.press("y")


def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        return resolve(store, "endless")


@journey
async def test_a_job_is_followed_halted_resumed_killed_and_deleted(real_home: Home) -> None:
    async with opened(real_home, (120, 40), job="endless", clock=now_us) as shown:
        await shown.until_shown("1 overview", "● processing", "loss")
        await shown.press("l")
        await shown.until_shown("follow", "step ")
        await shown.press("right_square_bracket")
        await shown.until_shown("loss", "min")

        await answer_yes(shown, "x", "Halt endless?")
        await shown.until_shown("■ halted")
        await shown.press("d")
        await shown.until_shown("exit 143")

        await answer_yes(shown, "u", "Resume endless?")
        await shown.until(lambda: row(real_home).attempt == 2)
        await shown.until_shown("● processing")
        await shown.press("l")
        await shown.until_shown("attempt 2/2", "step ")
        await shown.press("a")
        await shown.until_shown("attempt 1/2", "saving")

        await answer_yes(shown, "X", "Kill endless?")
        await shown.until_shown("■ halted")

        await answer_yes(shown, "D", "Delete endless?")
        await shown.until_shown("deleted")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.until_shown("No jobs yet")
