"""Conditions on metrics, such as ``accuracy>=0.9`` or ``min(loss)<0.1``: parsed, and judged by a job's series."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from workbench.errors import UsageError
from workbench.store.db.rows import SeriesRow
from workbench.store.queries.metric_values import WHICH, fitting_series, read_number, unquoted
from workbench.values import dataclass

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}

_CONDITION: Final = re.compile(
    r"(?:(?P<which>\w+)\((?P<inner>\s*\"[^\"]+\"\s*|[^()]*)\)|(?P<name>\"[^\"]+\"|[^\s<>=!(),]+))\s*(?P<operator>[<>=!]+)\s*(?P<value>[^\s,]+)"
)
_BETWEEN: Final = re.compile(r"[\s,]*(?:and\b)?[\s,]*")


class ConditionError(UsageError):
    """A condition that cannot be read; ``start`` and ``end`` say which part of its text is wrong."""

    def __init__(self, message: str, start: int, end: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = end


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison."""

    text: str
    """As it was written."""
    metric: str
    which: str
    """``last``, ``min`` or ``max``: which value of the metric is meant."""
    operator: str
    value: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition holds for a job's series."""

    condition: Condition
    holds: bool
    value: float | None
    """What was measured, NaN too; None when the metric was not reported."""
    sentence: str


def parse(text: str) -> tuple[Condition, ...]:
    """Read one condition, or several with blanks, commas or ``and`` between them.

    Raises:
        ConditionError: it says which part is wrong, and why.
    """
    found: list[Condition] = []
    at = _BETWEEN.match(text).end() if text else 0  # type: ignore[union-attr] # it matches nothing, too
    while at < len(text):
        match = _CONDITION.match(text, at)
        if match is None:
            end = next((i for i in range(at, len(text)) if text[i].isspace()), len(text))
            raise ConditionError(
                f"{text[at:end]!r} is not a condition", at, end, hint="write accuracy>=0.9 or min(loss)<0.1"
            )
        found.append(_condition(match))
        at = _BETWEEN.match(text, match.end()).end()  # type: ignore[union-attr] # see above
    if not found:
        raise ConditionError("there is no condition", 0, len(text), hint="write accuracy>=0.9")
    return tuple(found)


def _condition(match: re.Match[str]) -> Condition:
    which = (match["which"] or "last").lower()
    if which not in WHICH:
        raise ConditionError(
            f"{which!r} is none of {', '.join(WHICH)}", *match.span("which"), hint="write min(loss)<0.1"
        )
    name = unquoted((match["inner"] if match["which"] else match["name"]).strip())
    if not name:
        raise ConditionError("no metric is named", *match.span(), hint="write min(loss)<0.1")
    if match["operator"] not in OPERATORS:
        raise ConditionError(
            f"{match['operator']!r} is not a comparison",
            *match.span("operator"),
            hint=f"write one of {' '.join(OPERATORS)}",
        )
    try:
        value = read_number(match["value"])
    except ValueError:
        raise ConditionError(
            f"{match['value']!r} is not a number", *match.span("value"), hint="write 0.9, 1e-4 or 90%"
        ) from None
    return Condition(match[0], name, which, match["operator"], value)


def judge(conditions: Sequence[Condition], series: Sequence[SeriesRow]) -> list[Verdict]:
    """Judge conditions by a job's series; of several learners the first one's counts, and NaN fits nothing."""
    return [_verdict(condition, series) for condition in conditions]


def _verdict(condition: Condition, series: Sequence[SeriesRow]) -> Verdict:
    row = fitting_series(series, condition.metric)
    if row is None:
        names = ", ".join(dict.fromkeys(row.name for row in series if row.kind == "value" and row.points))
        there = f"; there are {names}" if names else ", nor was any other metric"
        return Verdict(condition, False, None, f"{condition.metric} was never reported{there}")
    field = getattr(row, WHICH[condition.which])
    value = math.nan if field is None else float(field)
    holds = value == value and OPERATORS[condition.operator](value, condition.value)
    shown = {"last": "", "min": "the least ", "max": "the greatest "}[condition.which] + row.name
    if len({each.learner for each in series}) > 1:
        shown += f" of learner {row.learner}"
    required = "as required" if holds else "required"
    sentence = f"{shown} is {value:.6g}, {required} {condition.operator} {condition.value:g}"
    return Verdict(condition, holds, value, sentence)
