"""Palette, command line, help, debug, mouse, and what else belongs to no screen alone."""

from __future__ import annotations

import re
import threading

import pytest
from textual.widget import Widget
from textual.widgets import Input

from screens.app.app import FabricApp
from screens.app.palette import Palette, PaletteEntry, rank
from screens.base.dialogs import TextView
from screens.core.memory import MEMORY_KEY
from screens.jobs.job_screen import JobScreen
from screens.jobs.queries import Beginning
from screens.jobs.table_screen import JobsScreen
from screens.logs.view import LogView
from screens.widgets.bars import KeyBar
from screens.widgets.tabs import TabBar
from screens.workers.reader import QueryAnswer
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from tests.support.waiting import patience
from workbench.job import Reason, State, short_id
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.resolve import resolve
from workbench.store.queries.ui_state import get_state, set_state


async def open_palette(shown: Shown) -> None:
    await shown.press("ctrl+p")
    await shown.until(lambda: isinstance(shown.app.screen, Palette) and isinstance(shown.app.focused, Input))


def line_of(shown: Shown, part: str) -> str:
    return next((line for line in reversed(shown.text().splitlines()) if part in line), "")


@journey
async def test_the_palette_finds_actions_by_name_and_does_them(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-wide")
        await open_palette(shown)
        await shown.until_shown("Commands", "enter does it")
        await shown.type("problems")
        await shown.until(lambda: re.search(r"problems .* !\s", line_of(shown, "problems   ") + " "))
        await shown.press("enter")
        await shown.until_shown("only problems x", "1 of 3")


def _entry(kind: str, title: str, about: str = "") -> PaletteEntry:
    return PaletteEntry(kind, title, about, "", lambda: None)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("halt", ["halt", "kill"]),
        ("light", ["theme ansi-light", "theme fabric-light", "highlight"]),
        ("sort", ["sort the queue", "sort"]),
        ("anslgt", ["theme ansi-light"]),
        ("theme light", ["theme ansi-light", "theme fabric-light"]),
        ("zzz", []),
    ],
)
def test_the_palette_has_beginnings_of_words_first_and_scattered_letters_only_where_nothing_fits(
    typed: str, found: list[str]
) -> None:
    offered = [
        _entry("Settings", "theme ansi-light"),
        _entry("Settings", "theme fabric-light"),
        _entry("Settings", "highlight"),
        _entry("Settings", "sort"),
        _entry("Commands", "kill", "Stop without a halt."),
        _entry("Commands", "halt"),
        _entry("Commands", "sort the queue"),
    ]
    ranked = rank(offered, typed.split())

    assert [entry.title for entries in ranked.values() for entry in entries] == found


@journey
async def test_the_palette_offers_what_the_open_tab_can_do(three: Home) -> None:
    async with opened(three, job="mnist-big") as shown:
        await shown.until_shown("1 overview")
        await shown.press("l")
        await open_palette(shown)
        await shown.type("next error")
        await shown.until(lambda: re.search(r"next error .* e\s", line_of(shown, "next error   ") + " "))
        await shown.press("enter")
        await shown.until(lambda: shown.app.screen.query_one(LogView).state.cursor == 2)


@journey
async def test_an_end_at_the_instant_in_which_a_page_opens_is_an_end_without_error(three: Home) -> None:
    with Store.open(three) as store:
        (row, *_) = list_jobs(store, limit=1)
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        shown.app.push_screen(JobScreen(row, "overview"))
        shown.app.exit()


@journey
async def test_an_answer_that_comes_as_the_app_takes_its_screens_apart_is_ignored(three: Home) -> None:
    async with opened(three) as shown:
        app = shown.app
        await shown.until_shown("mnist-big")
        prune, late = app._prune, []

        async def prune_and_answer(root: Widget) -> None:
            await prune(root)
            late.append(type(root))
            app.on_query_answer(QueryAnswer("beginning", Beginning({}, None)))

        setattr(app, "_prune", prune_and_answer)  # noqa: B010 - a method of Textual
    assert JobsScreen in late


