"""The form for new jobs: checked and planned while one types, started by the command, run by a controller, for real."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from screens.base.dialogs import Pick
from screens.core.memory import MEMORY_KEY
from screens.jobs.table_screen import JobsScreen
from screens.launch.draft_sources import manifests_here
from screens.launch.form_screen import LaunchScreen
from screens.widgets.text_page import PlanPage
from screens.workers.command_runner import call
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from tests.support.processes import end_everything
from tests.support.screen_terminal import ENTRY, PtyTerminal
from tests.support.waiting import patience, until
from workbench.cli.framework.run_options import read_run_options
from workbench.clock import now_us
from workbench.errors import FabricError, UsageError
from workbench.job import State
from workbench.paths import Home, config_file
from workbench.services.backends import prompts
from workbench.services.cancel import Cancelled
from workbench.store.db.database import Store
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.ui_state import get_state

MANIFEST = """name: hello
params:
  greeting: hello from the job
framework:
  name: custom
  command: "{python} -c 'print(\\"${{params.greeting}}\\")'"
"""


@pytest.fixture
def folder(clean_environment: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    work = clean_environment / "work"
    work.mkdir()
    (work / "manifest.yml").write_text(MANIFEST.format(python=sys.executable))
    monkeypatch.chdir(work)
    yield work
    end_everything(home)


async def open_form(shown: Shown) -> LaunchScreen:
    await shown.press("n")
    await shown.until(lambda: isinstance(shown.app.screen, LaunchScreen))
    screen = shown.app.screen
    assert isinstance(screen, LaunchScreen)
    return screen


async def begin_with(shown: Shown, part: str) -> None:
    await shown.press("t")
    await shown.until(lambda: isinstance(shown.app.screen, Pick))
    await shown.type(part)
    await shown.press("enter")
    await shown.until(lambda: isinstance(shown.app.screen, LaunchScreen))


@asynccontextmanager
async def form_of_manifest(home: Home) -> AsyncIterator[tuple[Shown, LaunchScreen]]:
    """Open a form that begins with the folder's manifest."""
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        await begin_with(shown, "manifest.yml")
        yield shown, screen


async def fill(shown: Shown, screen: LaunchScreen, key: str, value: str) -> None:
    await shown.until(lambda: any(one.key == key for one in screen.form.fields))
    screen.form.go_to(key)
    await shown.press("enter")
    await shown.until(lambda: isinstance(shown.app.focused, Input))
    shown.app.screen.query_one(Input).value = ""
    await shown.type(value)
    await shown.press("enter")


@journey
async def test_a_job_is_made_of_a_file_changed_started_and_run(folder: Path, home: Home) -> None:
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        await shown.until_shown("from a command", "give a command, e.g.")
        await begin_with(shown, "manifest.yml")
        await shown.until_shown(
            "from manifest.yml", "params.greeting", "ready to start", "$ fabric run manifest.yml"
        )
        await fill(shown, screen, "params.greeting", "good morning")
        await shown.until_shown("--set 'params.greeting=good morning'")
        await fill(shown, screen, "runner", "process")
        await shown.until_shown("local, as process", "good morning")
        await shown.press("ctrl+r")
        await shown.until_shown("started training-")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.until_shown("✓ completed", "good morning")

        await shown.press("r")
        await shown.until_shown("from job", "$ fabric rerun training-", "with exactly its code")
        await shown.press("ctrl+r")
        await shown.until(lambda: _states(home) == [State.COMPLETED] * 2)
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.press("r")
        screen = shown.app.screen if isinstance(shown.app.screen, LaunchScreen) else await _form(shown)
        await fill(shown, screen, "params.greeting", "third")
        await shown.until_shown("params.greeting=third", "ready to start")
        await shown.press("ctrl+r")
        await shown.until(lambda: _states(home) == [State.COMPLETED] * 3)
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.press("g")
        await shown.until_shown("third")


async def _form(shown: Shown) -> LaunchScreen:
    await shown.until(lambda: isinstance(shown.app.screen, LaunchScreen))
    screen = shown.app.screen
    assert isinstance(screen, LaunchScreen)
    return screen


def _states(home: Home) -> list[State]:
    with Store.open(home) as store:
        return [job.state for job in list_jobs(store)]


@journey
async def test_a_bare_command_is_enough(folder: Path, home: Home) -> None:
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        await fill(shown, screen, "framework.command", "echo it works")
        await fill(shown, screen, "name", "bare")
        await shown.until_shown("$ fabric run --name bare -- 'echo it works'", "job            bare")
        await shown.press("ctrl+r")
        await shown.until(lambda: _states(home) == [State.COMPLETED])
        await shown.until_shown("it works")


