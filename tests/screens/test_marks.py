"""Marked jobs: those that were meant and no others, also where the list moves or is not loaded; what is asked first."""

from __future__ import annotations

import pytest

from screens.base.dialogs import Confirm
from screens.jobs.table import JobTable
from screens.jobs.table_screen import JobsScreen
from screens.workers.reader import QueryAnswer
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, journey, opened
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries import requests
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.resolve import resolve
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import step


@pytest.fixture
def no_controller(monkeypatch: pytest.MonkeyPatch) -> list[Home]:
    """Requests are written for real, but no controller acts on them."""
    woken: list[Home] = []
    instead_of_controller(monkeypatch, woken.append)
    return woken


@pytest.fixture
def year(home: Home) -> Home:
    """A home with 1,000 jobs, of which the list loads some."""
    with Store.open(home) as store:
        seeding.many_runs(store, 1000)
        seeding.remember_runs(store)
    return home


def table(shown: Shown) -> JobTable:
    return shown.app.screen_stack[1].query_one(JobTable)


def under_cursor(shown: Shown) -> str:
    job = table(shown).job
    return job.name if job else ""


def listed(shown: Shown) -> int:
    window = table(shown).window
    return window.total if window else 0


def marked(shown: Shown) -> list[str]:
    """Return the names of the marked jobs, sorted."""
    return sorted(job.name for job in table(shown).marks.values())


def kinds(home: Home, name: str) -> list[str]:
    """Return what was requested for a job."""
    with Store.open(home) as store:
        return [one.kind for one in requests.requests(store, resolve(store, name).id)]


@journey
async def test_a_range_begins_at_the_job_that_was_marked_though_the_list_has_moved(five: Home) -> None:
    async with opened(five) as shown:
        await shown.until_shown("job-5", "job-1")
        await shown.press("j", "space")  # job-4, on the second line
        with Store.open(five) as store:
            for number in (6, 7):
                seeding.add_job(store, number, f"job-{number}")
        await shown.until_shown("job-7")
        await shown.press("v")  # the cursor is on job-3
        await shown.until(lambda: not table(shown).ranges_pending)

        assert marked(shown) == ["job-3", "job-4"]


@journey
async def test_a_range_is_the_whole_one_and_not_what_is_loaded(year: Home) -> None:
    async with opened(year, (120, 40)) as shown:
        await shown.until_shown("sweep-00999")
        await shown.press("space", "G")
        await shown.until(lambda: under_cursor(shown) == "sweep-00000")
        await shown.press("v")
        await shown.until_shown("1,000 marked")

        await shown.press("D")

        await shown.until_shown(
            "Delete 1,000 jobs?", "sweep-00999  completed", "and 992 more", "Type sweep-00999"
        )
        assert "run" not in shown.text().partition("Delete 1,000 jobs?")[2].partition("Logs, metrics")[0]


@journey
async def test_a_range_that_goes_up_ends_where_it_began(five: Home) -> None:
    async with opened(five) as shown:
        await shown.until_shown("job-5")
        await shown.press("G", "space", "k", "k", "v")
        await shown.until_shown("3 marked")

        assert marked(shown) == ["job-1", "job-2", "job-3"]


@journey
async def test_a_range_whose_first_job_has_left_the_list_marks_nothing_and_says_so(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "slash")
        await shown.type("!job-5")
        await shown.press("enter")
        await shown.until(lambda: listed(shown) == 4)
        await shown.press("G", "v")
        await shown.until_shown("job-5 is no longer in this list: no range was marked")

        assert marked(shown) == ["job-5"]

        await shown.press("v")  # it begins anew with the job under the cursor
        await shown.until(lambda: marked(shown) == ["job-1", "job-5"])


@journey
async def test_a_filter_that_is_entered_as_it_was_typed_leaves_the_cursor_where_it_went_meanwhile(
    five: Home,
) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("slash")
        await shown.type("!job-5")
        await shown.press("enter")
        await shown.until(lambda: listed(shown) == 4)
        await shown.press("G", "slash", "enter")
        with Store.open(five) as store:
            seeding.add_job(store, 6, "job-6")
        await shown.until_shown("job-6")  # what was asked before has been answered

        assert under_cursor(shown) == "job-1"


@pytest.mark.parametrize(
    ("left_out", "keys", "expected"),
    [("job-5", ("j", "j"), "job-3"), ("job-4", ("j",), "job-5")],
    ids=["its job is there", "its job is left out"],
)
@journey
async def test_a_list_that_comes_late_leaves_the_cursor_where_it_was_moved_meanwhile(
    five: Home, monkeypatch: pytest.MonkeyPatch, left_out: str, keys: tuple[str, ...], expected: str
) -> None:
    late: list[QueryAnswer] = []
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        table = shown.app.screen.query_one(JobTable)
        with monkeypatch.context() as patch:
            patch.setattr(JobTable, "on_query_answer", lambda _, answer: late.append(answer))
            await shown.press("slash")
            await shown.type(f"!{left_out}")
            await shown.press("enter", *keys)
            await shown.until(
                lambda: any(getattr(one.value, "listing", None) == table.listing for one in late)
            )
        for answer in late:
            table.on_query_answer(answer)
        await shown.until(lambda: listed(shown) == 4)

        assert under_cursor(shown) == expected


