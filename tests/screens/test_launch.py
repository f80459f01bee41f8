"""Starting jobs from the screens, for real: planned while one types, started by the command, run by a controller."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input

from screens.launch import Launch
from screens.launching import call, manifests_here, words_of
from tests.cli.conftest import end_everything
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from tests.screens.test_pictures import remember_runs
from workbench.clock import now_us
from workbench.errors import FabricError, UsageError
from workbench.job import State
from workbench.paths import Home
from workbench.store import jobs
from workbench.store.database import Store

MANIFEST = """name: hello
framework:
  name: custom
  command: "{python} -c 'print(\\"hello from the job\\")'"
"""


@pytest.fixture
def folder(clean_environment: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    place = clean_environment / "work"
    place.mkdir()
    (place / "manifest.yml").write_text(MANIFEST.format(python=sys.executable))
    monkeypatch.chdir(place)
    yield place
    end_everything(home)


async def ask(shown: Shown, words: str) -> None:
    await shown.press("n")
    await shown.until(lambda: isinstance(shown.app.screen, Launch))
    shown.app.screen.query_one(Input).value = words


@journey
async def test_a_job_is_planned_while_one_types_then_started_and_run(folder: Path, home: Home) -> None:
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No runs yet")
        await ask(shown, "--runner process manifest.yml")
        await shown.until_shown("New job", "place     local, as process", "hello from the job")
        await shown.press("enter")
        await shown.until_shown("started training-")
        await shown.until_shown("✓ completed", "hello")
        await shown.press("r")
        await shown.until_shown("Run hello again?", "exactly its code")
        await shown.press("y")
        await shown.until(lambda: len(_states(home)) == 2)
        await shown.until(lambda: _states(home) == [State.COMPLETED, State.COMPLETED])


def _states(home: Home) -> list[State]:
    with Store.open(home) as store:
        return [job.state for job in jobs.list_jobs(store)]


@journey
async def test_what_is_wrong_is_said_before_anything_is_started(folder: Path, home: Home) -> None:
    (folder / "wrong.yml").write_text("name: hello\nlearners: -1\n")
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No runs yet")
        await ask(shown, "wrong.yml")
        await shown.until_shown("wrong.yml", "learners")
        shown.app.screen.query_one(Input).value = "'manifest.yml"
        await shown.until_shown("these are no words of a command")
        await shown.press("escape")
        await shown.until_shown("No runs yet")
    assert _states(home) == []


@journey
async def test_nothing_is_started_readonly(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        remember_runs(store)
    async with opened(home, readonly=True) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("n")
        await shown.until_shown("nothing is started here")
        await shown.press("r")
        await shown.until_shown("nothing is changed here")


def test_manifests_are_found_the_nearest_first(folder: Path) -> None:
    (folder / "examples" / "one").mkdir(parents=True)
    (folder / "examples" / "one" / "manifest.yml").touch()

    assert manifests_here() == ["manifest.yml", "examples/one/manifest.yml"]


def test_words_are_split_as_a_shell_does() -> None:
    assert words_of("a 'b c' --set x=1") == ["a", "b c", "--set", "x=1"]
    with pytest.raises(UsageError, match="no words of a command"):
        words_of("a 'b")


def test_what_the_command_refuses_is_said_in_its_own_words(home: Home) -> None:
    with pytest.raises(FabricError, match="there is no job"):
        call(home, ["rerun", "nobody"])
