"""``fabric doctor --rebuild``: makes the database anew while no controller runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from workbench.errors import TryAgain
from workbench.formats import count
from workbench.paths import Home, default_home
from workbench.terminal.console import confirm, narrate
from workbench.terminal.errors import warn

if TYPE_CHECKING:
    from workbench.controller.runtime.lock import ControllerLock
    from workbench.store.updates.rebuild import Report

LOCK_SECONDS = 15.0
"""How long a controller may take to step down."""


def rebuild_store(*, yes: bool, json: bool) -> int:
    """Ask, have the controller step down, rebuild, say what was found; jobs go on meanwhile.

    Raises:
        TryAgain: a controller does not step down.
        UsageError: nobody can be asked.
    """
    from workbench.controller.runtime.client import ensure_controller
    from workbench.metrics import ingest
    from workbench.store.db.database import Store
    from workbench.store.db.identity import make_home
    from workbench.store.jobs import open_jobs
    from workbench.store.updates.rebuild import rebuild

    home = Home(default_home())
    if home.database.exists() and not confirm(
        f"Make {home.database} anew from the job folders? The old file is kept beside it.", yes=yes
    ):
        narrate("nothing was changed")
        return 0
    make_home(home)
    lock = _take_controller_lock(home)
    try:
        report = rebuild(home, ingest=ingest)
    finally:
        lock.release()
    with Store.open(home) as store:
        waiting = len(open_jobs(store))
    if waiting:
        ensure_controller(home)
    _tell(report, waiting, json=json)
    return 0


def _take_controller_lock(home: Home) -> ControllerLock:
    """Have the controller step down, and keep every other from starting."""
    from workbench.clock import elapsed_seconds
    from workbench.controller.runtime.client import stop_controller
    from workbench.controller.runtime.lock import ControllerLock

    deadline = elapsed_seconds() + LOCK_SECONDS
    while (lock := ControllerLock.take(home)) is None:
        if elapsed_seconds() > deadline:
            raise TryAgain("the controller of this home does not step down", hint="fabric controller status")
        stop_controller(home)
        time.sleep(0.05)
    return lock


def _tell(report: Report, waiting: int, *, json: bool) -> None:
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.rebuild/1",
                "jobs": report.jobs,
                "events": report.events,
                "deleted": report.tombstones,
                "open_jobs": waiting,
                "problems": list(report.problems),
                "old_database": report.kept or None,
            }
        )
        return
    for text in report.problems:
        warn(text)
    narrate(
        f"restored {count(report.jobs, 'job')} from {count(report.events, 'event')}; {waiting} still open"
    )
    if report.kept:
        narrate(f"the old database is kept: {report.kept}")
