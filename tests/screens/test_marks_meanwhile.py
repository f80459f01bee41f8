"""Marked jobs while something else happens: keys before an answer is there, jobs that come, end, go or run again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from screens.base.dialogs import Confirm
from screens.jobs import table as job_table
from screens.jobs.job_screen import JobScreen
from screens.jobs.table import JobTable
from screens.jobs.table_screen import JobsScreen
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, journey, opened
from tests.support.waiting import LIMIT_SECONDS
from workbench.errors import UnknownName
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.services.control.requests import request
from workbench.store.db.database import Store
from workbench.store.queries import requests
from workbench.store.queries.jobs import job as stored_job
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.resolve import resolve
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import new_attempt, step


@pytest.fixture(autouse=True)
def no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are written for real, but no controller acts on them."""
    instead_of_controller(monkeypatch, lambda home: None)


@pytest.fixture
def year(home: Home) -> Home:
    """A home with 1,000 jobs that have ended, of which the list loads some, and two below that wait."""
    with Store.open(home) as store:
        seeding.many_runs(store, 1000)
        seeding.add_job(store, 2001, "lower")
        seeding.add_job(store, 2002, "low")  # made after the others, but these two are listed below them
        seeding.remember_runs(store)
    return home


@pytest.fixture
def swept(home: Home) -> Home:
    """A home with a job, a sweep of three that wait, and a newer job."""
    with Store.open(home) as store:
        seeding.add_job(store, 1, "before")
        for number in (1, 2, 3):
            seeding.add_job(store, 10 + number, f"trial-{number}", sweep="lr", params={"lr": number})
        seeding.add_job(store, 2, "after")
        seeding.remember_runs(store)
    return home


def screen(shown: Shown) -> JobsScreen:
    found = shown.app.screen_stack[1]
    assert isinstance(found, JobsScreen)
    return found


def table(shown: Shown) -> JobTable:
    return screen(shown).query_one(JobTable)


def names(shown: Shown) -> list[str]:
    window = table(shown).window
    return [row.name for row in window.rows] if window else []


def under_cursor(shown: Shown) -> str:
    job = table(shown).job
    return job.name if job else ""


def marked(shown: Shown) -> list[str]:
    return sorted(job.name for job in table(shown).marks.values())


def asked(home: Home) -> list[tuple[str, str]]:
    """Return all that was requested: what, and of which job."""
    with Store.open(home) as store:
        found = []
        for one in requests.pending_requests(store):
            row = stored_job(store, one.job_id)
            found.append((one.kind, row.name if row else one.job_id))
    return sorted(found)


def change(home: Home, do: Callable[[Store], object]) -> None:
    """Change the store, as another client or the controller does."""
    with Store.open(home) as store:
        do(store)


def forget(home: Home, *named: str) -> None:
    """Delete jobs that wait."""
    with Store.open(home) as store:
        for name in named:
            row = resolve(store, name)
            step(store, row.id, row.attempt, State.HALTED, Reason("no longer needed"))
            mark_deleted(store, row.id)


