"""Waits until jobs have come to a state that a caller names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds
from workbench.services.follow.keeper import Keeper

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

POLL_SECONDS: Final = 0.05


def wait_until(
    store: Store,
    rows: Sequence[JobRow],
    condition: Callable[[list[JobRow]], bool],
    *,
    timeout_seconds: float | None = None,
    check: Callable[[Sequence[JobRow], str], None] | None = None,
) -> tuple[list[JobRow], bool]:
    """Wait until a condition holds for the current rows of jobs; a controller is kept running meanwhile.

    ``check`` gets the rows now and then, with what keeps the controller from going on; it may raise.

    Returns the rows at that time (a deleted job's is its tombstone), and False when the time ran out first.
    """
    from workbench.store.jobs import job

    deadline = None if timeout_seconds is None else elapsed_seconds() + timeout_seconds
    version = store.data_version()
    # A change between the caller's read and this version would never be noticed below.
    current = [job(store, row.id) or row for row in rows]
    if condition(current):
        return current, True
    with Keeper(store.home) as keeper:
        while deadline is None or elapsed_seconds() < deadline:
            time.sleep(POLL_SECONDS)
            if check is not None:
                check(current, keeper.error)
            if (now := store.data_version()) == version:
                continue
            version = now
            current = [job(store, row.id) or row for row in current]
            if condition(current):
                return current, True
    return current, False
