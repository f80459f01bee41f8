"""What the screens take for the end of a job: each once, however short it was open, and nothing that ended before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from screens.jobs.queries import OpenJobs, open_and_ended
from tests.screens import seeding
from workbench.job import State
from workbench.paths import Home
from workbench.store import jobs
from workbench.store.db.database import Store


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

    jobs.annotate(store, adopted.id, note="worth a look")
    assert names(look()) == ([], [])


def test_what_was_there_before_the_first_look_has_not_ended(store: Store) -> None:
    seeding.go(store, seeding.add_job(store, 1, "old", age_seconds=0), State.FAILED, exit_code=1)
    seeding.add_job(store, 2, "open")

    assert names(open_and_ended(lambda: seeding.NOW_US)(store)) == (["open"], [])


def test_an_end_in_the_middle_of_a_look_is_said_once(
    store: Store, look: Callable[[], OpenJobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = seeding.add_job(store, 1, "digits", age_seconds=0)
    assert names(look()) == (["digits"], [])
    revision = jobs.revision

    def ends_after_it_was_read(store: Store) -> int:
        monkeypatch.setattr(jobs, "revision", revision)
        found = revision(store)
        seeding.go(store, row, State.FAILED, exit_code=1)
        return found

    monkeypatch.setattr(jobs, "revision", ends_after_it_was_read)
    assert names(look()) == ([], ["digits"])
    assert names(look()) == ([], [])
