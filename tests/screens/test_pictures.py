"""Pictures of every screen in every state and at three sizes, as text. ``--update-screens`` writes them anew."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.content import Content
from textual.widgets import Input

from screens.base.dialogs import Confirm, Problem, Question, TaskList, TextView
from screens.base.login import TypeAnswer
from screens.jobs.compare_screen import CompareScreen
from screens.jobs.dashboard import OverviewPage
from screens.style.glyphs import glyphs
from tests.screens import seeding
from tests.screens.support import SIZES, check, opened, picture
from tests.screens.walking import Walk, pretended
from workbench.errors import CannotWrite
from workbench.job import Reason
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import job
from workbench.store.updates.jobs import mark_seen, set_reason

SIZE_NAMES = {size: f"{size[0]}x{size[1]}" for size in SIZES}
sizes_alike = pytest.mark.parametrize(
    "size",
    [
        SIZES[0],
        *(
            pytest.param(
                size,
                marks=pytest.mark.soak(
                    "sizes more; the gate shows it at 80x24, and three jobs at 200x60, too"
                ),
            )
            for size in SIZES[1:]
        ),
    ],
    ids=SIZE_NAMES.get,
)
two_sizes_alike = pytest.mark.parametrize(
    "size",
    [
        SIZES[0],
        pytest.param(
            SIZES[1],
            marks=pytest.mark.soak(
                "a size more; the gate shows it at 80x24, and the pages of three jobs at 200x60, too"
            ),
        ),
    ],
    ids=SIZE_NAMES.get,
)
smallest_and_largest = pytest.mark.parametrize(
    "size",
    [
        SIZES[0],
        pytest.param(
            SIZES[1], marks=pytest.mark.soak("a size between; the gate shows it at 80x24 and at 200x60")
        ),
        SIZES[2],
    ],
    ids=SIZE_NAMES.get,
)
Steps = Callable[[Walk], Awaitable[None]]
Same = Callable[..., None]
Rows = list[JobRow]
MANIFEST = "name: digits\nparams: {lr: 0.1}\nframework: {name: custom, command: python train.py}\n"


@pytest.fixture
def folder(clean_environment: Path) -> Path:
    """Where the walks are made: a folder with one manifest."""
    made = clean_environment / "work"
    made.mkdir()
    (made / "manifest.yml").write_text(MANIFEST)
    return made


@pytest.fixture
def rows(home: Home) -> Rows:
    """Three jobs in the home, which was left on the table: one that ended, one that failed, one that runs."""
    with Store.open(home) as store:
        made = seeding.three_runs(store)
        seeding.remember_runs(store)
    return made


def walk_through(
    home: Home, size: tuple[int, int], steps: Steps, expected: str = "", *, first: str = "fabric"
) -> str:
    """Open the app, walk, and return all that was seen."""

    async def take() -> str:
        async with opened(home, size) as shown:
            await shown.until_shown(first)
            walk = Walk(shown, expected)
            await steps(walk)
            return walk.text

    return asyncio.run(take())


@pytest.fixture
def same(home: Home, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Same:
    """Hold what is seen on a walk to the picture of that name."""

    def walk_and_look(name: str, size: tuple[int, int], steps: Steps, *, unreachable: bool = False) -> None:
        file = f"{name}-{SIZE_NAMES[size]}"
        with pretended(monkeypatch, folder, unreachable=unreachable):
            shown = walk_through(home, size, steps, picture(request, file))
        check(request, file, shown)

    return walk_and_look


@sizes_alike
def test_while_there_is_nothing(home: Home, size: tuple[int, int], same: Same) -> None:
    async def steps(walk: Walk) -> None:
        await walk.see("jobs", "No jobs yet", "CPUs")
        await walk.window("help", ["question_mark"], "Keys")
        await walk.window("palette", ["ctrl+p"], "help")
        await walk.window("background", ["B"], "no background tasks")
        await walk.form("give a command", "Not ready")
        with Store.open(home) as store:
            rows = [seeding.add_job(store, number, f"waiting-{number}", age_seconds=60) for number in (1, 2)]
        await walk.see("jobs that wait", "waiting for the first output")
        await walk.job(
            rows[0],
            {
                "overview": "waits for the controller", "logs": "waiting for the first output",
                "charts": "no metrics yet", "usage": "no usage samples yet", "config": "native plan",
                "files": "no results yet", "events": "History",
            },
        )  # fmt: skip
        await walk.compare(
            rows, {"charts": "no metrics in any of these jobs", "values": "no metrics", "code": "same"}
        )

    same("empty", size, steps)


@sizes_alike
def test_while_the_store_is_being_opened(
    home: Home, size: tuple[int, int], same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        rows = seeding.three_runs(store)
    monkeypatch.setattr("screens.workers.reader.StoreReader.run", lambda self: None)
    monkeypatch.setattr("screens.backends.screen.watch_backends", lambda screen, backends: None)

    async def steps(walk: Walk) -> None:
        await walk.see("jobs", "loading the list of jobs", "by submitted")
        tabs = dict.fromkeys(("overview", "usage", "config", "events"), "loading")
        await walk.job(
            rows[2],
            {
                **tabs,
                "logs": "step 19",
                "charts": "loading the metrics",
                "files": "loading the list of files",
            },
        )
        await walk.compare(
            rows[:2], {"charts": "loading the metrics", **dict.fromkeys(("values", "code"), "loading")}
        )
        await walk.backends("connecting")

    same("loading", size, steps)


COMPARED = {"charts": "train/loss", "values": "accuracy", "differences": "What differs"}


def _says(row: JobRow) -> dict[str, str]:
    return {
        "overview": row.name, "logs": "step 19", "charts": "train/loss", "usage": "180%",
        "config": "native plan", "files": "5.pt", "events": "History",
    }  # fmt: skip


@smallest_and_largest
def test_three_runs(rows: Rows, size: tuple[int, int], same: Same) -> None:
    async def steps(walk: Walk) -> None:
        shown = walk.shown
        await walk.see("jobs", "step 19 loss", "CPUs")
        await walk.window("halt", ["x"], "Halt mnist-wide?")
        await walk.window("copy", ["y"], "show command")
        await walk.window("jump", ["ctrl+o"], " d ")
        await walk.line("filter", "slash", "state:failed")
        await walk.line("command", "colon", "logs")
        await shown.press("g", "space", "space", "space", "g")
        await walk.see("marked", "3 marked")
        await walk.window("delete", ["D"], "Type mnist-wide to confirm")
        await shown.press("ctrl+backslash")
        await shown.until(lambda: "marked" not in shown.text())
        await walk.job(rows[2], _says(rows[2]))
        await walk.compare(rows[:2], COMPARED)
        await walk.backends("ada abcdefghi", "other process", "laptop")
        await shown.press("r")
        await walk.see("once more", "with exactly")
        await walk.window("start from", ["t"], "a command", "manifest.yml")
        shown.app.go_home()

    same("three", size, steps)


@sizes_alike
def test_five_thousand_runs(home: Home, size: tuple[int, int], same: Same) -> None:
    with Store.open(home) as store:
        seeding.many_runs(store, 5000)
        seeding.remember_runs(store)
        last = [row for number in (4998, 4999) if (row := job(store, seeding.job_id(number))) is not None]

    async def steps(walk: Walk) -> None:
        await walk.see("jobs", "sweep-04999", "no output", "CPUs")
        await walk.shown.press("G")
        await walk.see("the last jobs", "sweep-00000")
        await walk.shown.press("g")
        await walk.line("filter", "slash", "sweep-0123")
        await walk.job(
            last[0],
            {
                "overview": "completed", "logs": "no output", "charts": "no metrics",
                "usage": "no usage sample", "config": "cannot be read", "files": "no results",
                "events": "no events yet",
            },
        )  # fmt: skip
        await walk.compare(last, {"charts": "no metrics in any of these jobs", "values": "no metrics"})

    same("many", size, steps)


@smallest_and_largest
def test_a_search_and_its_trials(home: Home, size: tuple[int, int], same: Same) -> None:
    with Store.open(home) as store:
        seeding.search(store)
        seeding.remember_runs(store)

    async def steps(walk: Walk) -> None:
        await walk.shown.until_shown("digits", "12 jobs")
        await walk.shown.press("E")
        await walk.see("trials", "10 of 16 trials", "left", "3 of 3", "trial 6  ")
        await walk.pressed("sorted by number", "s", "trial▼")
        await walk.pressed("curves of the best and another", "2", "trial 6:", "trial 1:")
        await walk.pressed("parameters", "3", "over lr")
        await walk.pressed("another parameter on a logarithmic axis", "a", "over optimizer.kind")
        await walk.pressed("parallel coordinates", "4", "the best 3 lit")
        await walk.window("pause", ["x"], "Pause the search digits?")
        await walk.window("help", ["question_mark"], "Keys")

    same("search", size, steps)


@sizes_alike
def test_the_queue_of_two_backends(
    home: Home, size: tuple[int, int], same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        seeding.remember_runs(store)
    answer = seeding.host_queue(home, (1, 2))
    monkeypatch.setattr("workbench.services.backends.inventory.HostQuestion.ask", lambda self: answer)

    async def steps(walk: Walk) -> None:
        await walk.shown.press("Q")
        await walk.see("an empty queue", "no job waits")
        with Store.open(home) as store:
            seeding.waiting_jobs(store)
        await walk.see("queue", "2 of 3", "nightly", "waits until 22:00", "waits behind")
        await walk.pressed("a job that waits for GPUs", "G", "resnet-seed-3  waits behind")
        await walk.asked("priority", "equals_sign", "priority (0 to 100)")
        await walk.window("halt", ["x"], "Halt resnet-seed-3?")
        await walk.window("help", ["question_mark"], "Keys")

    same("queue", size, steps)


@sizes_alike
def test_a_backend_that_cannot_be_reached(home: Home, size: tuple[int, int], same: Same) -> None:
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, "far-away", backend="gpubox")
        row = seeding.go(store, row, *seeding.RUN_UP)
        seeding.report(store, row, {"loss": seeding.falling(60)})
        seeding.journal(home, row).write(b"".join(b"step %d\n" % i for i in range(20)))
        mark_seen(store, [row.id], seeding.NOW_US - 42 * seeding.SECOND_US)
        set_reason(store, row.id, Reason("gpubox does not answer", "S101", "is it switched on?"))
        other = seeding.add_job(store, 2, "waits", backend="gpubox", age_seconds=30)
        set_reason(
            store,
            other.id,
            Reason("gpubox does not answer"),
            next_try_us=seeding.NOW_US + 9 * seeding.SECOND_US,
        )
        seeding.remember_runs(store)

    async def steps(walk: Walk) -> None:
        await walk.see("jobs", "? processing", "waiting for the first output", "CPUs")
        await walk.job(row, {**_says(row), "overview": "last seen 42 s ago", "logs": "step 19"})
        await walk.compare(
            [row, other], {"charts": "train/loss", "values": "loss", "differences": "name", "code": "same"}
        )
        await walk.backends("does not answer: gpubox", "is it switched on?")

    same("unreachable", size, steps, unreachable=True)


@sizes_alike
def test_what_a_job_on_two_gpus_uses(home: Home, size: tuple[int, int], same: Same) -> None:
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, "resnet", gpus=2, cpus=4.0, memory_bytes=32 << 30)
        row = seeding.go(store, row, *seeding.RUN_UP)
        seeding.sample(store, row, seeding.busy(120), gpus=2)
        seeding.list_processes(home, row)
        seeding.remember_runs(store)

    async def steps(walk: Walk) -> None:
        walk.shown.app.open_job(row, "usage")
        await walk.see("usage", "CPU", "network", "400%", "learner 1")
        await walk.pressed("usage, the end of the page", "G", "GPU 1 temperature", "python train.py")
        await walk.shown.press("g", "w")
        await walk.pressed("usage of the last minutes", "w", "the last 10 minutes")

    same("usage", size, steps)


@two_sizes_alike
def test_windows_and_lines_over_the_runs(rows: Rows, size: tuple[int, int], same: Same) -> None:
    async def steps(walk: Walk) -> None:
        shown = walk.shown
        await shown.until_shown("step 19 loss", "CPUs")
        await shown.press("exclamation_mark")
        await walk.see("problems alone", "mnist-big")
        await shown.press("exclamation_mark")
        await shown.until_shown("mnist-wide")
        await shown.press("g")
        await shown.press("S")
        await walk.see("turned round", "mnist-wide")
        await shown.press("S", "g")
        await shown.press("i")
        await walk.see("without the preview", "mnist-wide")
        await shown.press("i", "p")
        await walk.see("held still", "mnist-wide", "step 19")
        await shown.press("p")
        await walk.window("kill", ["X"], "Kill mnist-wide?")
        await walk.window("download", ["ctrl+s"], "Download")
        await walk.window("open", ["o"], "Open")
        for name, key, part in (
            ("columns", "C", "columns"), ("tags", "t", "tags"), ("note", "N", "note"), ("upload", "U", "upload"),
            ("shell in learner", "dollar_sign", "shell in learner"),
        ):  # fmt: skip
            await walk.asked(name, key, part)
        await walk.typed("palette searched", "ctrl+p", "halt", "Ask the job to save")
        await walk.over(
            "a problem", Problem(CannotWrite("the disk is full", hint="make room"), "halt failed")
        )
        await walk.over(
            "a text", TextView("results/notes.txt  23 B", Content("the best so far [bold]\nand more"))
        )
        await walk.over("a secret is asked for", TypeAnswer("gpubox", "Password of ada@gpubox:", shown=False))
        await walk.over("a code is asked for", TypeAnswer("gpubox", "Verification code:", shown=True))
        shows = Question(
            "The host key of gpubox is not known yet",
            ("Its fingerprint is SHA256:abc",),
            "Accept it?",
            "accept",
        )
        await walk.over("a key is asked for", Confirm(shows))

    same("windows", size, steps)


@two_sizes_alike
def test_what_is_done_in_the_background(
    home: Home, size: tuple[int, int], same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.workers.background.Task.seconds", property(lambda task: 12.0))
    go_on = threading.Event()

    def work(report: Callable[[str], None]) -> str:
        report("copied 43%")
        go_on.wait(60)
        return "there"

    async def steps(walk: Walk) -> None:
        shown = walk.shown
        shown.app.background.begin("download digits", work, lambda _: None)
        await shown.until_shown("download digits 43%", "CPUs")
        await shown.press("B")
        await shown.until(lambda: isinstance(shown.app.screen, TaskList))
        await walk.see("background under way", "copied 43%")
        go_on.set()
        await shown.until(lambda: "43%" not in shown.text())
        await walk.see("background done", "download digits")
        await shown.press("escape")

    try:
        same("tasks", size, steps)
    finally:
        go_on.set()


@two_sizes_alike
def test_a_log_in_all_its_views(rows: Rows, size: tuple[int, int], same: Same) -> None:
    async def steps(walk: Walk) -> None:
        shown = walk.shown
        await shown.until_shown("step 19 loss")
        shown.app.open_job(rows[2], "logs")
        await walk.see("log of two learners", "[2] step 19 loss")
        await walk.pressed("log of one learner", "R", "learner")
        await walk.pressed("log with times", "t")
        await walk.pressed("log with times of day", "t")
        await shown.press("t", "R", "R")
        await walk.line("log search", "slash", "step 1")
        await shown.press("slash")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("step 12")
        await shown.press("enter")
        await walk.see("log found", "step 12")
        await shown.press("g")
        await shown.until_shown("step 0 loss")
        await shown.press("backslash")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("step 7")
        await shown.press("enter")
        await walk.see("log filtered", "step 7")
        await shown.press("escape", "g")
        await shown.until_shown("step 0 loss", "40 lines")
        await walk.line("log go to", "ctrl+g", "12")
        await shown.press("g", "space", "v", "j", "j")
        await walk.see("log selected", "step 1")
        await shown.press("escape")
        await walk.window("log line", ["enter"], "step")
        await walk.window("log help", ["question_mark"], "Keys")
        await walk.line("log save", "ctrl+s", "x")
        shown.app.go_home()
        shown.app.open_job(rows[1], "logs")
        await shown.until_shown("CUDA out of memory")
        await walk.pressed("log at an error", "e", "Traceback")
        # Where the cursor is among fewer lines depends on which of them were found first.
        for name, key, part in (
            ("log of warnings", "L", "4 of 5"), ("log of errors", "L", "3 of 5"), ("log wrapped", "w", "wrap"),
        ):  # fmt: skip
            await shown.press(key)
            await shown.until_shown(part)
            await walk.pressed(name, "g", " 1/")
        shown.app.go_home()

    same("log", size, steps)


@two_sizes_alike
def test_charts_in_all_their_views(rows: Rows, size: tuple[int, int], same: Same) -> None:
    async def steps(walk: Walk) -> None:
        shown = walk.shown
        await shown.until_shown("step 19 loss")
        shown.app.open_job(rows[2], "charts")
        await walk.see("charts", "train/loss")
        for name, key in (
            ("charts logarithmic", "y"), ("charts smoothed", "tilde"), ("charts over time", "a"),
            ("charts with a cursor", "i"), ("cursor to the left", "left"), ("charts zoomed", "plus"),
        ):  # fmt: skip
            await walk.pressed(name, key, "train/")
        await shown.press("0", "i", "escape")
        await walk.pressed("charts in fewer columns", "less_than_sign", "train/")
        await walk.pressed("charts in more columns", "greater_than_sign", "train/")
        await walk.pressed("a chart at the top", "space", "train/")
        await walk.line("charts filtered", "slash", "acc")
        await walk.pressed("one chart alone", "enter", "train/")
        await walk.window("charts help", ["question_mark"], "Keys")
        shown.app.go_home()

    same("charts", size, steps)


@two_sizes_alike
def test_the_form_and_the_help_of_every_screen(rows: Rows, size: tuple[int, int], same: Same) -> None:
    async def steps(walk: Walk) -> None:
        shown = walk.shown
        await shown.until_shown("step 19 loss")
        for tab in ("overview", "usage", "config", "files", "events"):
            shown.app.open_job(rows[2], tab)
            await shown.until_shown({**_says(rows[2]), "config": "Values and their"}[tab])
            await shown.until(lambda: "processes are being read" not in shown.text())
            if tab == "overview":  # the list says the same of the job
                await shown.until_shown(f"› {rows[2].name}", "train/loss", "step 19")
                await shown.until(lambda: "queued" in shown.app.screen.query_one(OverviewPage).plain)
            await walk.window(f"{tab} help", ["question_mark"], "Keys")
            shown.app.go_home()
        screen = CompareScreen(rows[:2])
        shown.app.push_screen(screen)
        await shown.until(lambda: shown.app.screen is screen and screen.whole)
        await walk.window("compare help", ["question_mark"], "Keys")
        shown.app.go_home()
        await shown.press("P")
        await shown.until_shown("laptop")
        await walk.window("backends help", ["question_mark"], "Keys")
        await walk.window("which backend", ["t"], "Which backend?")
        shown.app.go_home()
        await shown.press("n")
        await walk.window("form help", ["question_mark"], "Keys")
        await walk.pressed("form with a line open", "enter", "Not ready")
        await shown.type("python train.py")
        await shown.press("enter")
        await walk.see("form ready to start", "ready to start", "as process")
        await shown.press("escape")
        shown.app.go_home()

    same("form", size, steps)


@two_sizes_alike
def test_without_signs_that_a_terminal_may_lack(
    rows: Rows, size: tuple[int, int], same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_ASCII", "1")
    glyphs.cache_clear()

    async def steps(walk: Walk) -> None:
        await walk.see("jobs", "step 19 loss", "CPUs")
        await walk.job(rows[2], _says(rows[2]))
        await walk.compare(rows[:2], COMPARED)
        await walk.backends("ada abcdefghi", "other process", "laptop")

    same("ascii", size, steps)


@pytest.mark.parametrize("size", [(50, 10), (20, 5)])
def test_a_screen_that_is_too_small_says_so(home: Home, size: tuple[int, int]) -> None:
    async def steps(walk: Walk) -> None:
        await walk.see("too small", "needs", f"{size[0]}x{size[1]}")

    assert "60x15" in walk_through(home, size, steps, first="60x15")
