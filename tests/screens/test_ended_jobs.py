"""What the screens take for the end of a job: each once, however short it was open, and nothing that ended before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count, islice

import pytest
from textual.widget import Widget
from textual.widgets._toast import Toast

from screens.jobs.queries import OpenJobs, open_and_ended
from screens.workers.reader import QueryAnswer
from tests.screens import seeding
from tests.screens.support import journey, opened
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries import jobs as job_queries
from workbench.store.updates.jobs import annotate


@pytest.fixture(autouse=True)
def nothing_of_other_tests() -> None:
    """Leave what other tests of this process have in memory out of what is counted again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as store:
        yield store


@pytest.fixture
def look(store: Store) -> Callable[[], OpenJobs]:
    query = open_and_ended(lambda: seeding.NOW_US)
    query(store)
    return lambda: query(store)


def names(found: OpenJobs) -> tuple[list[str], list[str]]:
    return [row.name for row in found.open], [row.name for row in found.ended]


def test_a_job_that_was_open_at_the_last_look_has_ended_once(
    store: Store, look: Callable[[], OpenJobs]
) -> None:
    row = seeding.add_job(store, 1, "digits")
    assert names(look()) == (["digits"], [])
    seeding.go(store, row, State.FAILED, exit_code=1)

    assert names(look()) == ([], ["digits"])
    assert names(look()) == ([], [])


def test_a_job_that_came_and_ended_between_two_looks_has_ended_once(
    store: Store, look: Callable[[], OpenJobs]
) -> None:
    seeding.go(store, seeding.add_job(store, 1, "quick", age_seconds=0), State.FAILED, exit_code=1)

    assert names(look()) == ([], ["quick"])
    assert names(look()) == ([], [])


def test_what_ended_before_the_last_look_is_no_news_when_it_comes_or_changes(
    store: Store, look: Callable[[], OpenJobs]
) -> None:
    adopted = seeding.go(store, seeding.add_job(store, 1, "adopted"), State.FAILED, exit_code=1)
    assert names(look()) == ([], [])

    annotate(store, adopted.id, note="worth a look")
    assert names(look()) == ([], [])


def test_what_was_there_before_the_first_look_has_not_ended(store: Store) -> None:
    seeding.go(store, seeding.add_job(store, 1, "old", age_seconds=0), State.FAILED, exit_code=1)
    seeding.add_job(store, 2, "open")

    assert names(open_and_ended(lambda: seeding.NOW_US)(store)) == (["open"], [])


def test_an_end_in_the_middle_of_a_look_is_reported_once(
    store: Store, look: Callable[[], OpenJobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = seeding.add_job(store, 1, "digits", age_seconds=0)
    assert names(look()) == (["digits"], [])
    revision = job_queries.revision

    def ends_after_it_was_read(store: Store) -> int:
        monkeypatch.setattr(job_queries, "revision", revision)
        found = revision(store)
        seeding.go(store, row, State.FAILED, exit_code=1)
        return found

    monkeypatch.setattr(job_queries, "revision", ends_after_it_was_read)
    assert names(look()) == ([], ["digits"])
    assert names(look()) == ([], [])


@journey
async def test_messages_about_jobs_that_end_one_after_the_other_are_one_and_leave_nothing_behind(
    home: Home, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.app.app.FabricApp.NOTIFICATION_TIMEOUT", 60)  # a busy machine may look late
    rows = seeding.three_runs(store)
    seeding.remember_runs(store)

    def widgets() -> int:
        gc.collect()
        return sum(isinstance(each, Widget) for each in gc.get_objects())

    async with opened(home) as shown:
        await shown.until_shown("mnist-big")

        async def end(times: int) -> None:
            for number in range(times):
                shown.app.on_query_answer(QueryAnswer("open", OpenJobs((), (rows[number % 3],))))
                await shown.pilot.pause()
            await shown.until(lambda: len(shown.app.screen.query("ToastHolder")) == 1)

        await end(3)
        before = widgets()
        await end(20)
        await shown.until(lambda: widgets() <= before + 4)  # 2 for each message where they stay
        await shown.until_shown("more jobs have ended")


@journey
async def test_messages_that_were_in_sight_together_are_forgotten_when_they_are_gone(home: Home) -> None:
    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, Toast) for each in gc.get_objects())

    async with opened(home, (80, 60)) as shown:
        for number in range(10):
            shown.app.notify(f"message {number}.", timeout=3)
        await shown.until(lambda: kept() >= 10)
        await shown.until(lambda: not shown.app.screen.query("ToastHolder"))
        await shown.until(lambda: kept() == 0)


@journey
async def test_jobs_that_pass_through_the_list_leave_nothing_in_memory(home: Home, store: Store) -> None:
    """A screen that is left open for weeks sees tens of thousands of them."""
    numbers = count(1)

    def kept() -> tuple[int, int]:
        """Return how many rows of jobs and how many widgets are in memory."""
        gc.collect()
        found = gc.get_objects()
        return sum(isinstance(each, JobRow) for each in found), sum(
            isinstance(each, Widget) for each in found
        )

    async with opened(home) as shown:

        async def let_pass(jobs: int) -> tuple[int, int]:
            """Submit so many jobs and let each end while it is listed; return how many rows and widgets are kept."""
            for number in islice(numbers, jobs):
                row = seeding.add_job(store, number, f"passing-{number}", age_seconds=1_000_000 - number)
                seeding.go(store, row, *seeding.RUN_UP, State.STORING, State.COMPLETED, exit_code=0)
                if number % 20 == 0:
                    await shown.until_shown(f"{number} jobs")
                    while f"passing-{number} " not in shown.text():
                        await shown.press("g")
            await shown.until(lambda: len(shown.app.screen.query("ToastHolder")) <= 1)
            return kept()

        before = await let_pass(240)  # what is kept of a list for its window, and of drawing, fills
        await let_pass(100)

        def grown() -> tuple[int, int]:
            """Return how many rows and widgets are kept beyond those before."""
            rows, widgets = (late - early for early, late in zip(before, kept(), strict=True))
            return rows, widgets

        # Messages about ended jobs are taken out of the tree a while after they went out of sight.
        await shown.until(lambda: grown()[0] < 40 and grown()[1] < 16)