@journey
async def test_without_a_marked_job_the_one_under_the_cursor_is_marked(five: Home) -> None:
    async with opened(five) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "k", "space", "G", "v")  # job-5 is marked and unmarked again
        await shown.until_shown("1 marked")

        assert marked(shown) == ["job-1"]


@journey
async def test_what_is_asked_for_before_a_range_is_marked_waits_for_it(
    five: Home, no_controller: list[Home]
) -> None:
    async with opened(five) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "j", "j", "v", "X")
        await shown.until_shown("Kill 4 jobs?", "Type job-5 to confirm")
        await shown.type("job-5")
        await shown.press("enter")
        await shown.until_shown("4 jobs: kill requested")

    assert [kinds(five, f"job-{number}") for number in (1, 2, 5)] == [[], ["kill"], ["kill"]]
    assert no_controller


@journey
async def test_marks_that_were_removed_do_not_come_back_with_a_range(five: Home) -> None:
    async with opened(five) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "G", "v", "ctrl+backslash")
        await shown.until(lambda: not table(shown).ranges_pending)

        assert marked(shown) == []


@journey
async def test_marked_jobs_that_are_not_at_hand_are_read_again_before_one_is_asked(year: Home) -> None:
    with Store.open(year) as store:
        first, second = seeding.add_job(store, 2001, "first"), seeding.add_job(store, 2002, "second")
    async with opened(year, (120, 40)) as shown:
        await shown.until_shown("sweep-00999")
        await shown.press("G")  # made after the others, but below them
        await shown.until_shown("second", "first")
        await shown.press("space", "k", "space", "g")
        await shown.until(lambda: not table(shown).marks_are_current)
        with Store.open(year) as store:
            seeding.go(store, first, *seeding.RUN_UP)
            step(store, second.id, 1, State.HALTED, Reason("no longer needed"))
            mark_deleted(store, second.id)

        await shown.press("D")

        await shown.until_shown("Delete first?", "first  processing", "It runs: it is stopped first.")
        assert marked(shown) == ["first"]


@journey
async def test_a_deletion_says_which_jobs_run_and_names_these_first(
    five: Home, no_controller: list[Home]
) -> None:
    with Store.open(five) as store:
        seeding.go(store, resolve(store, "job-1"), *seeding.RUN_UP)
    async with opened(five) as shown:
        await shown.until_shown("processing")
        await shown.press("space", "G", "v")
        await shown.until_shown("5 marked")
        await shown.press("D")
        await shown.until_shown("Delete 5 jobs?", "1 of them runs: it is stopped first.", "Type job-1")
        lines = shown.text().partition("Delete 5 jobs?")[2]
        assert lines.index("job-1  processing") < lines.index("job-5  queued")
        assert isinstance(shown.app.screen, Confirm)
        await shown.type("job-1")
        await shown.press("enter")
        await shown.until_shown("5 jobs: deletion requested")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        assert marked(shown) == []

    assert [kinds(five, f"job-{number}") for number in range(1, 6)] == [["delete"]] * 5


@journey
async def test_too_many_marked_jobs_are_not_compared(year: Home) -> None:
    async with opened(year, (120, 40)) as shown:
        await shown.until_shown("sweep-00999")
        await shown.press("space", "G", "v")
        await shown.until_shown("1,000 marked")
        await shown.press("c")
        await shown.until_shown("1,000 jobs are marked; at most 50 can be compared")


@journey
async def test_requests_for_many_jobs_are_a_task_with_progress(home: Home, no_controller: list[Home]) -> None:
    with Store.open(home) as store:
        seeding.many_runs(store, 120)
        seeding.remember_runs(store)
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("sweep-00119")
        await shown.press("space", "G", "v")
        await shown.until_shown("120 marked")
        await shown.press("D")
        await shown.until_shown("Delete 120 jobs?")
        await shown.type("sweep-00119")
        await shown.press("enter")
        await shown.until_shown("120 jobs: deletion requested")
        assert [task.title for task in shown.app.background.tasks] == ["delete 120 jobs"]

    with Store.open(home) as store:
        asked = [(one.kind, one.job_id) for one in requests.pending_requests(store)]
        newest_first = [("delete", row.id) for row in list_jobs(store)]
    assert asked == newest_first and len(asked) == 120
