"""Makes a home's database again from its job folders, while no controller runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from workbench.errors import TryAgain
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.controller.runtime.lock import ControllerLock
    from workbench.paths import Home

LOCK_SECONDS = 15.0
"""How long a controller may take to step down."""


@dataclass(frozen=True, slots=True)
class RebuiltDatabase:
    """What was restored."""

    jobs: int
    events: int
    deleted_jobs: int
    """Jobs of which only the tombstone is left."""
    open_jobs: int
    problems: tuple[str, ...]
    """What could not be restored, in sentences."""
    kept: str
    """Where the old database is; empty where there was none."""


def rebuild_database(home: Home) -> RebuiltDatabase:
    """Have the controller step down and make the database again; jobs go on meanwhile. The old file is kept.

    Raises:
        TryAgain: a controller does not step down.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.metrics import ingest
    from workbench.store.db.database import Store
    from workbench.store.db.home_folder import is_home
    from workbench.store.db.identity import make_home
    from workbench.store.queries.jobs import open_jobs
    from workbench.store.updates.rebuild import rebuild

    make_home(home)
    lock = take_controller_lock(home)
    try:
        report = rebuild(home, ingest=ingest)
    finally:
        lock.release()
    with Store.open(home) as store:
        waiting = len(open_jobs(store))
    if waiting and is_home(home):
        ensure_controller(home)
    return RebuiltDatabase(
        jobs=report.jobs,
        events=report.events,
        deleted_jobs=report.tombstones,
        open_jobs=waiting,
        problems=tuple(report.problems),
        kept=report.kept or "",
    )


def take_controller_lock(home: Home) -> ControllerLock:
    """Have the controller step down, and keep every other from starting."""
    from workbench.clock import elapsed_seconds
    from workbench.controller.client.connect import stop_controller
    from workbench.controller.runtime.lock import ControllerLock

    deadline = elapsed_seconds() + LOCK_SECONDS
    while (lock := ControllerLock.take(home)) is None:
        if elapsed_seconds() > deadline:
            raise TryAgain("the controller of this home does not step down", hint="fabric controller stop")
        stop_controller(home)
        time.sleep(0.05)
    return lock