@journey
async def test_an_end_before_the_first_answer_of_the_store_keeps_what_was_remembered(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(three) as store:
        set_state(store, MEMORY_KEY, {"theme": "fabric-light"})
    ended = threading.Event()

    def read_late(store: Store) -> Beginning:
        ended.wait(patience())
        return Beginning({}, None)

    monkeypatch.setattr("screens.app.app.beginning", lambda asked: read_late)
    try:
        async with opened(three) as shown:
            await shown.until_shown("fabric › jobs")
            shown.app.remember()  # as it does each second
    finally:
        ended.set()
    with Store.open(three) as store:
        assert get_state(store, MEMORY_KEY) == {"theme": "fabric-light"}


@journey
async def test_the_palette_finds_jobs_by_name_id_and_tag(three: Home) -> None:
    with Store.open(three) as store:
        row = seeding.add_job(store, 9, "unet-cells", tags=("vision",))
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("unet-cells")
        for typed in ("unet", short_id(row.id), "vision"):
            await open_palette(shown)
            await shown.type(typed)
            await shown.until_shown("Jobs", "vision")
            await shown.until(lambda: "unet-cells" in line_of(shown, short_id(row.id)))
            await shown.press("enter")
            await shown.until_shown("1 overview", f"jobs › unet-cells {short_id(row.id)}")
            await shown.press("escape")
            await shown.until_shown("fabric › jobs ")


@journey
async def test_the_palette_opens_pages_and_sets_colours(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        await open_palette(shown)
        await shown.type("events")
        await shown.until_shown("Pages", "Page of mnist-")
        await shown.press("enter")
        await shown.until(lambda: getattr(shown.app.screen, "tab", "") == "events")
        await open_palette(shown)
        await shown.type("usage")
        await shown.until(
            lambda: re.search(r"Page of .* 4\s", line_of(shown, "Page of") + " ")
        )  # the key that does the same
        await shown.press("escape")
        await shown.until(lambda: not isinstance(shown.app.screen, Palette))
        await open_palette(shown)
        await shown.type("theme nord")
        await shown.until_shown("Settings")
        await shown.press("enter")
        await shown.until(lambda: shown.app.theme == "nord")


@journey
async def test_the_palette_says_that_nothing_is_called_so(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await open_palette(shown)
        await shown.type("qqqq")
        await shown.until_shown("nothing is called 'qqqq'")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))


@journey
async def test_help_is_narrowed_by_what_is_typed(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("question_mark")
        await shown.until_shown("Keys – Jobs: table", "List of jobs", "esc closes")
        await shown.type("upload")
        await shown.until_shown("Copy a local folder")
        assert "Open the job under" not in shown.text()
        await shown.press("escape")
        await shown.until_shown("Open the job under")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))


COMMANDS = (
    ("logs mnist-big", ("2 logs", "RuntimeError")),
    ("run mnist-baseline", ("1 overview", "mnist-baseline", "exit 0")),
    ("charts", ("3 charts", "train/loss")),
    ("filter state:failed", ("state:failed x", "1 of 3")),
    ("runs.problems", ("only problems x",)),
    ("theme nothing", ("themes: ",)),
    ("nonsense", ("unknown command 'nonsense'",)),
    ("logs nobody", ("there is no job", "nobody")),
    ("help", ("Keys – Jobs",)),
)


