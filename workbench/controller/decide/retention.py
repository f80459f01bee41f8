"""Decides which checkpoints stay once a job, or all trials of a search, have completed. Pure."""

from __future__ import annotations

import os.path
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
    is_unknown: bool = False
    """Whether it has none, and may be as good as any all the same."""


def removable_names(staying: Collection[str], removed: Collection[str]) -> set[str]:
    """Return the names that can go without harm to what stays: none has another one's folder inside or around."""
    stays = [os.path.normpath(name) for name in staying]

    def is_free(name: str) -> bool:
        if name in (".", "..") or name != os.path.normpath(name) or name.startswith(("/", "../")):
            return False
        return not any(
            one == "." or name == one or name.startswith(f"{one}/") or one.startswith(f"{name}/")
            for one in stays
        )

    return {name for name in removed if is_free(name)}


def kept_at_end(
    saved: Collection[SavedCheckpoint],
    rule: CheckpointsAtEnd,
    *,
    smaller_is_better: bool,
    going_on: Collection[str] = (),
) -> set[SavedCheckpoint]:
    """Return the checkpoints that stay; ``going_on`` are jobs that may go on, at the newest that they have.

    Where the best stay, those stay, too, of which nothing says that they are worse.
    """
    sign = 1.0 if smaller_is_better else -1.0

    def best(found: Iterable[SavedCheckpoint], count: int) -> list[SavedCheckpoint]:
        rated = [(sign * each.value, -each.order, each) for each in found if each.value is not None]
        return [each for *_, each in sorted(rated, key=lambda one: one[:2])][:count]

    kept = set(best(saved, rule.keep_best_of_search))
    if rule.keep_best or rule.keep_best_of_search:
        kept |= {each for each in saved if each.is_unknown}
    for job_id in {each.job_id for each in saved}:
        own = sorted(
            (each for each in saved if each.job_id == job_id), key=lambda each: each.order, reverse=True
        )
        kept |= {*own[: max(rule.keep_last, job_id in going_on)], *best(own, rule.keep_best)}
    return kept
