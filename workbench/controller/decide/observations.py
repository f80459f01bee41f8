"""Merges observations of learners into what is known; a learner never returns to an earlier phase. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from runners.interface import Followed, LearnerRef, LearnerStatus
from workbench.job import LearnerPhase, Reason
from workbench.learner.texts import NAME_LIMIT, clean, escaped
from workbench.metrics.columns import LATEST_US
from workbench.store.db.rows import LearnerRow

_TEXT_CHARACTERS: Final = 4000

LONGEST_BACKOFF_SECONDS: Final = 100.0
"""A longer time before the next attempt counts as this: no back-off is so long."""

_RANK: Final = {
    LearnerPhase.STARTING: 0,
    LearnerPhase.DOWNLOADING: 1,
    LearnerPhase.SETUP: 2,
    LearnerPhase.RUNNING: 3,
    LearnerPhase.STOPPING: 4,
    LearnerPhase.STORING: 5,
    LearnerPhase.LOST: 6,
    LearnerPhase.EXITED: 7,
}


def merge(before: Mapping[int, LearnerStatus], news: Iterable[LearnerStatus]) -> dict[int, LearnerStatus]:
    """Merge new statuses. Observations may arrive in any order, so an older one changes nothing.

    A learner that was considered lost and is observed again is no longer lost.
    """
    after = dict(before)
    for status in news:
        number = status.ref.learner
        known = after.get(number)
        if known is None or known.phase is LearnerPhase.LOST or _RANK[status.phase] >= _RANK[known.phase]:
            after[number] = status
    return after


def absent(known: Mapping[int, LearnerStatus], shown: Iterable[LearnerStatus], *, expected: int) -> set[int]:
    """Return the expected learners that a complete observation lacks and that are not known to be over."""
    there = {status.ref.learner for status in shown}
    over = {n for n, status in known.items() if status.phase in (LearnerPhase.EXITED, LearnerPhase.LOST)}
    return set(range(1, expected + 1)) - there - over


def harmless(status: LearnerStatus) -> LearnerStatus:
    """Return a status whose texts and numbers fit into rows: the learner may have written them itself."""
    reason = status.reason
    if reason is not None:
        reason = Reason(
            clean(reason.text, _TEXT_CHARACTERS),
            _word(reason.code),
            clean(reason.hint, _TEXT_CHARACTERS),
        )
    return replace(
        status,
        exit_code=_small(status.exit_code),
        signal=_small(status.signal),
        reason=reason,
        started_us=_time(status.started_us),
        ended_us=_time(status.ended_us),
        stopped=_word(str(status.stopped)),
        slots=tuple(_word(str(slot)) for slot in status.slots),
        node=_word(status.node),
        doing=clean(status.doing, _TEXT_CHARACTERS),
        followed_by=_followed_by(status),
    )


def _followed_by(status: LearnerStatus) -> Followed | None:
    """Return the next attempt that a learner which is over names, within the bounds of a back-off."""
    followed = status.followed_by
    if followed is None or status.phase not in (LearnerPhase.EXITED, LearnerPhase.LOST):
        return None
    begin_us = _time(followed.begin_us)
    if _small(followed.attempt) is None or begin_us is None:
        return None
    delay = followed.delay_seconds
    return Followed(followed.attempt, begin_us, min(delay, LONGEST_BACKOFF_SECONDS) if delay > 0 else 0.0)


def _word(text: str) -> str:
    return escaped(text)[:NAME_LIMIT]


def _small(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _time(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= LATEST_US else None


def lost(ref: LearnerRef, known: LearnerStatus | None) -> LearnerStatus:
    """Return the status of a learner that should be at the target and is not."""
    return LearnerStatus(
        ref,
        LearnerPhase.LOST,
        reason=Reason("the learner and its journal are gone from the backend", "S104"),
        started_us=known.started_us if known else None,
        slots=known.slots if known else (),
        node=known.node if known else "",
    )


def status_of(row: LearnerRow, home: str) -> LearnerStatus:
    """Return the last known status of a learner from its row."""
    return LearnerStatus(
        LearnerRef(home, row.job_id, row.attempt, row.learner),
        row.phase,
        exit_code=row.exit_code,
        signal=row.signal,
        reason=row.reason,
        started_us=row.started_us,
        ended_us=row.ended_us,
        decided=row.decided,
        stopped=row.stopped,
        slots=row.slots,
        node=row.node,
    )


def row_of(status: LearnerStatus) -> LearnerRow:
    """Return the row of a learner from its status; the offset of its records is left to ingestion."""
    return LearnerRow(
        job_id=status.ref.job_id,  # type: ignore[arg-type] # a reference names it as text
        attempt=status.ref.attempt,
        learner=status.ref.learner,
        phase=status.phase,
        exit_code=status.exit_code,
        signal=status.signal,
        reason=status.reason,
        started_us=status.started_us,
        ended_us=status.ended_us,
        decided=status.decided,
        stopped=status.stopped,
        node=status.node,
        slots=status.slots,
        records_offset=0,
    )
