"""Reads filters and conditions, checks their metrics, and marks the position of a fault in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition
    from workbench.store.db.database import Store
    from workbench.store.queries.where import JobFilter


def read_where(store: Store, texts: list[str] | None) -> JobFilter:
    """Read what ``--where`` says, several times joined.

    Raises:
        UsageError: it cannot be read, or names a metric that no job has; its position is marked.
    """
    from workbench.store.queries.job_list import known_metrics
    from workbench.store.queries.where import WhereError, parse

    text = " ".join(texts or ())
    try:
        where = parse(text)
    except WhereError as error:
        raise pointing(text, error.start, error.end, error.message, error.hint) from None
    if where.metrics:
        known = known_metrics(store)
        for name, start, end in where.metrics:
            if not has_metric(known, name):
                raise pointing(text, start, end, f"no job has a metric {name!r}", nearest_metric(known, name))
    return where


def check_metric(store: Store, name: str) -> None:
    """See that some job has a metric.

    Raises:
        UsageError: none has; the hint names the nearest.
    """
    from workbench.store.queries.job_list import known_metrics

    known = known_metrics(store)
    if not has_metric(known, name):
        raise UsageError(f"no job has a metric {name!r}", hint=nearest_metric(known, name))


def has_metric(known: list[str], name: str) -> bool:
    """Say whether a metric is known by its whole name or by its last part."""
    lowered = name.lower()
    return any(each.lower() == lowered or each.lower().endswith(f"/{lowered}") for each in known)


def nearest_metric(known: list[str], name: str) -> str:
    """Return a hint that names the nearest metric, or those there are."""
    from workbench.manifest.yaml.faults import nearest

    by_part = {part: each for each in known for part in (each.rpartition("/")[2], each)}
    if close := nearest(name, by_part):
        return f"did you mean {close}?"
    return f"there are {', '.join(known[:10])}" if known else "no job has reported any metric yet"


def pointing(text: str, start: int, end: int, message: str, hint: str = "") -> UsageError:
    """Return an error that shows the text with the wrong part of it marked."""
    line = text.replace("\n", " ").replace("\t", " ")
    marks = " " * start + "^" * max(1, end - start)
    return UsageError(f"{message}\n  {line}\n  {marks}", hint=hint)


def read_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Read conditions, all of them.

    Raises:
        UsageError: a part of it cannot be read; it is marked.
    """
    from workbench.metrics.conditions import ConditionError, parse

    found: list[Condition] = []
    for text in texts:
        try:
            found += parse(text)
        except ConditionError as error:
            raise pointing(text, error.start, error.end, error.message, error.hint) from None
    return tuple(found)