@contextmanager
def held_back(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Hold back what the list reads in the background until the event is set."""
    read = getattr(job_table, name)
    go_on, begun = threading.Event(), threading.Event()

    def late(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(LIMIT_SECONDS)
        return read(*arguments)

    monkeypatch.setattr(job_table, name, late)
    try:
        yield go_on
    finally:
        go_on.set()


async def mark_two_far_away(shown: Shown) -> None:
    """Mark the last two jobs, and go to the first one: the marked ones are not at hand there."""
    await shown.until_shown("sweep-00999")
    await shown.press("G")
    await shown.until_shown("lower")
    await shown.press("space", "k", "space", "g")
    await shown.until(lambda: under_cursor(shown) == "sweep-00999" and not table(shown).marks_are_current)
    assert marked(shown) == ["low", "lower"]


@journey
async def test_a_range_is_that_of_the_list_in_view_when_another_order_is_on_its_way(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        for number, name in enumerate(("b", "d", "a", "c"), start=1):  # shown: c a d b
            seeding.add_job(store, number, name)
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until(lambda: names(shown) == ["c", "a", "d", "b"])
        await shown.press("space")  # c; the cursor is on a
        monkeypatch.setattr(shown.app.reader, "watch", lambda *_, **__: None)  # the new order does not come
        screen(shown)._sort("name", False)
        assert names(shown) == ["c", "a", "d", "b"]
        await shown.press("v")
        await shown.until(lambda: not table(shown).ranges_pending)

        assert marked(shown) == ["a", "c"]


@journey
async def test_marks_that_were_removed_while_they_were_read_do_not_come_back(
    year: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(year, (120, 40)) as shown:
        await mark_two_far_away(shown)
        with held_back(monkeypatch, "read_targets") as go_on:
            await shown.press("X", "ctrl+backslash")
            assert marked(shown) == []
            go_on.set()
            await shown.until_shown("Kill 2 jobs?")
            assert marked(shown) == []


@journey
async def test_a_job_that_is_marked_while_the_others_are_read_keeps_its_mark_and_is_not_in_the_question(
    year: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(year, (120, 40)) as shown:
        await mark_two_far_away(shown)
        with held_back(monkeypatch, "read_targets") as go_on:
            await shown.press("D", "space")
            go_on.set()
            await shown.until_shown("Delete 2 jobs?", "Type low")
            assert marked(shown) == ["low", "lower", "sweep-00999"]
            await shown.type("low")
            await shown.press("enter")
            await shown.until_shown("2 jobs: deletion requested")

            assert marked(shown) == ["sweep-00999"]
    assert asked(year) == [("delete", "low"), ("delete", "lower")]


@journey
async def test_what_was_asked_for_a_range_is_dropped_with_its_marks(
    five: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(five) as shown:
        await shown.until_shown("job-5")
        with held_back(monkeypatch, "read_range") as go_on:
            await shown.press("space", "j", "v", "X", "ctrl+backslash")
            go_on.set()
            await shown.until(lambda: not table(shown).ranges_pending)
        await shown.pilot.pause()

        assert not isinstance(shown.app.screen, Confirm)  # not for the job that the cursor stands on


@pytest.mark.parametrize("name", ["read_targets", "read_range"])
@journey
async def test_no_question_comes_over_another_screen(
    name: str, year: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(year, (120, 40)) as shown:
        await mark_two_far_away(shown)
        with held_back(monkeypatch, name) as go_on:
            if name == "read_range":
                await shown.press("v")
            await shown.press("x", "enter")
            await shown.until(lambda: isinstance(shown.app.screen, JobScreen))
            go_on.set()
            await shown.until(lambda: not table(shown).ranges_pending)
            await shown.until_shown("nothing is asked: another screen is in view")

        assert isinstance(shown.app.screen, JobScreen)


@journey
async def test_a_range_that_cannot_be_read_does_not_hold_up_what_is_asked_later(
    five: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise OSError("no disk")

    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        with monkeypatch.context() as patch:
            patch.setattr(job_table, "read_range", unreadable)
            await shown.press("space", "j", "v")
            await shown.until_shown("OSError: no disk")
        await shown.press("escape", "X")
        await shown.until_shown("Kill job-5?")


@journey
async def test_the_question_says_which_marked_jobs_the_filter_hides(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "space", "space", "slash")
        await shown.type("!job-5 !job-4")
        await shown.press("enter")
        await shown.until(lambda: names(shown) == ["job-3", "job-2", "job-1"])
        await shown.until_shown("3 marked")
        await shown.press("X")
        await shown.until_shown("Kill 3 jobs?", "2 of them are not in this list")
        await shown.type("job-5")
        await shown.press("enter")
        await shown.until_shown("3 jobs: kill requested")

    assert asked(five) == [("kill", "job-3"), ("kill", "job-4"), ("kill", "job-5")]


@journey
async def test_the_question_says_that_marked_jobs_were_deleted_meanwhile(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "space", "space")
        forget(five, "job-4")
        await shown.until(lambda: "job-4" not in names(shown))
        await shown.press("X")
        await shown.until_shown("Kill 2 jobs?", "1 marked job was deleted")


@journey
async def test_a_fold_is_marked_as_it_was_shown_without_a_job_that_came_since(
    swept: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("3 jobs")
        await shown.press("j")
        with held_back(monkeypatch, "read_jobs") as go_on:
            await shown.press("space")
            change(swept, lambda store: seeding.add_job(store, 14, "trial-4", sweep="lr"))
            await shown.until_shown("4 jobs")
            go_on.set()
        await shown.until(lambda: not table(shown).ranges_pending)

        assert marked(shown) == ["trial-1", "trial-2", "trial-3"]


@journey
async def test_a_fold_of_which_some_jobs_are_marked_shows_a_mark_of_its_own(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("3 jobs")
        await shown.press("j", "space")
        await shown.until_shown("3 marked")
        line = next(line for line in shown.text().splitlines() if "3 jobs  " in line or "trial" in line)
        assert line.startswith("▎"), line
        change(swept, lambda store: seeding.add_job(store, 14, "trial-4", sweep="lr"))
        await shown.until_shown("4 jobs")
        await shown.until(lambda: any(line.startswith("╎") for line in shown.text().splitlines()))
        assert marked(shown) == ["trial-1", "trial-2", "trial-3"]

        await shown.press("X")
        await shown.until_shown("Kill 3 jobs?")
        await shown.press(
            "escape", "g", "space"
        )  # the newest job stands for them: their line is the first now
        await shown.until(lambda: marked(shown) == ["trial-1", "trial-2", "trial-3", "trial-4"])


@journey
async def test_a_deletion_is_asked_anew_when_a_job_runs_that_did_not(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "space", "D")
        await shown.until_shown("Delete 2 jobs?", "job-4  queued")
        change(five, lambda store: seeding.go(store, resolve(store, "job-4"), *seeding.RUN_UP))
        await shown.type("job-5")
        await shown.press("enter")
        await shown.until_shown("job-4  processing", "1 of them runs", "changed while this was asked")
        assert asked(five) == []
        assert isinstance(shown.app.screen, Confirm)
        await shown.type("job-4")
        await shown.press("enter")
        await shown.until_shown("2 jobs: deletion requested")

    assert asked(five) == [("delete", "job-4"), ("delete", "job-5")]


@journey
async def test_a_kill_is_asked_anew_when_a_job_was_resumed_meanwhile(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("X")
        await shown.until_shown("Kill job-5?")

        def resume(store: Store) -> None:
            row = resolve(store, "job-5")
            row = seeding.go(store, row, *seeding.RUN_UP, State.STORING, State.FAILED)
            new_attempt(store, row.id, Reason("resumed"))

        change(five, resume)
        await shown.press("y")
        await shown.until_shown("Kill job-5?", "changed while this was asked")
        assert asked(five) == []
        await shown.press("y")
        await shown.until_shown("job-5: kill requested")

    assert asked(five) == [("kill", "job-5")]


@journey
async def test_jobs_that_end_while_a_kill_is_asked_are_left_out(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "space", "space", "X")
        await shown.until_shown("Kill 3 jobs?")
        forget(five, "job-3")

        def end(store: Store) -> None:
            row = resolve(store, "job-4")
            seeding.go(store, row, *seeding.RUN_UP, State.STORING, State.COMPLETED)

        change(five, end)
        await shown.type("job-5")
        await shown.press("enter")
        await shown.until_shown("job-5: kill requested")

    assert asked(five) == [("kill", "job-5")]


@journey
async def test_tags_are_given_to_all_marked_jobs_though_one_was_deleted_meanwhile(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "space", "space", "t")
        await shown.until_shown("tags of 3 jobs")
        forget(five, "job-5")
        await shown.type("good")
        await shown.press("enter")
        await shown.until_shown("2 jobs: good")

    with Store.open(five) as store:
        assert {row.name: row.tags for row in list_jobs(store)} == {
            "job-4": ("good",), "job-3": ("good",), "job-2": (), "job-1": (),
        }  # fmt: skip


@journey
async def test_what_concerns_one_job_concerns_that_under_the_cursor(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "space", "N")  # job-5 and job-4 are marked, the cursor is on job-3
        await shown.until_shown("note of job-3")
        await shown.type("seen")
        await shown.press("enter")
        await shown.until_shown("job-3: seen")
        await shown.press("colon")
        await shown.type("logs")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, JobScreen))
        await shown.until_shown("job-3")

    with Store.open(five) as store:
        assert [row.note for row in list_jobs(store)] == ["", "", "seen", "", ""]


@journey
async def test_a_command_line_with_marks_acts_on_the_marked_jobs(five: Home) -> None:
    async with opened(five, (120, 40)) as shown:
        await shown.until_shown("job-5")
        await shown.press("space", "j", "space", "colon")
        await shown.type("job.kill")
        await shown.press("enter")
        await shown.until_shown("Kill 2 jobs?", "job-5  queued", "job-3  queued")


@journey
async def test_the_ids_of_a_folds_jobs_are_copied(swept: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    async with opened(swept, (120, 40)) as shown:
        monkeypatch.setattr(shown.app, "copy_to_clipboard", copied.append)
        await shown.until_shown("3 jobs")
        await shown.press("j", "y")
        await shown.until_shown("Copy")
        await shown.press("y")
        await shown.until(lambda: copied)

    assert copied == ["trial-3\ntrial-2\ntrial-1"]


@journey
async def test_a_range_ends_at_the_cursor_though_its_row_is_still_on_its_way(
    year: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(year, (120, 40)) as shown:
        await shown.until_shown("sweep-00999")
        with monkeypatch.context() as patch:
            patch.setattr(shown.app.reader, "watch", lambda *_, **__: None)  # the last rows do not come
            await shown.press("space", "G")
            assert table(shown).job is None
            await shown.press("v", "D")
            await shown.until_shown("Delete 1,002 jobs?")
        assert len(table(shown).marks) == 1002


def test_requests_reach_the_other_jobs_where_one_is_deleted_meanwhile(five: Home) -> None:
    with Store.open(five) as store:
        rows = list_jobs(store)
    forget(five, "job-4")

    with Store.open(five) as store, pytest.raises(UnknownName, match=rows[1].id):
        request(store, rows, "kill", origin="tui")

    assert asked(five) == [("kill", f"job-{number}") for number in (1, 2, 3, 5)]