@journey
async def test_commands(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:

        async def command(line: str) -> None:
            shown.app.go_home()
            await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
            await shown.press("escape")  # what narrows the list
            await shown.until(lambda: "3 jobs" in shown.text() and "1 of 3" not in shown.text())
            await shown.press("colon")
            await shown.until(lambda: isinstance(shown.app.focused, Input))
            await shown.type(line)
            await shown.press("enter")

        await shown.until_shown("mnist-big")
        for line, parts in COMMANDS:
            await command(line)
            await shown.until_shown(*parts)
        await shown.press("escape")
        await command("theme nord")
        await shown.until(lambda: shown.app.theme == "nord")


@journey
async def test_commands_are_remembered(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("colon")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("nonsense")
        await shown.press("enter", "colon")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.press("up")
        await shown.until_shown(":nonsense")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.press("colon")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("q")
        await shown.press("enter")
        await shown.until(lambda: shown.app.return_code == 0)


@journey
async def test_the_debug_screen_says_where_everything_is(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("f12")
        await shown.until_shown(
            "This installation",
            "textual",
            "8.2.8",
            "fabric.db",
            "not running",
            "Slowest reads",
            "config.toml",
        )


@journey
async def test_what_can_be_copied_is_offered(three: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    async with opened(three, (120, 40)) as shown:
        monkeypatch.setattr(shown.app, "copy_to_clipboard", copied.append)
        await shown.until_shown("mnist-wide")
        await shown.press("y")
        await shown.until_shown("Copy", "y  name", "c  show command")
        await shown.press("i")
        await shown.until(lambda: copied == [seeding.job_id(3)])
        await shown.until_shown("copied the id")


@journey
async def test_a_click_on_a_key_a_tab_and_a_row_does_what_they_say(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two clicks are a double one within half a second: on a busy machine they may be further apart.
    monkeypatch.setattr(FabricApp, "CLICK_CHAIN_TIME_THRESHOLD", patience())
    async with opened(three) as shown:
        await shown.until_shown("mnist-wide", "CPUs")  # what comes above the list moves it
        await shown.pilot.click("JobTable", offset=(20, 2))
        await shown.until_shown("RuntimeError")
        await shown.pilot.click(KeyBar, offset=(2, 0))
        await shown.until(lambda: isinstance(shown.app.screen, JobScreen))
        await shown.until_shown("use a smaller batch")
        await shown.pilot.click(TabBar, offset=(16, 0))
        await shown.until_shown("end", "Traceback (most recent call last)")
        await shown.pilot.click(LogView, offset=(5, 2), times=2)
        await shown.until(lambda: isinstance(shown.app.screen, TextView))
        await shown.until_shown("line 2 of learner 1", "WARNING: batch of 4096")


@journey
async def test_a_pane_takes_the_whole_screen_and_gives_it_back(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("step 19 loss")
        await shown.press("z")
        await shown.until(lambda: "step 19 loss" not in shown.text() and "mnist-wide" in shown.text())
        await shown.press("z")
        await shown.until_shown("step 19 loss")
        await shown.press("tab", "z")
        await shown.until(lambda: "mnist-big" not in shown.text() and "step 19 loss" in shown.text())
        await shown.press("escape")
        await shown.until_shown("mnist-big")


@journey
async def test_the_last_job_is_one_key_away(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("minus")
        await shown.until_shown("no other job was open before")
        await shown.press("j", "enter")
        await shown.until_shown("use a smaller batch")
        await shown.press("minus")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.press("g", "minus")
        await shown.until_shown("use a smaller batch")


@journey
async def test_errors_are_mapped_beside_the_log(three: Home) -> None:
    async with opened(three, job="mnist-big") as shown:
        await shown.until_shown("1 overview")
        await shown.press("l")
        await shown.until(lambda: any(line.rstrip().endswith("▎") for line in shown.text().split("\n")))


@journey
async def test_charts_are_zoomed_panned_inspected_smoothed_pinned_and_filtered(three: Home) -> None:
    from screens.charts.grid import ChartGrid

    async with opened(three, (120, 40), job="mnist-wide") as shown:
        await shown.until_shown("1 overview")
        await shown.press("m")
        await shown.until_shown("train/accuracy", "train/loss")
        grid = shown.app.screen.query_one(ChartGrid)
        await shown.press("tilde", "y")
        await shown.until_shown("log  smooth 0.6")
        await shown.press("tilde", "tilde", "tilde", "y")
        assert (grid.view.smoothing, grid.view.logarithmic) == (0.0, False)
        await shown.press("i", "left", "left")
        await shown.until_shown("at step 98")
        await shown.press("plus")
        await shown.until(lambda: grid.view.x_low is not None and grid.view.x_high is not None)
        assert grid.view.x_high is not None and grid.view.x_high - (grid.view.x_low or 0) == pytest.approx(
            50.0
        )
        await shown.press("i", "left")
        await shown.until(lambda: (grid.view.x_high or 0) < 120)
        await shown.press("minus", "minus")
        await shown.until(lambda: grid.view.x_low is None)
        await shown.press("a")
        await shown.until_shown("1 min")
        await shown.press("a", "j", "space")
        await shown.until_shown("pinned", "* train/loss")
        await shown.press("enter")
        await shown.until(lambda: "train/accuracy" not in shown.text())
        await shown.press("escape", "slash")
        await shown.type("lr")
        await shown.press("enter")
        await shown.until(lambda: grid.shown_names == ["train/lr"])
        await shown.press("escape")
        await shown.until(lambda: len(grid.shown_names) == 3)
        await shown.press("less_than_sign", "less_than_sign")
        await shown.until(lambda: grid.plan.columns == 1)
        await shown.press("greater_than_sign")
        await shown.until(lambda: grid.plan.columns == 2)


@journey
async def test_the_end_of_a_job_is_shown_and_rings_when_it_was_looked_at(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[int] = []
    async with opened(three, (120, 40)) as shown:
        monkeypatch.setattr(shown.app, "bell", lambda: rung.append(1))
        await shown.until_shown("mnist-big")
        with Store.open(three) as store:
            with store.atomic():  # in one moment: what is seen to end at once is reported together
                for number in range(20, 25):
                    row = seeding.add_job(store, number, f"other-{number}", age_seconds=0)
                    seeding.go(store, row, State.FAILED, reason=Reason("no such file", "C201"), exit_code=2)
            await shown.until_shown("✗ failed: other-20  no such file", "and 2 more jobs have ended")
            assert not rung
            await shown.press("G", "enter")
            await shown.until_shown("1 overview")
            again = resolve(store, "mnist-wide")
            shown.app.open_job(again)
            await shown.until_shown("running for")
            seeding.go(store, again, State.STORING, State.COMPLETED, exit_code=0)
            await shown.until_shown("✓ completed: mnist-wide")
            await shown.until(lambda: rung == [1])


@journey
async def test_jobs_that_end_one_after_the_other_are_one_message(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        with Store.open(three) as store:
            for number in range(20, 24):
                row = seeding.add_job(store, number, f"other-{number}", age_seconds=0)
                seeding.go(store, row, State.FAILED, reason=Reason("no such file", "C201"), exit_code=2)
                await shown.until_shown(f"✗ failed: other-{number}  no such file")
        await shown.until_shown("and 1 more job has ended")
        assert len(shown.app._notifications) == 1


@journey
async def test_charts_are_drawn_over_what_a_job_reports_beside_its_metrics(home: Home) -> None:
    from screens.charts.grid import ChartGrid

    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1), *seeding.RUN_UP)
        epochs = [1.0 + step // 50 for step in range(200)]
        seeding.report(
            store, row, {"loss": [1.0 / (step + 1) for step in range(200)]}, etimes={"epoch": epochs}
        )
    async with opened(home, (120, 40), job=row.id) as shown:
        await shown.until_shown("1 overview")
        await shown.press("m")
        await shown.until_shown("train/loss")
        grid = shown.app.screen.query_one(ChartGrid)
        assert grid.page.axes == ("step", "time", "epoch")
        await shown.press("a", "a", "i")
        await shown.until_shown("at epoch 4")
        await shown.until(lambda: set(grid.page.charts["train/loss"].curves[0].x) == {1.0, 2.0, 3.0, 4.0})
        await shown.press("a")
        await shown.until(lambda: grid.view.axis == "step")


def footer(shown: Shown) -> str:
    return shown.text().splitlines()[-1]


@journey
async def test_the_footer_offers_only_what_can_be_done_with_the_job_under_the_cursor(three: Home) -> None:
    async with opened(three, (160, 40)) as shown:
        await shown.until(lambda: "x halt" in footer(shown))  # the newest job runs
        assert "u resume" not in footer(shown)
        assert "c compare" not in footer(shown)
        assert "esc back" not in footer(shown)
        await shown.press("j")
        await shown.until(lambda: "u resume" in footer(shown) and "x halt" not in footer(shown))  # failed
        await shown.press("j")
        await shown.until(
            lambda: "u resume" not in footer(shown) and "x halt" not in footer(shown)
        )  # completed
        await shown.press("space", "k", "space")
        await shown.until(lambda: "c compare" in footer(shown) and "esc back" in footer(shown))


@journey
async def test_the_footer_of_an_empty_home_offers_no_jobs_keys(home: Home) -> None:
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.until(lambda: "n new job" in footer(shown))
        for title in ("open", "logs", "halt", "filter", "sort", "mark", "resume"):
            assert f" {title} " not in footer(shown)


@journey
async def test_the_footer_of_a_form_offers_to_start_what_is_ready(home: Home) -> None:
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("n")
        await shown.until_shown("1 fault", "enter edit")
        await shown.until(lambda: "ctrl+r start" not in footer(shown) and "backspace" not in footer(shown))
