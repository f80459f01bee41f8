"""What a full disk does to jobs that somebody looks at: why output waits, and ends that cannot be recorded.

The store cannot say so, since nothing can be written there. The learners' own files and the controller can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workbench.clock import elapsed_seconds
from workbench.errors import NoSpaceLeft, TryAgain
from workbench.job import Reason, State, short_id
from workbench.store.db.rows import is_over

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.store.db.rows import JobRow

STALLED: Final = "S204"
MAKE_ROOM: Final = "make room (`fabric du`, `fabric prune`); everything continues by itself then"

SHORT_SECONDS: Final = 5.0
"""How long learners have stopped before nobody waits any longer for their end to be recorded."""

LONG_SECONDS: Final = 60.0
"""The same where nobody here can see whether they have."""

_LEARNERS: Final = 64
"""So many of a job's learners are looked at."""


def stall_of(home: Home, row: JobRow) -> str:
    """Return why a job on this machine waits, its output or its start; empty where it does not."""
    from workbench.learner.texts import clean

    if row.state is State.QUEUED or is_over(row):
        return ""
    stalls = (str(state.get("stall") or "") for state in _states(home, row) if state.get("phase") != "exited")
    return clean(next(filter(None, stalls), ""), 1000)


def with_stall(home: Home, row: JobRow) -> JobRow:
    """Return a job with the reason that it has by its learners' own files, which the store may not have."""
    stall = stall_of(home, row)
    return replace(row, reason=Reason(stall, STALLED, MAKE_ROOM)) if stall else row


def store_trouble(home: Home, rows: Iterable[JobRow], *, shows_open_search: bool = False) -> str:
    """Return why jobs, or a search, may not be as the store has them; empty where they are, or have ended."""
    from workbench.controller.client.connect import status

    if not shows_open_search and all(map(is_over, rows)):
        return ""
    found = status(home)
    why = found.trouble or found.untidy if found is not None else ""
    return f"{why}; what is shown may be old" if why else ""


class TroubleReport:
    """Reports what hinders jobs, or their being recorded, whenever that is something else."""

    def __init__(self, home: Home, report: Callable[[str], None] | None = None) -> None:
        self._home = home
        self._report = report
        self._reported = ""

    def check(self, rows: Sequence[JobRow], trouble: str) -> None:
        """Look at jobs that somebody waits for; ``trouble`` is what the controller says of the store."""
        self.find(rows, trouble)

    def find(self, rows: Sequence[JobRow], trouble: str) -> str:
        """Return what hinders them, after reporting it; empty where nothing does."""
        why = trouble or next(filter(None, (stall_of(self._home, row) for row in rows)), "")
        if why and why != self._reported and self._report is not None:
            self._report(why)
        self._reported = why
        return why


class UnrecordedEnd:
    """Notices that jobs which were asked to stop have done so, and that a full disk keeps it out of the store.

    ``name`` is what is waited for where that is not the jobs: a search, which may have none.
    """

    def __init__(self, home: Home, report: Callable[[str], None] | None = None, *, name: str = "") -> None:
        self._home = home
        self._name = name
        self._trouble = TroubleReport(home, report)
        self._since: float | None = None
        self._trouble_since: float | None = None

    def check(self, rows: Sequence[JobRow], trouble: str) -> None:
        """Look at jobs that somebody waits for; ``trouble`` is what the controller says of the store.

        Raises:
            NoSpaceLeft: they have stopped for a while, and nobody can tell when that is recorded.
            TryAgain: no controller has heard anything for a while.
        """
        from workbench.controller.client.connect import is_unheard

        now = elapsed_seconds()
        why = self._trouble.find(rows, trouble)
        # A controller that does nothing at all says nothing about the disk.
        unheard = bool(why) and is_unheard(self._home)
        have_stopped = bool(rows) and all(map(self._has_stopped, rows))
        self._since = _began(self._since, now, bool(why) and not unheard and have_stopped)
        self._trouble_since = _began(self._trouble_since, now, bool(why))
        for since, patience in ((self._since, SHORT_SECONDS), (self._trouble_since, LONG_SECONDS)):
            if since is not None and now >= since + patience:
                names = ", ".join(short_id(row.id) for row in rows) or self._name
                if unheard:
                    raise TryAgain(f"nobody sees to {names}: {why}", hint="what was asked for is recorded")
                raise NoSpaceLeft(f"what happens to {names} cannot be recorded: {why}", hint=MAKE_ROOM)

    def _has_stopped(self, row: JobRow) -> bool:
        if is_over(row):
            return True
        return row.target.type == "local" and all(map(_has_ended, _states(self._home, row)))


def check_every_second(
    check: Callable[[Sequence[JobRow], str], None],
) -> Callable[[Iterable[JobRow], str], None]:
    """Return a check that does its work once a second, however often it is called."""
    due = 0.0

    def seldom(rows: Iterable[JobRow], trouble: str) -> None:
        nonlocal due
        if (now := elapsed_seconds()) >= due:
            due = now + 1.0
            check(tuple(rows), trouble)

    return seldom


def _states(home: Home, row: JobRow) -> Iterator[dict[str, Any]]:
    from workbench.learner.journal.state import read, unwritten

    if row.target.type != "local":
        return
    attempt = home.job(row.id).attempt(row.attempt)
    for number in range(1, min(row.learners, _LEARNERS) + 1):
        try:
            folder = str(attempt.learner(number).path)
            yield read(folder) or ({"stall": stall} if (stall := unwritten(folder)) else {})
        except OSError:
            yield {}


def _has_ended(state: dict[str, Any]) -> bool:
    """Say whether a learner's command has ended, or never began."""
    ended = state.get("exit_code") is not None or state.get("signal") is not None
    return not state.get("phase") or state.get("phase") == "exited" or ended


def _began(since: float | None, now: float, holds: bool) -> float | None:
    """Return since when something holds."""
    if not holds:
        return None
    return now if since is None else since
