"""A store with many jobs, for benchmarks: one real job, and copies of its rows."""

from __future__ import annotations

from tests.screens.seeding import add_job
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.updates.jobs import step


def seed_jobs(home: Home, count: int) -> None:
    """Fill a home's store with ``count`` jobs that ended, through the store's own functions."""
    store = Store.open(home)
    store.connection.execute("PRAGMA synchronous = OFF")
    try:
        with store.atomic():
            for number in range(count):
                row = add_job(store, number, f"job-{number}", age_seconds=float(count - number))
                for state in (State.PENDING, State.PROCESSING, State.STORING):
                    step(store, row.id, 1, state, Reason("on its way"))
                step(
                    store,
                    row.id,
                    1,
                    State.COMPLETED,
                    Reason("the command ended with 0"),
                    exit_code=0,
                    exit_by="job",
                )
    finally:
        store.close()
