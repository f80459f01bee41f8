"""What holds a job back before any queue: jobs that it comes after, and a limit on how many go at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from workbench.controller.decide.scheduling import Verdict
from workbench.controller.loop.context import Board
from workbench.controller.loop.job_state import Tracked
from workbench.job import TERMINAL, State, nine
from workbench.spec import SWEEP_LABEL
from workbench.store.db.rows import JobRow
from workbench.store.jobs import job

ENDED: Final = ":ended"


class Gates:
    """Looks at the jobs that wait, oldest first, once for each look at the queues."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def hold(self, waiting: Sequence[Tracked]) -> list[Tracked]:
        """Give those that are held back their verdict; return the others, which may queue."""
        under_way: dict[str, int] = {}
        for tracked in self._board.jobs.values():
            if tracked.is_launched and (sweep := _sweep(tracked)):
                under_way[sweep] = under_way.get(sweep, 0) + 1
        free: list[Tracked] = []
        for tracked in sorted(waiting, key=lambda one: one.row.seq):
            verdict = self._behind_others(tracked) or self._over_the_limit(tracked, under_way)
            if verdict is None:
                free.append(tracked)
                if sweep := _sweep(tracked):
                    under_way[sweep] = under_way.get(sweep, 0) + 1
            else:
                tracked.verdict = verdict
        return free

    def _behind_others(self, tracked: Tracked) -> Verdict | None:
        for wanted in tracked.spec.after:
            job_id, _, mode = wanted.partition(":")
            known = self._board.jobs.get(job_id)
            row = known.row if known is not None else job(self._board.store, job_id)
            if verdict := _verdict(job_id, row, may_fail=f":{mode}" == ENDED):
                return verdict
        return None

    def _over_the_limit(self, tracked: Tracked, under_way: dict[str, int]) -> Verdict | None:
        most, sweep = tracked.spec.at_most, _sweep(tracked)
        if most is None or not sweep or under_way.get(sweep, 0) < most:
            return None
        return Verdict(False, f"waits: {most} of its sweep may run at once")


def _sweep(tracked: Tracked) -> str:
    return tracked.row.labels.get(SWEEP_LABEL, "")


def _verdict(job_id: str, row: JobRow | None, *, may_fail: bool) -> Verdict | None:
    """Say what a job that comes before means; None where it holds nobody back."""
    if row is None or row.deleted_us is not None:
        return None if may_fail else Verdict(False, never=f"it comes after {nine(job_id)}, which was deleted")
    who = f"{nine(row.id)} {row.name}"
    if row.state not in TERMINAL or row.next_try_us is not None or row.intent:
        return Verdict(False, f"waits for {who} to {'end' if may_fail else 'complete'}")
    if row.state is State.COMPLETED or may_fail:
        return None
    how = "was halted" if row.state is State.HALTED else "failed"
    why = f": {row.reason.text}" if row.reason.text else ""
    return Verdict(False, never=f"it comes after {who}, which {how}{why}")
