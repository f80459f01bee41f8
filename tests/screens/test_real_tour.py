"""A tour of all screens in a real terminal with real jobs: small and large, resized, left and come back to, killed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from screens.workers.command_runner import call
from tests.screens.test_real_terminal import TMUX, Terminal
from tests.support.processes import end_everything
from tests.support.waiting import patience, until
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.resolve import resolve

pytestmark = pytest.mark.skipif(
    TMUX is None, reason="tmux is not installed: no real terminal to test the screens in"
)

ENDLESS = """
import math, time
from workbench.learner import report
for step in range(1, 1_000_000):
    print("step", step, flush=True)
    if step % 40 == 0:
        print("ERROR: one image could not be read", flush=True)
    report({"train/loss": math.exp(-step / 100), "train/accuracy": 1 - math.exp(-step / 100)}, step=step)
    time.sleep(0.05)
"""
FAILING = (
    "import pathlib, os\n(pathlib.Path(os.environ['RESULT_DIR']) / 'left.txt').write_text('kept')\n1 / 0\n"
)


@pytest.fixture
def real(clean_environment: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal on a home with a job that runs and one that has failed."""
    folder = clean_environment / "work"
    folder.mkdir()
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "failing.py").write_text(FAILING)
    monkeypatch.chdir(folder)
    for name in ("failing", "endless"):
        words = ["run", "-d", "--runner", "process", "--name", name, "--", sys.executable, f"{name}.py"]
        job_id = call(home, words).strip()
        if name == "failing":
            with pytest.raises(FabricError):
                call(home, ["wait", job_id])
    until(lambda: _state(home, "endless") == "PROCESSING")  # the screens open with the job that runs
    made = Terminal(clean_environment, home)
    yield made
    subprocess.run([*made.base, "kill-server"], capture_output=True)
    end_everything(home)


@pytest.mark.parametrize(
    ("width", "height"),
    [
        (80, 24),
        pytest.param(
            200,
            60,
            marks=pytest.mark.soak("another size; the gate has it at 80x24, and pages at 200x60 drawn"),
        ),
    ],
)
def test_every_screen_is_reached_with_real_jobs(real: Terminal, width: int, height: int) -> None:
    real.start(width, height)
    real.until_shown("1 overview", "endless", "● processing", "train/loss")  # the newest running job
    real.keys("l")
    real.until_shown("f follow", "step ", "ERROR")  # the keys of the log, and an error to go to
    real.keys("e")
    real.until_shown("ERROR: one image could not be read", "new line")
    real.keys("]")
    real.until_shown("train/accuracy", "min")
    real.keys("]")
    real.until_shown("CPU", "memory", "command")
    real.keys("]")
    real.until_shown("Values and their origins", "framework.command")
    real.keys("]")
    real.until_shown("no results yet")
    real.keys("]")
    real.until_shown("History", "Requests" if height > 24 else "processing")
    real.keys("Escape")
    real.until_shown("2 jobs", "✗ failed")
    real.keys("Space", "Space", "c")
    real.until_shown("compare 2 jobs", "train/loss")
    real.keys("]")
    real.until_shown("Metrics", "exit code")
    real.keys("Escape")
    real.until_shown("2 marked")
    real.keys("C-\\", "P")
    real.until_shown("local (local)  answers in", "CPUs")
    real.keys("Escape")
    real.until(lambda shown: "endless" in shown and "answers in" not in shown)
    real.keys("n")
    real.until_shown("new job", "give a command, e.g.", "$ fabric run")
    real.keys("Escape")
    real.until_shown("2 jobs")
    real.keys("j", "Enter", "6")
    real.until_shown("results/left.txt")
    real.keys("Enter")
    real.until_shown("kept", "esc closes")
    real.keys("q")
    real.until(lambda shown: "esc closes" not in shown)
    real.keys("q")
    real.until_shown("2 jobs")
    real.keys("q")
    real.until_left("1 job is still running or waiting:", "endless")


def test_a_shell_beside_a_learner_takes_the_terminal_and_gives_it_back(real: Terminal) -> None:
    real.start(100, 30, "endless")
    real.until_shown("1 overview", "● processing")
    real.keys("$")
    real.until(lambda shown: "1 overview" not in shown)
    real.keys("echo beside $TRAINING_ID", "Enter")
    with Store.open(real.home) as store:
        job_id = resolve(store, "endless").id
    real.until_shown(f"beside {job_id}")
    real.keys("exit", "Enter")
    real.until_shown("1 overview", "● processing")


def test_it_lives_through_detaching_resizing_and_being_killed(real: Terminal) -> None:
    real.start(80, 24)
    real.until_shown("1 overview", "endless")
    real.keys("m")
    real.until_shown("train/accuracy")
    client, drain = _attached(real)
    until(lambda: real("list-clients").strip())
    real("detach-client", "-s", real("display-message", "-p", "#S").strip())
    client.wait(patience())
    drain.join(20)
    real("resize-window", "-x", "200", "-y", "60")
    real.until_shown("train/accuracy", "step ")  # charts and log beside each other
    real("resize-window", "-x", "20", "-y", "5")
    real.until_shown("needs 60x15")
    real("resize-window", "-x", "80", "-y", "24")
    real.until_shown("3 charts", "train/accuracy")
    until(lambda: _remembered(real.home) == "charts")
    screens = psutil.Process(int(real("display-message", "-p", "#{pane_pid}"))).children()[0]

    screens.send_signal(signal.SIGKILL)

    screens.wait(patience())
    real("kill-session")
    until(lambda: _starts(real))  # tmux's server is about to end, and takes no session while it does
    real.until_shown("3 charts", "endless", "● processing", "train/accuracy")
    assert _state(real.home, "endless") == "PROCESSING"


def _state(home: Home, name: str) -> str:
    with Store.open(home) as store:
        return resolve(store, name).state


def _starts(terminal: Terminal) -> bool:
    try:
        terminal.start(80, 24)
    except subprocess.CalledProcessError:
        return False
    return True


def _attached(terminal: Terminal) -> tuple[subprocess.Popen[bytes], threading.Thread]:
    """Attach a terminal to the session, as one does who comes back over SSH; what it shows is read."""
    ours, theirs = pty.openpty()
    client = subprocess.Popen(
        [*terminal.base, "attach"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**terminal.environment, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    drain = threading.Thread(target=_drain, args=(ours,))
    drain.start()
    return client, drain


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # the other side is closed
        pass
    os.close(terminal)


def _remembered(home: Home) -> object:
    from screens.core.memory import MEMORY_KEY
    from workbench.store.queries.ui_state import get_state

    with Store.open(home) as store:
        return get_state(store, MEMORY_KEY, {}).get("tab")
