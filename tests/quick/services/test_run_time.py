"""How long a job ran: the sum of its attempts, the same in a row, a document, a filter, an order and SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stored_jobs import add_job
from workbench.formats import MICROSECONDS
from workbench.job import Intent, JobId, Reason, State
from workbench.paths import Home
from workbench.services.follow.job_text import ended_lines
from workbench.services.inspect.job_document import flat_documents, job_document
from workbench.services.inspect.job_times import run_seconds
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import JobList, window
from workbench.store.queries.jobs import job
from workbench.store.queries.sql_console import open_views
from workbench.store.queries.where import parse
from workbench.store.updates.jobs import new_attempt, step

BEGIN_US = 1_750_000_000_000_000


def at(seconds: float) -> int:
    return BEGIN_US + round(seconds * MICROSECONDS)


def run(
    store: Store, job_id: str, attempt: int, start: float, end: float | None, last: State = State.FAILED
) -> None:
    """Let an attempt's command run from one second to another; without an end it runs on."""
    step(store, job_id, attempt, State.PENDING, Reason(""), time_us=at(start - 2))
    step(store, job_id, attempt, State.DOWNLOADING, Reason(""), time_us=at(start - 1))
    step(store, job_id, attempt, State.PROCESSING, Reason(""), time_us=at(start), started_us=at(start))
    if end is not None:
        step(store, job_id, attempt, State.STORING, Reason(""), time_us=at(end))
        step(store, job_id, attempt, last, Reason(""), time_us=at(end + 1), ended_us=at(end), exit_code=1)


def read(store: Store, job_id: JobId) -> JobRow:
    row = job(store, job_id)
    assert row is not None
    return row


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def test_a_job_that_never_ran_has_no_time(store: Store) -> None:
    row = add_job(store)

    assert run_seconds(read(store, row.id), at(500)) is None
    assert names(store, "time>=0") == set()


def test_time_is_the_sum_of_the_attempts_and_what_waits_between_does_not_count(store: Store) -> None:
    row = add_job(store)
    run(store, row.id, 1, 10, 40)
    new_attempt(store, row.id, Reason("resumed"))
    waiting = read(store, row.id)
    assert waiting.started_us is None
    assert run_seconds(waiting, at(5_000)) == 30
    run(store, row.id, 2, 1_000, None)
    assert run_seconds(read(store, row.id), at(1_015)) == 45  # it adds up while it runs
    step(store, row.id, 2, State.STORING, Reason(""), time_us=at(1_050))
    step(store, row.id, 2, State.FAILED, Reason(""), time_us=at(1_060), ended_us=at(1_050))
    new_attempt(store, row.id, Reason("resumed"))
    run(store, row.id, 3, 2_000, 2_005, State.COMPLETED)

    ended = read(store, row.id)
    assert run_seconds(ended, at(9_999)) == 30 + 50 + 5
    assert "after 1 min 25 s" in ended_lines(ended, "out")[0]


def test_every_way_to_ask_has_the_same_time(store: Store, home: Home) -> None:
    resumed = add_job(store, "resumed")
    run(store, resumed.id, 1, 0, 100, State.HALTED)
    new_attempt(store, resumed.id, Reason("resumed"))
    run(store, resumed.id, 2, 500, 520, State.COMPLETED)
    once = add_job(store, "once")
    run(store, once.id, 1, 0, 60, State.COMPLETED)

    assert [job_document(read(store, one.id))["seconds"] for one in (resumed, once)] == [120, 60]
    assert [one["seconds"] for one in flat_documents(store, [read(store, resumed.id)])] == [120]
    assert names(store, "time>90s") == {"resumed"}
    assert names(store, "time<90s") == {"once"}
    listing = JobList(sort="time", descending=True)
    assert [row.name for row in window(store, listing, now_us=at(600)).rows] == ["resumed", "once"]
    with open_views(home) as views:
        found = list(views.rows(views.run("SELECT name, seconds FROM jobs ORDER BY name")))
        assert found == [("once", 60.0), ("resumed", 120.0)]


def names(store: Store, where: str) -> set[str]:
    return {row.name for row in window(store, JobList(where=parse(where)), now_us=at(600)).rows}


def test_an_attempt_that_waits_after_a_halt_keeps_the_time_it_had(store: Store) -> None:
    row = add_job(store)
    run(store, row.id, 1, 0, 8, State.HALTED)
    assert read(store, row.id).intent is Intent.NONE
    new_attempt(store, row.id, Reason("resumed"))
    step(store, row.id, 2, State.FAILED, Reason("never started"), time_us=at(50))

    assert run_seconds(read(store, row.id), at(60)) == 8
