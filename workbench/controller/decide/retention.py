"""Decides which checkpoints stay once a job, or all trials of a search, have completed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from workbench.spec import CheckpointsAtEnd
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that is there."""

    job_id: str
    name: str
    """Below the job's folder for checkpoints."""
    order: int
    """A later one of its job has a larger number."""
    value: float | None
    """Of the metric; None where it has none."""


def kept_at_end(
    saved: Collection[SavedCheckpoint],
    rule: CheckpointsAtEnd,
    *,
    smaller_is_better: bool,
    going_on: Collection[str] = (),
) -> set[SavedCheckpoint]:
    """Return the checkpoints that stay; ``going_on`` are jobs that may go on, at the newest that they have."""
    sign = 1.0 if smaller_is_better else -1.0

    def best(found: Iterable[SavedCheckpoint], count: int) -> list[SavedCheckpoint]:
        rated = [(sign * each.value, -each.order, each) for each in found if each.value is not None]
        return [each for *_, each in sorted(rated, key=lambda one: one[:2])][:count]

    kept = set(best(saved, rule.keep_best_of_search))
    for job_id in {each.job_id for each in saved}:
        own = sorted(
            (each for each in saved if each.job_id == job_id), key=lambda each: each.order, reverse=True
        )
        kept |= {*own[: max(rule.keep_last, job_id in going_on)], *best(own, rule.keep_best)}
    return kept
