"""Waits until jobs have come to a state that a caller names, or until a backend cannot confirm what was requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds
from workbench.errors import BackendUnreachable, CannotWrite, FabricError, NotAllowed, TryAgain
from workbench.job import Intent, short_id
from workbench.services.follow.keeper import Keeper
from workbench.store.db.rows import is_over

if TYPE_CHECKING:
    from workbench.paths import Home
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
    stops: bool = False,
) -> tuple[list[JobRow], bool]:
    """Wait until a condition holds for the current rows of jobs; a controller is kept running meanwhile.

    ``check`` gets the rows now and then, with what keeps the controller from going on; it may raise. ``stops`` says
    that the jobs are being stopped, for which a controller that hangs is ended.

    Returns the rows at that time (a deleted job's is its tombstone), and False when the time ran out first.
    """
    from workbench.store.queries.jobs import changed_jobs, job, revision

    deadline = None if timeout_seconds is None else elapsed_seconds() + timeout_seconds
    version, known = store.data_version(), revision(store)
    # A change between the caller's read and this version would never be noticed below.
    current = [job(store, row.id) or row for row in rows]
    if condition(current):
        return current, True
    with Keeper(store.home, stops=stops) as keeper:
        while deadline is None or elapsed_seconds() < deadline:
            time.sleep(POLL_SECONDS)
            if check is not None:
                check(current, keeper.error)
            if (now := store.data_version()) == version:
                continue
            version = now
            # Thousands may be waited for, of which few change at a time.
            if changed := {row.id: row for row in changed_jobs(store, known)}:
                known = max(row.revision for row in changed.values())
                current = [changed.get(row.id, row) for row in current]
            if condition(current):
                return current, True
    return current, False


def wait_for_answers(store: Store, asked: Mapping[int, JobRow]) -> None:
    """Wait until the controller has accepted or refused requests, by their ids with the jobs that they concern.

    Raises:
        NoSpaceLeft: its answer cannot be recorded.
        TryAgain: it refused one; the message says why.
    """
    from workbench.services.follow.full_disk import UnrecordedEnd, check_every_second
    from workbench.store.queries.requests import request as current

    outcomes = dict.fromkeys(asked, "")

    def are_answered(_: object) -> bool:
        for request_id in [one for one, outcome in outcomes.items() if not outcome]:
            found = current(store, request_id)
            outcomes[request_id] = "done" if found is None else found.outcome
            if not outcomes[request_id]:
                return False
        return True

    check = check_every_second(UnrecordedEnd(store.home, store.note).check)
    wait_until(store, list(asked.values()), are_answered, check=check)
    refused = [
        f"{short_id(asked[request_id].id)}: {outcome}"
        for request_id, outcome in outcomes.items()
        if outcome != "done"
    ]
    if refused:
        raise TryAgain("\n".join(refused))


TROUBLE_SECONDS: Final = 5.0
"""How long a backend does not answer, or refuses, before nobody waits any longer for it to confirm a request."""

SILENCE_SECONDS: Final = 30.0
"""The same for a remote backend that reports nothing: to kill a job, or to cancel its start, takes moments."""

_STOPPED: Final = "is being "
"""The controller's reason of a job that is being stopped or deleted begins so."""

_ERRORS: Final[Mapping[str, type[FabricError]]] = {
    "S200": BackendUnreachable,
    "C103": NotAllowed,
    "S204": CannotWrite,  # no room, or a folder that is read-only
}
"""What keeps a backend from confirming a stop, by the code of the reason that says so."""
_STARTING: Final = ("QUEUED", "PENDING", "DOWNLOADING")


def request_check(
    home: Home,
    kind: str,
    *,
    warn: Callable[[str], None] | None = None,
    report: Callable[[str], None] | None = None,
    name: str = "",
) -> Callable[[Iterable[JobRow], str], None]:
    """Return the check for who waits until jobs are stopped or deleted; it looks once a second.

    Args:
        home: where the jobs are.
        kind: what was requested, for the error: ``halt``, ``kill``, ``deletion``.
        warn: gets what hinders the jobs, or their being recorded.
        report: gets why a backend does not confirm it.
        name: what is stopped where there may be no jobs of it.
    """
    from workbench.services.follow.full_disk import UnrecordedEnd, check_every_second

    unrecorded, unconfirmed = UnrecordedEnd(home, warn, name=name), UnconfirmedRequest(kind, report)

    def check(rows: Sequence[JobRow], trouble: str) -> None:
        unrecorded.check(rows, trouble)
        unconfirmed.check(rows)

    return check_every_second(check)


class UnconfirmedRequest:
    """Notices that jobs which were asked to stop are not confirmed to be over, since their backend does not answer.

    The request is recorded, and the controller has it done once the backend answers.
    """

    def __init__(self, kind: str, report: Callable[[str], None] | None = None) -> None:
        self._kind = kind
        self._report = report
        self._reported = ""
        self._since: dict[tuple[str, str], float] = {}

    def check(self, rows: Sequence[JobRow]) -> None:
        """Look at jobs that somebody waits for.

        Raises:
            BackendUnreachable: no backend of a job that is left has confirmed it for a while.
            NotAllowed: the right to stop or remove it is missing.
            CannotWrite: a backend has no room for the request, or is read-only.
        """
        left = [row for row in rows if row.deleted_us is None and _is_awaited(row)]
        now = elapsed_seconds()
        overdue = [why for row in left if (why := self._overdue(row, now)) is not None]
        if left and len(overdue) == len(left):
            raise self._error(left, overdue[0])

    def _overdue(self, row: JobRow, now: float) -> str | None:
        """Return why a job is not waited for any longer; None while it is."""
        reason = row.reason
        if not reason.text.startswith(_STOPPED):
            return None
        is_quick = row.intent is not Intent.HALT or row.state.value in _STARTING
        if reason.code in _ERRORS:
            if self._report is not None and reason.text != self._reported:
                self._reported = reason.text
                self._report(f"{short_id(row.id)} {reason.text}")
            patience = TROUBLE_SECONDS
        elif is_quick and row.target.type != "local":
            patience = SILENCE_SECONDS
        else:
            return None
        since = self._since.setdefault((row.id, reason.code), now)
        return reason.text if now >= since + patience else None

    def _error(self, rows: Sequence[JobRow], why: str) -> FabricError:
        names = ", ".join(short_id(row.id) for row in rows)
        backend = rows[0].target.backend
        message = f"the {self._kind} of {names} is recorded, and {backend} has not confirmed it: {why}"
        hint = f"it is done once that is possible; fabric show {short_id(rows[0].id)} shows whether it was"
        kind = _ERRORS.get(rows[0].reason.code, BackendUnreachable)
        return kind(message, hint=hint)


def _is_awaited(row: JobRow) -> bool:
    return row.intent is Intent.DELETE or (row.intent is not Intent.NONE and not is_over(row))