@journey
async def test_what_is_wrong_is_shown_beside_its_line_while_one_types(folder: Path, home: Home) -> None:
    async with form_of_manifest(home) as (shown, screen):
        await shown.until_shown("ready to start")
        screen.form.go_to("learners")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("-2")  # behind what stands there, which is nothing
        await shown.until_shown("!  learners", "found the number -2; write a whole number", "1 fault")
        await shown.press("enter")
        await shown.until(lambda: shown.app.focused is screen.form)
        await shown.press("ctrl+r")
        await shown.until_shown("learners: found the number -2")
        await shown.press("backspace")
        await shown.until_shown("ready to start")
        await fill(shown, screen, "more options", "'open")
        await shown.until_shown("!  more options", "not a valid command line")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.press("n")
        await shown.until_shown("from manifest.yml", "not a valid command line")  # as it was left
    assert _states(home) == []


@journey
async def test_the_manifest_is_edited_in_the_users_editor(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def edit(app: object, argv: list[str]) -> int:
        asked.append(argv)
        file = Path(argv[-1])
        file.write_text(file.read_text().replace("hello from the job", "edited greeting"))
        return 0

    monkeypatch.setenv("EDITOR", "emacs -nw")
    monkeypatch.setattr("screens.base.editor.lend_terminal", edit)
    async with opened(home, (160, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        await open_form(shown)
        await begin_with(shown, "manifest.yml")
        await shown.until_shown("hello from the job")
        await shown.press("e")
        await shown.until_shown("from manifest.yml, edited", "edited greeting")
        await shown.until_shown(str(folder)[-12:])  # the code is where it was
        assert asked == [["emacs", "-nw", str(home.drafts / "edited.yml")]]
    assert "hello from the job" in (folder / "manifest.yml").read_text()


@journey
async def test_nothing_is_started_readonly(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.app.app.FabricApp.NOTIFICATION_TIMEOUT", 60)  # a busy machine may look late
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home, readonly=True) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("n")
        await shown.until_shown("read-only: the screens were")
        await shown.press("r")
        await shown.until(lambda: shown.text().count("read-only: the screens were") == 2)


@journey
async def test_the_preview_is_that_of_the_command_that_is_started(folder: Path, home: Home) -> None:
    (folder / "fabric.toml").write_text("[profiles.slow.defaults]\ngrace_seconds = 77\n")
    async with opened(home, (200, 60), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        await begin_with(shown, "manifest.yml")
        await fill(shown, screen, "runner", "process")
        await fill(shown, screen, "more options", "--profile slow -e COLOUR=blue --set params.greeting=a,b")
        await shown.until_shown(
            "ready to start 2 jobs", "Starts 2 jobs", "local, as process", "Sent to local: job 1 of 2"
        )

        argv = ["run", "--plan", "--json", *screen.draft.arguments()[1:]]
        documents = json.loads(call(home, argv))
        page = screen.query_one(PlanPage).plain
        for document in documents:
            assert document["spec"]["grace_seconds"] == 77
            assert json.dumps(document["learners"][0]["native"]["launch"]["command"]) in page
    assert _states(home) == []


@journey
async def test_options_that_the_command_does_not_know_are_named(folder: Path, home: Home) -> None:
    async with form_of_manifest(home) as (shown, screen):
        await fill(shown, screen, "more options", "--templat gpu")
        await shown.until_shown("run has no option '--templat'", "did you mean --template?")


@journey
async def test_a_preview_is_cancelled_when_the_form_changes_and_when_it_is_left(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancels: list[threading.Event] = []

    def never_ends(batch: object, home: object, *, cancel: threading.Event) -> tuple[object, ...]:
        cancels.append(cancel)
        cancel.wait()
        raise Cancelled("cancelled")

    monkeypatch.setattr("workbench.services.submit.preview.preview_batch", never_ends)
    async with form_of_manifest(home) as (shown, screen):
        await shown.until(lambda: len(cancels) == 1)
        assert not cancels[0].is_set()
        await fill(shown, screen, "params.greeting", "x")
        await shown.until(lambda: len(cancels) > 1 and not cancels[-1].is_set())
        assert all(cancel.is_set() for cancel in cancels[:-1])
        await shown.press("escape")
        await shown.until(lambda: all(cancel.is_set() for cancel in cancels))


@journey
async def test_a_command_of_several_lines_is_pasted_whole(folder: Path, home: Home) -> None:
    lines = "set -e\necho one\necho two"
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        await shown.until(lambda: screen.form.field is not None)
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))

        shown.app.post_message(events.Paste(lines + "\n"))
        await shown.until_shown("set -e\u23ceecho one\u23ceecho two")
        await shown.press("enter")

        await shown.until(lambda: screen.draft.changes.get("framework.command") == lines)
        assert screen.draft.arguments() == ["run", "--", lines]
        await shown.until_shown("ready to start", "echo two")


@journey
async def test_heading_and_plan_say_the_same_of_a_backend_that_there_is_not(folder: Path, home: Home) -> None:
    async with form_of_manifest(home) as (shown, screen):
        await shown.until_shown("ready to start")
        seen: list[str] = []
        await fill(shown, screen, "backend", "nowhere")
        while not seen or "Not ready" not in seen[-1]:
            await shown.pilot.pause(0.02)
            seen.append(shown.text())

        assert "not ready" in shown.text().splitlines()[0]
        assert not any("ready to start" in text and "Not ready" in text for text in seen)


@journey
async def test_a_draft_survives_the_end_of_the_screens(folder: Path, home: Home) -> None:
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        await fill(shown, screen, "framework.command", "python train.py --long")
        await shown.until(
            lambda: "python train.py --long" in _remembered_draft(home)
        )  # not only when it ends
    async with opened(home, (120, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        await open_form(shown)
        await shown.until_shown("python train.py --long", "ready to start")


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"", id="a line that is being edited"),
        pytest.param(
            b"\r",
            id="a line that was entered",
            marks=pytest.mark.soak(
                "the gate kills them at a line that is edited; an entered one is kept as soon"
            ),
        ),
    ],
)
def test_a_draft_survives_that_the_screens_are_killed(folder: Path, home: Home, rest: bytes) -> None:
    environment = {
        **os.environ,
        "FABRIC_HOME": str(home.path),
        "LC_ALL": "C.UTF-8",
        "FABRIC_NO_CONTROLLER": "1",
    }
    command = "python train.py --long"

    def form(*keys: bytes) -> PtyTerminal:
        terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui"], environment)
        try:
            terminal.until(lambda: "No jobs yet" in terminal.shown)
            terminal.type(b"n")
            terminal.until(lambda: "new job" in terminal.shown and "command" in terminal.shown)
            for key in keys:
                terminal.type(key)
            terminal.until(lambda: command in terminal.shown)
        except BaseException:
            terminal.close()
            raise
        return terminal

    terminal = form(b"\r", command.encode() + rest)
    try:
        until(lambda: command in _remembered_draft(home), "it to be remembered")
        terminal.process.kill()
        terminal.process.wait(patience())
    finally:
        terminal.close()

    form().close()


def _remembered_draft(home: Home) -> str:
    with Store.open(home) as store:
        return json.dumps(get_state(store, MEMORY_KEY, {}))


def test_manifests_are_found_the_nearest_first(folder: Path) -> None:
    (folder / "examples" / "one").mkdir(parents=True)
    (folder / "examples" / "one" / "manifest.yml").touch()

    assert manifests_here() == ["manifest.yml", "examples/one/manifest.yml"]


def test_what_the_command_refuses_is_shown_in_its_own_words(home: Home) -> None:
    with pytest.raises(FabricError, match="there is no job"):
        call(home, ["rerun", "nobody"])


def test_what_the_command_narrates_is_passed_on(folder: Path, home: Home) -> None:
    narration: list[str] = []

    call(
        home,
        ["run", "-d", "--runner", "process", "manifest.yml"],
        narration.append,
    )

    assert narration[-1].startswith("it runs in the background")


def test_a_command_that_takes_too_long_is_ended(home: Home) -> None:
    with pytest.raises(FabricError, match="took longer than 0 s and was stopped"):
        call(home, ["list"], deadline_seconds=0.01)


@journey
async def test_the_backends_of_the_configuration_are_offered_with_their_options(
    folder: Path, home: Home
) -> None:
    config_file().write_text('[backends.gpubox]\naddress = "ssh://ada@gpubox"\nsilent_seconds = 20\n')
    async with opened(home, (160, 40), clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        screen = await open_form(shown)
        screen.form.go_to("backend")
        await shown.until_shown("One of local, gpubox", "local: local.")
        await begin_with(shown, "manifest.yml")
        await fill(shown, screen, "backend", "gpubox")
        await shown.until_shown("gpubox: ssh, ssh://ada@gpubox", "$ fabric run manifest.yml --backend gpubox")


def test_a_command_line_is_read_as_the_command_reads_it(folder: Path) -> None:
    request = read_run_options(
        [
            "m.yml",
            "src",
            "--set",
            "params.lr=1",
            "-e",
            "A=b",
            "--gpus",
            "2",
            "--profile",
            "p",
            "--timeout",
            "2h",
            "--every",
            "@daily",
            "--accept-loss",
        ]
    )
    command = read_run_options(["--name", "x", "--", "python", "train.py", "--help"]).options

    options = request.options
    assert (request.needs_waiting, request.every, request.accept_loss) == (("--timeout",), "@daily", True)
    assert (options.manifest, options.code, options.gpus, request.profile) == ("m.yml", "src", 2, "p")
    assert (options.overrides, options.environment) == (("params.lr=1",), ("A=b",))
    assert (command.name, command.command) == ("x", ("python", "train.py", "--help"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--gpus", "many"], "many"), (["--nonsense"], "has no option"), (["m.yml", "--help"], "starts no job")],
)
def test_words_that_the_command_does_not_take_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=reason):
        read_run_options(words)

    assert capsys.readouterr() == ("", "")


@journey
async def test_the_screens_let_no_backend_ask_at_the_terminal(home: Home) -> None:
    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")

        assert not prompts.may_ask()
