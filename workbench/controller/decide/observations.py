"""Merges observations of learners into what is known; a learner never returns to an earlier phase. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from runners.interface import LearnerRef, LearnerStatus
from workbench.job import LearnerPhase, Reason
from workbench.learner.texts import clean, clean_name
from workbench.metrics.columns import LATEST_US
from workbench.store.db.rows import LearnerRow

_TEXT_CHARACTERS: Final = 4000

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
    for seen in news:
        number = seen.ref.learner
        known = after.get(number)
        if known is None or known.phase is LearnerPhase.LOST or _RANK[seen.phase] >= _RANK[known.phase]:
            after[number] = seen
    return after


def absent(known: Mapping[int, LearnerStatus], shown: Iterable[LearnerStatus], *, expected: int) -> set[int]:
    """Return the expected learners that a complete observation lacks and that are not known to be over."""
    there = {seen.ref.learner for seen in shown}
    over = {n for n, seen in known.items() if seen.phase in (LearnerPhase.EXITED, LearnerPhase.LOST)}
    return set(range(1, expected + 1)) - there - over


def harmless(seen: LearnerStatus) -> LearnerStatus:
    """Return how a learner was seen in texts and numbers that rows can hold: it may have written them itself."""
    reason = seen.reason
    if reason is not None:
        reason = Reason(
            clean(reason.text, _TEXT_CHARACTERS),
            clean_name(reason.code),
            clean(reason.hint, _TEXT_CHARACTERS),
        )
    return replace(
        seen,
        exit_code=_small(seen.exit_code),
        signal=_small(seen.signal),
        reason=reason,
        started_us=_time(seen.started_us),
        ended_us=_time(seen.ended_us),
        stopped=clean_name(str(seen.stopped)),
        slots=tuple(clean_name(str(slot)) for slot in seen.slots),
        node=clean_name(seen.node),
        doing=clean(seen.doing, _TEXT_CHARACTERS),
    )


def _small(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _time(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= LATEST_US else None


def lost(ref: LearnerRef, known: LearnerStatus | None) -> LearnerStatus:
    """Say of a learner that should be at the place and is not that it is lost."""
    return LearnerStatus(
        ref,
        LearnerPhase.LOST,
        reason=Reason("the learner and its journal are gone from the backend", "S104"),
        started_us=known.started_us if known else None,
        slots=known.slots if known else (),
        node=known.node if known else "",
    )


def seen_of(row: LearnerRow, home: str) -> LearnerStatus:
    """Turn the row of a learner into how it was last seen."""
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


def row_of(seen: LearnerStatus) -> LearnerRow:
    """Turn how a learner was seen into its row; the offset is ingestion's and not written from here."""
    return LearnerRow(
        job_id=seen.ref.job_id,  # type: ignore[arg-type] # a reference names it as text
        attempt=seen.ref.attempt,
        learner=seen.ref.learner,
        phase=seen.phase,
        exit_code=seen.exit_code,
        signal=seen.signal,
        reason=seen.reason,
        started_us=seen.started_us,
        ended_us=seen.ended_us,
        decided=seen.decided,
        stopped=seen.stopped,
        node=seen.node,
        slots=seen.slots,
        records_offset=0,
    )
