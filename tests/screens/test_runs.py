from __future__ import annotations

import re

import pytest
from textual.events import Key
from textual.strip import Strip
from textual.widgets import Input

from screens.app.app import FabricApp
from screens.jobs.table import JobTable
from screens.jobs.table_screen import JobsScreen
from screens.widgets.prompt import Prompt
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, journey, opened
from workbench.cli.framework.run_options import read_run_options
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries import requests
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.resolve import resolve


@pytest.fixture
def no_controller(monkeypatch: pytest.MonkeyPatch) -> list[Home]:
    """Requests are written for real, but nobody takes them up."""
    woken: list[Home] = []
    instead_of_controller(monkeypatch, woken.append)
    return woken


def names(shown: Shown) -> list[str]:
    """Return the names of the rows that are at hand."""
    table = shown.app.screen.query_one(JobTable)
    return [row.name for row in table.window.rows] if table.window else []


@journey
async def test_the_first_time_it_opens_on_the_newest_running_job(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)

    async with opened(home) as shown:
        await shown.until_shown("1 overview", "mnist-wide", "running for")


@journey
async def test_a_job_that_was_asked_for_is_opened(three: Home) -> None:
    async with opened(three, job="mnist-big") as shown:
        await shown.until_shown("1 overview", "CUDA out of memory", "use a smaller batch")


