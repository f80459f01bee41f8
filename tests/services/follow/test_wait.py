"""Waiting for jobs: what is read while others change them."""

from __future__ import annotations

from tests.cli.jobs import add_job
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.services.follow.wait import wait_until
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import step


def test_only_jobs_that_have_changed_are_read_again(store: Store, woken: list[Home]) -> None:
    """Each row has an own query at first, and none where nothing has happened to it since."""
    rows = [add_job(store, f"job-{number}", State.PROCESSING) for number in range(20)]
    other = add_job(store, "not-waited-for", State.PROCESSING)
    changes = [(rows[3], State.COMPLETED), (other, State.COMPLETED), (rows[7], State.FAILED)]
    seen: list[list[JobRow]] = []
    queries: list[str] = []

    def is_enough(now: list[JobRow]) -> bool:
        seen.append(now)
        if changes:
            changed, state = changes.pop(0)
            with Store.open(store.home) as elsewhere:
                step(elsewhere, changed.id, 1, State.STORING, Reason("x"))
                step(elsewhere, changed.id, 1, state, Reason("x"))
            queries.clear()
            return False
        return True

    store.connection.set_trace_callback(queries.append)
    found, in_time = wait_until(store, rows, is_enough)

    assert in_time
    assert [row.id for row in found] == [row.id for row in rows]
    assert [row.state for row in seen[1]].count(State.COMPLETED) == 1
    assert (found[3].state, found[7].state) == (State.COMPLETED, State.FAILED)
    assert len([query for query in queries if "FROM jobs" in query]) == 1


def test_a_deleted_job_is_given_as_its_tombstone(store: Store, woken: list[Home]) -> None:
    rows = [add_job(store, "digits", State.COMPLETED), add_job(store, "letters", State.COMPLETED)]

    def is_enough(now: list[JobRow]) -> bool:
        if now[0].deleted_us is None:
            with Store.open(store.home) as elsewhere:
                mark_deleted(elsewhere, rows[0].id, who="anna", origin="test")
        return now[0].deleted_us is not None

    found, _ = wait_until(store, rows, is_enough)

    assert found[0].id == rows[0].id
    assert found[1].deleted_us is None
