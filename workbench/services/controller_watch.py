"""Whether a controller looks after the open jobs, since when none has, and the start of one for who only reads.

A command that only reads must be as fast as if there were no controller: it reads the lock file, and starts a
controller after its answer is printed, without waiting for it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from workbench.clock import now_us

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.store.db.database import Store

OLD_AFTER_US: Final = 30_000_000
"""A controller that has not said for so long that it looks after its jobs does not: it hangs, or the machine slept."""

MENTIONED_AFTER_US: Final = 10_000_000
"""What is not older is not worth a sentence."""

SWITCH: Final = "FABRIC_NO_CONTROLLER"
"""Set, it keeps commands that only read from starting a controller."""


def last_look_us(home: Home) -> int | None:
    """Return when a controller last looked after the jobs; None where one does now, or where that was never said."""
    held = _read_lock(home)
    return None if held is None or _is_attended(home, held) else held.looked_us


def is_unattended(store: Store) -> bool:
    """Say whether there are open jobs or schedules without a controller, and one can be started for them here."""
    from workbench.store.db.home_folder import is_home
    from workbench.store.queries.jobs import has_open_jobs, has_open_searches

    if not has_open_jobs(store) and not has_open_searches(store) and not _has_schedules(store.home):
        return False
    held = _read_lock(store.home)
    return (held is None or not _is_attended(store.home, held)) and is_home(store.home)


def _has_schedules(home: Home) -> bool:
    if not os.path.isdir(home.schedules):  # noqa: PTH112 - every command that reads asks
        return False
    from workbench.store.queries.schedules import has_active_schedules

    return has_active_schedules(home)


def stale_sentence(home: Home) -> str:
    """Say since when nobody has looked after the open jobs, and what is done about it; empty where that is not long."""
    from workbench.formats import MICROSECONDS, clock_time, duration

    looked_us, now = last_look_us(home), now_us()
    if looked_us is None or now - looked_us < MENTIONED_AFTER_US:
        return ""
    since = f"as of {clock_time(looked_us, now_us=now)}, {duration((now - looked_us) / MICROSECONDS)} ago"
    if hanging := hang_sentence(home):
        return f"{since}: {hanging}"
    held = _read_lock(home)
    why = f"; the last one ended: {held.ended}" if held is not None and held.ended else ""
    start = "; one is started now" if starts_controllers() else ""
    return f"{since}: no controller ran since{why}{start}"


def hang_sentence(home: Home) -> str:
    """Say that there is a controller that does not look after the open jobs; empty where it does, or there is none."""
    held = _read_lock(home)
    if held is None or not held.socket or held.host != os.uname().nodename or not _is_alive(held):
        return ""
    if _is_stopped(held.pid):
        return f"controller {held.pid} is stopped; `fabric controller restart` ends it and starts another"
    return "" if _is_attended(home, held) else f"controller {held.pid} has not looked since"


def starts_controllers() -> bool:
    """Say whether commands that only read may start a controller."""
    return not os.environ.get(SWITCH)


def attend(home: Home) -> None:
    """Have a controller look after the jobs: wake the one that is there, or start one. It waits for neither.

    What goes wrong is left to commands that need the controller: they say so.
    """
    from workbench.controller.client.connect import nudge_or_start
    from workbench.errors import FabricError

    if not starts_controllers():
        return
    try:
        nudge_or_start(home)
    except (FabricError, OSError):
        return


class _Held(NamedTuple):
    """What the lock file says of its last holder; the controller's own modules would cost each command 2 ms."""

    pid: int
    host: str
    socket: str
    looked_us: int | None
    ended: str
    start_ticks: int
    boot_id: str


def _read_lock(home: Home) -> _Held | None:
    try:
        found = json.loads(home.controller_lock.read_bytes())
        looked_us = found.get("looked_us")
        return _Held(
            int(found["pid"]),
            str(found["host"]),
            str(found["socket"]),
            None if looked_us is None else int(looked_us),
            str(found.get("ended") or ""),
            int(found.get("start_ticks") or 0),
            str(found.get("boot_id") or ""),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_attended(home: Home, held: _Held) -> bool:
    from workbench.store.db.home_folder import is_home

    is_old = held.looked_us is not None and now_us() - held.looked_us > OLD_AFTER_US
    if is_old or not held.socket or not _is_alive(held):
        return False
    return not (held.host == os.uname().nodename and _is_stopped(held.pid)) and is_home(home)


def _is_alive(held: _Held) -> bool:
    """Say whether the process is there; of one on another machine only its heartbeat is known."""
    if held.host != os.uname().nodename:
        return True
    # Where the module is not there, or another thread is only just importing it, this process started none.
    if reap := getattr(sys.modules.get("workbench.controller.client.connect"), "reap", None):
        reap()
    try:
        os.kill(held.pid, 0)
    except OSError:
        return False  # it is gone, or its number was given to a process of somebody else
    return not held.start_ticks or _is_that_process(held)


def _is_that_process(held: _Held) -> bool:
    """Say whether a process is the one that wrote the lock, and no later one with its number."""
    from workbench.learner.platform import system

    # Elsewhere another program would have to be asked, and a heartbeat that is half a minute old says the same.
    if not system.LINUX:
        return True
    return system.start_ticks(held.pid) == held.start_ticks and system.boot_id() == held.boot_id


def _is_stopped(pid: int) -> bool:
    """Say whether a process of this machine is stopped (SIGSTOP, a debugger), so that it does nothing at all."""
    from workbench.learner.platform import system

    return system.LINUX and system.state_letter(pid) in ("T", "t")