@journey
async def test_the_preview_follows_the_cursor(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("step 19 loss")
        await shown.press("j")
        await shown.until_shown("RuntimeError: CUDA out of memory", "C201 the command ended with 1")
        await shown.press("j")
        await shown.until_shown("epoch 59 loss")


@journey
async def test_enter_opens_and_escape_goes_back_to_the_same_row(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("j", "enter")
        await shown.until_shown("1 overview", "use a smaller batch")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        assert shown.app.screen.query_one(JobTable).job is not None
        assert shown.app.screen.query_one(JobTable).job.name == "mnist-big"  # type: ignore[union-attr] # just asked


@journey
async def test_a_filter_narrows_while_it_is_typed_and_escape_takes_it_away(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("state:failed")
        await shown.until(lambda: names(shown) == ["mnist-big"])
        await shown.press("enter")
        await shown.until_shown("1 of 3", "state:failed x")
        await shown.press("escape")
        await shown.until(lambda: len(names(shown)) == 3)


@journey
async def test_tab_completes_a_filter_that_was_typed_before(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("state:failed")
        await shown.press("enter", "escape")
        await shown.until(lambda: len(names(shown)) == 3)
        await shown.press("slash")
        await shown.type("sta")
        await shown.until_shown("state:failed")
        await shown.press("tab", "enter")
        await shown.until(lambda: names(shown) == ["mnist-big"])


def typed_line(shown: Shown) -> str:
    """Return what stands in the line that is typed into."""
    focused = shown.app.focused
    return focused.value if isinstance(focused, Input) else ""


COMPLETED = (
    ("na", ["name:"]),
    ("sta", ["state:", "state:queued", "state:running"]),
    ("state:f", ["state:failed"]),
    ("loss<0.3 !sta", ["loss<0.3 !state:"]),
    ("(is:", ["(is:problem", "(is:open"]),
    ("backend:l", ["backend:local"]),
    ("tag:ba", ["tag:baseline"]),
    ("runner:p", ["runner:process"]),
    ("owner:a", ["owner:ada"]),
    ("accu", ["accuracy"]),
    ("Sub", ["submitted"]),
)
"""What is typed into the line of a filter, and what tab makes of it, one key after the other."""


@journey
async def test_tab_completes_the_last_term_of_a_filter_and_goes_on_through_what_fits(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-baseline")
        screen = shown.app.screen
        assert isinstance(screen, JobsScreen)
        for typed, offered in COMPLETED:
            await shown.press("slash")
            await shown.until(lambda: screen._filter_words and isinstance(shown.app.focused, Input))
            assert typed_line(shown) == ""
            await shown.type(typed)
            await shown.until(lambda: typed_line(shown) == typed)  # noqa: B023 - it is waited for here
            await shown.until_shown(
                typed[:-1] + offered[0][len(typed) - 1 :]
            )  # proposed behind what is typed
            for line in offered:
                await shown.press("tab")
                await shown.until(lambda: typed_line(shown) == line)  # noqa: B023
            await shown.press("escape")
            await shown.until(lambda: not isinstance(shown.app.focused, Input))
            await shown.until_shown("3 jobs")


@journey
async def test_tab_takes_a_line_that_was_typed_before_what_fits_its_last_term(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        shown.app.memory.add_to_history("filters", "state:failed gpus>0")
        await shown.press("slash", *"sta", "tab")
        await shown.until(lambda: typed_line(shown) == "state:failed gpus>0")
        await shown.press("tab")
        await shown.until(lambda: typed_line(shown) == "state:")
        await shown.press("left", "tab")
        assert typed_line(shown) == "state:"  # in the middle nothing is completed


@journey
async def test_a_term_that_can_be_completed_is_complained_of_when_it_is_entered(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("big state:")
        await shown.until_shown("filter: big state:queued")
        await shown.until(lambda: re.search(r"^filter: big state:queued *$", shown.text(), re.MULTILINE))
        await shown.press("enter")
        await shown.until_shown("at 5-10: state: has no value")
        await shown.type("failed")
        await shown.until(lambda: names(shown) == ["mnist-big"])
        await shown.until(lambda: re.search(r"^filter: big state:failed *$", shown.text(), re.MULTILINE))


@journey
async def test_nothing_is_proposed_where_no_term_is_begun(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        for typed in ("", "name:big "):
            await shown.type(typed)
            await shown.until(lambda: isinstance(shown.app.focused, Input))
            await shown.until(lambda: typed_line(shown) == typed)  # noqa: B023 - it is waited for here
            await shown.press("tab")
            assert typed_line(shown) == typed


@journey
async def test_tab_completes_a_command(home: Home) -> None:
    with Store.open(home) as store:
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("colon")
        await shown.type("so")
        await shown.until_shown(":sort")
        for line in ("sort ", "sort state", "sort name"):
            await shown.press("tab")
            await shown.until(lambda: typed_line(shown) == line)  # noqa: B023 - it is waited for here


@journey
async def test_a_wrong_filter_that_is_mended_has_no_complaint_beside_it(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("big /(/")
        await shown.until_shown("at 5-7", "the regular expression /(/ is wrong")
        await shown.press(*["backspace"] * 4)
        await shown.until(lambda: names(shown) == ["mnist-big"])
        await shown.until(lambda: re.search(r"^filter: big *$", shown.text(), re.MULTILINE))


@journey
async def test_a_filter_of_alternatives_is_one_chip_and_stays_apart_from_only_problems(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("mnist-big or state = done")
        await shown.press("enter")
        await shown.until(lambda: len(names(shown)) == 2)
        await shown.until_shown("mnist-big or state = done x")
        await shown.press("exclamation_mark")
        await shown.until(lambda: names(shown) == ["mnist-big"])


@journey
async def test_a_wrong_filter_says_where_and_why_and_keeps_what_is_shown(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("mnist /(/")
        await shown.until_shown("at 7-9", "the regular expression /(/ is wrong")
        assert len(names(shown)) == 3


@journey
async def test_a_filter_that_fits_nothing_says_so(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("slash")
        await shown.type("nothing")
        await shown.press("enter")
        await shown.until_shown("no job matches  nothing", "esc shows all")


@journey
async def test_a_filter_that_fits_nothing_leaves_no_job_in_the_preview(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("step 19 loss")
        await shown.press("slash")
        await shown.type("nothing")
        await shown.until_shown("no job matches: there is none to show")
        assert "step 19 loss" not in shown.text()
        await shown.press("escape")
        await shown.until_shown("step 19 loss")
        assert "there is none to show" not in shown.text()


@journey
async def test_what_is_typed_faster_than_the_line_opens_is_not_lost(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        prompt = shown.app.screen.query_one("#filter", Prompt)
        prompt.ask("filter")
        for key in "big":
            shown.app.post_message(Key(key, key))
        await shown.until(lambda: names(shown) == ["mnist-big"])
        assert shown.app.screen.query_one(JobTable).listing.sort == "submitted"


@journey
async def test_keys_that_are_typed_while_a_screen_opens_are_not_lost(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        for key, character in (("j", "j"), ("enter", "\r"), ("l", "l")):
            shown.app.post_message(Key(key, character))
        await shown.until_shown("2 logs", "RuntimeError", "end")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        for key, character in (("enter", "\r"), ("7", "7")):
            shown.app.post_message(Key(key, character))
        await shown.until_shown("History")


@journey
async def test_what_is_typed_before_the_job_that_was_asked_for_is_there_is_for_its_page(three: Home) -> None:
    app = FabricApp(three, job="mnist-big", clock=lambda: seeding.NOW_US, read_run_options=read_run_options)
    # Before the app begins to read: the page cannot be there yet.
    app.post_message(Key("7", "7"))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await Shown(app, pilot).until_shown("History")


@journey
async def test_only_problems(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("exclamation_mark")
        await shown.until(lambda: names(shown) == ["mnist-big"])
        await shown.press("exclamation_mark")
        await shown.until(lambda: len(names(shown)) == 3)


@journey
async def test_sorting_by_the_next_column_and_the_other_way_round(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("s", "s")  # by state, then by name
        await shown.until(lambda: names(shown) == ["mnist-baseline", "mnist-big", "mnist-wide"])
        await shown.press("S")
        await shown.until(lambda: names(shown) == ["mnist-wide", "mnist-big", "mnist-baseline"])


@journey
async def test_jobs_are_sorted_by_a_metric_whose_values_are_shown(three: Home) -> None:
    async with opened(three, (100, 24)) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("colon")
        await shown.type("sort accuracy asc")
        await shown.press("enter")
        await shown.until(lambda: names(shown) == ["mnist-baseline", "mnist-wide", "mnist-big"])
        await shown.until_shown("accuracy▲", "0.983", "0.99")
        await shown.press("S")
        await shown.until(
            lambda: names(shown) == ["mnist-wide", "mnist-baseline", "mnist-big"]
        )  # no value: last
        await shown.until_shown("accuracy▼")
        await shown.press("colon")
        await shown.type("sort nonsense")
        await shown.press("enter")
        await shown.until_shown("cannot sort by 'nonsense'")


@journey
async def test_jobs_are_sorted_by_a_number_that_they_report_with_their_metrics(home: Home) -> None:
    with Store.open(home) as store:
        for number, epoch in enumerate((2.0, 7.0, 4.0), start=1):
            row = seeding.go(store, seeding.add_job(store, number, f"job-{number}"), *seeding.RUN_UP)
            seeding.report(store, row, {"loss": [0.5]}, etimes={"epoch": [epoch]})
        seeding.remember_runs(store)
    async with opened(home, (100, 24)) as shown:
        await shown.until_shown("job-3")
        await shown.press("colon")
        await shown.type("sort epoch")
        await shown.press("enter")
        await shown.until(lambda: names(shown) == ["job-2", "job-3", "job-1"])


@journey
async def test_the_cursor_stays_on_its_job_when_a_filter_is_left(home: Home) -> None:
    with Store.open(home) as store:
        seeding.many_runs(store, 900)
        seeding.remember_runs(store)
    async with opened(home, (100, 24)) as shown:
        await shown.until_shown("sweep-00899")
        await shown.press("slash")
        await shown.type("name:sweep-0012")
        await shown.press("enter")
        await shown.until_shown("10 of 900")
        await shown.press("j", "j")
        table = shown.app.screen.query_one(JobTable)
        await shown.until(lambda: table.job is not None and table.job.name == "sweep-00127")

        await shown.press("escape")

        await shown.until_shown("900 jobs", "sweep-00128", "sweep-00126")
        assert table.job is not None and table.job.name == "sweep-00127"


@journey
async def test_a_click_on_a_heading_sorts(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big", "CPUs")  # what comes above the list moves it
        await shown.pilot.click(JobTable, offset=(16, 0))
        await shown.until(lambda: names(shown) == ["mnist-baseline", "mnist-big", "mnist-wide"])


@journey
async def test_a_new_job_shows_up_and_the_cursor_stays_on_its_own(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("j")
        with Store.open(three) as store:
            seeding.add_job(store, 9, "newcomer", age_seconds=1)
        await shown.until(lambda: names(shown)[0] == "newcomer")
        assert shown.app.screen.query_one(JobTable).job.name == "mnist-big"  # type: ignore[union-attr] # it has rows


@journey
async def test_a_change_of_state_is_seen(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("● 1 processing")
        with Store.open(three) as store:
            running = resolve(store, "mnist-wide")
            seeding.go(
                store, running, State.STORING, State.HALTED, reason=Reason("halted by ada"), exit_code=143
            )
        await shown.until_shown("■ halted", "halted by ada")


@pytest.fixture
def drawn_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of the table that are drawn, as they are drawn for real; 0 is the heading."""
    rows: list[int] = []
    draw = JobTable.render_line

    def noting(table: JobTable, y: int) -> Strip:
        rows.append(y)
        return draw(table, y)

    monkeypatch.setattr(JobTable, "render_line", noting)
    return rows


@pytest.fixture
def one_running_among_ended(home: Home) -> Home:
    """Eight jobs that ended in the first seconds of their third day, and one that began five seconds ago."""
    with Store.open(home) as store:
        for number in range(8):
            job = seeding.add_job(store, number, f"ended-{number}", age_seconds=2 * 86_400 + 60)
            seeding.go(store, job, *seeding.RUN_UP, State.STORING, State.COMPLETED, exit_code=0)
        seeding.go(store, seeding.add_job(store, 8, "running", age_seconds=5), *seeding.RUN_UP)
        seeding.remember_runs(store)
    return home


@journey
async def test_a_second_that_passes_draws_only_the_rows_whose_text_it_changes(
    one_running_among_ended: Home, drawn_rows: list[int]
) -> None:
    passed = [0.0]
    clock = lambda: seeding.NOW_US + round(passed[0] * 1e6)  # noqa: E731 - it is one
    async with opened(one_running_among_ended, clock=clock) as shown:
        table = shown.app.screen.query_one(JobTable)
        await shown.until(lambda: re.search(r"ended-0.* 2d", shown.text()))
        y = 1 + names(shown).index("running")
        await shown.press("G" if y == 1 else "g")
        for seconds in (7.0, 8.0):
            await shown.pilot.pause(0.3)
            drawn_rows.clear()
            passed[0] = seconds
            await shown.until(lambda: re.search(rf"running.* {seconds + 5:.0f}s", shown.text()))  # noqa: B023
            assert set(drawn_rows) == {y}, table.scroll_offset
        passed[0] = 86_400.0
        await shown.until(lambda: len(re.findall(r"ended-\d.* 3d", shown.text())) == 8)


@journey
async def test_the_cursor_draws_the_row_that_it_leaves_and_the_one_that_it_comes_to(
    one_running_among_ended: Home, drawn_rows: list[int]
) -> None:
    async with opened(one_running_among_ended) as shown:
        await shown.until_shown("ended-0", "9 jobs")
        await shown.pilot.pause(0.3)
        drawn_rows.clear()
        await shown.press("j")
        await shown.until(lambda: drawn_rows)
        await shown.pilot.pause(0.1)
        assert set(drawn_rows) == {1, 2}


@journey
async def test_pause_holds_the_view_still(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("p")
        await shown.until_shown("paused")
        with Store.open(three) as store:
            seeding.add_job(store, 9, "newcomer", age_seconds=1)
        await shown.pilot.pause(0.3)
        assert "newcomer" not in names(shown)
        await shown.press("p")
        await shown.until(lambda: "newcomer" in names(shown))


@journey
async def test_what_is_opened_while_the_view_is_paused_is_shown(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("p")
        await shown.until_shown("paused")
        await shown.press("j", "enter")
        await shown.until_shown("paused", "use a smaller batch")
        await shown.press("l")
        await shown.until_shown("paused", "RuntimeError: CUDA out of memory")


@journey
async def test_a_tick_that_comes_while_the_app_closes_is_passed_over(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
    assert not shown.app.screen_stack

    shown.app._tick()


@journey
async def test_ten_thousand_jobs_are_paged(home: Home) -> None:
    with Store.open(home) as store:
        seeding.many_runs(store, 10_000)
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("10,000 jobs", "sweep-09999")
        await shown.press("G")
        await shown.until_shown("sweep-00000")
        assert len(names(shown)) <= 500
        for _ in range(12):
            await shown.press("ctrl+u")
        await shown.until_shown("sweep-001")
        await shown.press("g")
        await shown.until_shown("sweep-09999")


@journey
async def test_halt_asks_first_and_writes_a_request(three: Home, no_controller: list[Home]) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("x")
        await shown.until_shown("Halt mnist-wide?", "it can be resumed")
        await shown.press("enter")  # the harmless answer has the focus
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        await shown.press("x")
        await shown.until_shown("Halt mnist-wide?")
        await shown.press("y")
        await shown.until_shown("mnist-wide: halt requested")
    with Store.open(three) as store:
        row = resolve(store, "mnist-wide")
        asked = requests.requests(store, row.id)

    assert [(one.kind, one.origin) for one in asked] == [("halt", "tui")]
    assert no_controller == [three]


@journey
async def test_kill_of_several_wants_a_name_to_be_typed(three: Home, no_controller: list[Home]) -> None:
    with Store.open(three) as store:
        seeding.go(store, seeding.add_job(store, 7, "second"), *seeding.RUN_UP)
    async with opened(three) as shown:
        await shown.until_shown("second")
        await shown.press("space", "space", "X")
        await shown.until_shown("Kill 2 jobs?", "Type second to confirm")
        await shown.type("wrong")
        await shown.press("enter")
        assert not isinstance(shown.app.screen, JobsScreen)
        await shown.press(*["backspace"] * 5)
        await shown.type("second")
        await shown.press("enter")
        await shown.until_shown("2 jobs: kill requested")
    with Store.open(three) as store:
        kinds = {row.name: [r.kind for r in requests.requests(store, row.id)] for row in list_jobs(store)}

    assert kinds == {"second": ["kill"], "mnist-wide": ["kill"], "mnist-big": [], "mnist-baseline": []}
    assert no_controller


@journey
async def test_resume_makes_sense_only_for_what_has_ended(three: Home, no_controller: list[Home]) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("u")
        await shown.until_shown("mnist-wide is not halted or failed")
        await shown.press("j", "u")
        await shown.until_shown("Resume mnist-big?")
        await shown.press("y")
        await shown.until_shown("mnist-big: resume requested")
    assert no_controller


@journey
async def test_jobs_are_tagged_and_found_by_their_tags(three: Home) -> None:
    async with opened(three, (200, 60)) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("space", "space", "t")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("best, again best")
        await shown.press("enter")
        await shown.until_shown("2 jobs: best again")
        await shown.press("escape", "slash")
        await shown.type("tag:best")
        await shown.press("enter")
        await shown.until(lambda: names(shown) == ["mnist-wide", "mnist-big"])
    with Store.open(three) as store:
        assert resolve(store, "mnist-big").tags == ("best", "again")


@journey
async def test_readonly_changes_nothing(three: Home) -> None:
    async with opened(three, readonly=True) as shown:
        await shown.until_shown("read-only", "mnist-wide")
        await shown.press("x")
        await shown.until_shown("read-only: the screens were")
        assert isinstance(shown.app.screen, JobsScreen)
        assert "x halt" not in shown.text()


@journey
async def test_names_and_reasons_with_markup_and_escapes_are_harmless(home: Home) -> None:
    evil = "[red]x[/red] \x1b[2J\x1b]0;t\x07 \u202eabc [@click=app.quit]y[/]"
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, evil, tags=("[b]",))
        row = seeding.go(
            store, row, *seeding.RUN_UP, State.FAILED, reason=Reason(evil, "C201", evil), exit_code=1
        )
        seeding.report(store, row, {"[red]loss": [1.0, 2.0]}, group="")
        seeding.journal(home, row).write(evil.encode() + b"\n")
        seeding.remember_runs(store)
    async with opened(home, (200, 60)) as shown:
        await shown.until_shown("[red]x[/red]", "[red]loss")
        for key in ("enter", *"1234567"):
            await shown.press(key)
            await shown.until_shown("[red]x")
            assert "\x1b" not in shown.text() and "\u202e" not in shown.text()
            await shown.press("right_square_bracket") if key in "23" else None
        await shown.press("D")
        await shown.until_shown("Delete [red]x[/red]")


@journey
async def test_it_opens_again_where_it_was_left(three: Home) -> None:
    async with opened(three) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("s", "s", "T", "slash")
        await shown.type("mnist")
        await shown.press("enter")
        await shown.until_shown("mnist x")
    async with opened(three) as shown:
        await shown.until_shown("mnist x")
        await shown.until(lambda: names(shown) == ["mnist-baseline", "mnist-big", "mnist-wide"])
        assert shown.app.theme == "fabric-light"
        await shown.press("enter", "3")
        await shown.until_shown("train/accuracy")
    async with opened(three) as shown:
        await shown.until_shown("3 charts", "train/accuracy", "mnist-baseline")


@journey
async def test_garbage_in_what_was_remembered_is_harmless(three: Home) -> None:
    from screens.core.memory import MEMORY_KEY
    from workbench.store.queries.ui_state import set_state

    with Store.open(three) as store:
        set_state(
            store,
            MEMORY_KEY,
            {"screen": 7, "sort": "nope", "filter": ["x"], "theme": None, "descending": "no"},
        )
    async with opened(three) as shown:
        await shown.until_shown("mnist-big", "3 jobs")


@journey
async def test_columns_are_chosen_and_stay_chosen(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big", "loss", "trend")
        await shown.press("C")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        shown.app.screen.query_one(Input).value = "name loss nonsense"
        await shown.press("enter")
        await shown.until_shown("unknown column 'nonsense'")
        # Else the next key is typed into the line that is about to close.
        await shown.until(lambda: not isinstance(shown.app.focused, Input))
        await shown.press("C")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        shown.app.screen.query_one(Input).value = "loss, name"
        await shown.press("enter")
        await shown.until(lambda: re.search(r"^ *loss +name", shown.text(), re.MULTILINE))
    async with opened(three, (120, 40)) as shown:
        await shown.until(lambda: re.search(r"^ *loss +name", shown.text(), re.MULTILINE))


@journey
async def test_a_log_opens_again_where_it_was_left(three: Home) -> None:
    from screens.logs.view import LogView

    async with opened(three, job="mnist-baseline") as shown:
        await shown.until_shown("1 overview")
        await shown.press("l")
        await shown.until_shown("epoch 59 loss")
        await shown.press("g", "j", "j")
    async with opened(three) as shown:
        await shown.until_shown("2 logs", "epoch 2 loss")
        view = shown.app.screen.query_one(LogView)
        await shown.until(lambda: not view.state.follow and view.state.cursor == 2)
