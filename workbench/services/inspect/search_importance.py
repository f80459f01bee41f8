"""Which hyper-parameters of a search decide how good a trial is."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from workbench.values import dataclass

LEAST_TRIALS: Final = 10
"""Of fewer trials chance alone decides which parameter seems to matter."""
GROUPS_MIN: Final = 3
"""Two groups would not show a best value in the middle."""
GROUPS_MAX: Final = 8
TRIALS_A_GROUP: Final = 5
"""About so many trials are in a group of numbers at least."""
GROUP_TRIALS_MIN: Final = 3
"""The mean of fewer is chance: a text that has many values would seem to decide."""


@dataclass(frozen=True, slots=True)
class ParameterImportance:
    """How much of the differences between trials one hyper-parameter explains by itself."""

    name: str
    share: float
    """From 0 to 1. The shares of a search need not come to 1."""


@dataclass(frozen=True, slots=True)
class ImportanceRanking:
    """The hyper-parameters of a search, those that matter most first."""

    trials: int
    """How many have a value."""
    parameters: tuple[ParameterImportance, ...]
    """Empty while fewer than :data:`LEAST_TRIALS` trials have a value."""


def parameter_importance(
    samples: Sequence[Mapping[str, Any]], values: Sequence[float | None], names: Sequence[str]
) -> ImportanceRanking:
    """Rank hyper-parameters by the share of the variance of the metric's ranks that each explains by itself.

    The trials are cut into groups by the value of one parameter: numbers into groups of about as many trials each,
    anything else by value, where all values of one or two trials are one group. The share is the variance between the
    groups' means over all variance (the correlation ratio, eta squared), corrected for what as many groups would
    explain by chance (epsilon squared: Kelley, "An unbiased correlation ratio measure", 1935). It is a main effect as
    that of functional ANOVA (Hutter, Hoos and Leyton-Brown, 2014), with bins in place of a forest. Unlike a rank
    correlation it sees a best value in the middle of a range. Ranks take the place of the values, so that one trial
    that diverged does not outweigh all others; and as ranks are, it does not depend on whether an axis is logarithmic.

    Its limits: what two parameters do only together is not seen. A method that tries some values more often makes
    their differences count more. Trials that were stopped early count by what they had reached. With few trials a share
    is rough: of 20 trials noise alone comes to more than 0.3 one time in twenty.

    Args:
        samples: The hyper-parameters of each trial by name.
        values: The value of each trial; None, NaN and infinite ones are left out.
        names: The hyper-parameters that are ranked; of the same share the one that comes first here stays first.
    """
    known = [
        (sample, value)
        for sample, value in zip(samples, values, strict=True)
        if value is not None and math.isfinite(value)
    ]
    if len(known) < LEAST_TRIALS:
        return ImportanceRanking(len(known), ())
    ranks = _ranks([value for _, value in known])
    found = [
        ParameterImportance(name, _share(_groups([sample.get(name) for sample, _ in known]), ranks))
        for name in names
    ]
    return ImportanceRanking(len(known), tuple(sorted(found, key=lambda one: -one.share)))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the middle of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    before = 0
    for _, equal in groupby(order, key=values.__getitem__):
        places = list(equal)
        for place in places:
            ranks[place] = before + (len(places) - 1) / 2
        before += len(places)
    return ranks


def _groups(values: Sequence[Any]) -> list[Hashable]:
    """Return the group of each value: of numbers their part of the order, of others the value itself."""
    if not all(value is None or is_number(value) for value in values):
        return [json.dumps(value, sort_keys=True, default=str) for value in values]
    known = [finite_number(value) for value in values]
    numbers = [number for number in known if number is not None]
    count = min(GROUPS_MAX, max(GROUPS_MIN, len(numbers) // TRIALS_A_GROUP))
    if len(set(numbers)) <= count:
        return list(known)
    group_of: dict[float, int] = {}
    begun = group = 0
    for at, number in enumerate(sorted(numbers)):
        # Equal values stay together, so a group may be larger than its share.
        if number not in group_of and at - begun >= (len(numbers) - begun) / (count - group):
            begun, group = at, group + 1
        group_of.setdefault(number, group)
    return [None if number is None else group_of[number] for number in known]


def is_number(value: Any) -> bool:
    """Say whether a hyper-parameter is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite_number(value: float | None) -> float | None:
    """Return a number that can be ordered and drawn; None for NaN, an infinite one and one beyond all floats."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None


def _share(groups: Sequence[Hashable], ranks: Sequence[float]) -> float:
    """Return epsilon squared of ranks in groups: 0 where the groups explain no more than chance would.

    Groups that are too small count as one; as long as this one is too small as well, its trials do not count.
    """
    members: dict[Hashable, list[float]] = {}
    for group, rank in zip(groups, ranks, strict=True):
        members.setdefault(group, []).append(rank)
    large = [each for each in members.values() if len(each) >= GROUP_TRIALS_MIN]
    others = [rank for each in members.values() if len(each) < GROUP_TRIALS_MIN for rank in each]
    kept = [*large, others] if len(others) >= GROUP_TRIALS_MIN else large
    counted = [rank for each in kept for rank in each]
    count = len(counted)
    free = count - len(kept)
    mean = sum(counted) / max(1, count)
    whole = sum((rank - mean) ** 2 for rank in counted)
    if not whole or not free:  # all are as good, or none is in a group
        return 0.0
    within = sum((rank - sum(each) / len(each)) ** 2 for each in kept for rank in each)
    return max(0.0, 1.0 - within / whole * (count - 1) / free)
