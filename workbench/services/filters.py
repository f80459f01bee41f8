"""Reads, completes and checks filters and conditions, and marks the position of a fault in the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition
    from workbench.store.db.database import Store
    from workbench.store.queries.where import JobFilter


def read_where(store: Store, texts: list[str] | None) -> JobFilter:
    """Read what ``--where`` says; of several filters all must fit.

    Raises:
        UsageError: it cannot be read, or names a metric or param that no job has; its position is marked.
    """
    from workbench.store.queries.where import joined

    filters: list[JobFilter] = []
    for text in texts or ():
        filters.append(_read_one(store, text, sum(len(each.values) for each in filters)))
    return joined(filters)


def _read_one(store: Store, text: str, values_from: int) -> JobFilter:
    from workbench.store.queries.filter_syntax import WhereError
    from workbench.store.queries.job_list import known_metrics, known_numbers
    from workbench.store.queries.where import parse

    try:
        where = parse(text, values_from=values_from)
    except WhereError as error:
        raise pointing(text, error.start, error.end, error.message, error.hint) from None
    if where.metrics:
        known = known_numbers(store)
        for name, start, end in where.metrics:
            if not has_metric(known, name):
                near = nearest_metric(known_metrics(store), name)
                raise pointing(text, start, end, f"no job has a metric {name!r}", near)
    for name, start, end in where.params:
        if (hint := _unknown_param(store, name)) is not None:
            raise pointing(text, start, end, f"no job has a param {name!r}", hint)
    return where


def _unknown_param(store: Store, name: str) -> str | None:
    """Return a hint where no job has a param, else None."""
    from workbench.manifest.yaml.faults import nearest
    from workbench.store.queries.params import has_param, job_params

    seen: dict[str, None] = {}
    for job_id, attempt in store.rows(
        "SELECT id, attempt FROM jobs WHERE deleted_us IS NULL ORDER BY seq DESC"
    ):
        params = job_params(store.home, job_id, attempt)
        if has_param(params, name):
            return None
        seen |= dict.fromkeys(params)
    if close := nearest(name, seen):
        return f"did you mean params.{close}?"
    return f"there are {', '.join([*seen][:10])}" if seen else "no job has any param yet"


def read_sort(store: Store, text: str) -> tuple[str, bool]:
    """Read what ``--sort`` says: what jobs are sorted by, and whether the greatest comes first.

    A metric that is called as a field which filters do not take, ``loss``, is meant by the name, as it is there.

    Raises:
        UsageError: there is no such field, and no job has such a param, label or metric; the hint names the nearest.
    """
    from workbench.store.queries.job_fields import filter_field, find_field
    from workbench.store.queries.job_list import known_numbers

    if not text:
        return "submitted", True
    key = text.lstrip("-").removeprefix("+") or "submitted"
    is_left_to_metrics = find_field(key) is not None and filter_field(key) is None
    if is_left_to_metrics and has_metric(known_numbers(store), key):
        return f'"{key}"', text.startswith("-")
    check_sort(store, key)
    return key, text.startswith("-")


def check_sort(store: Store, key: str) -> None:
    """See that jobs can be sorted by something.

    Raises:
        UsageError: there is no such field, and no job has such a param, label or metric; the hint names the nearest.
    """
    from workbench.manifest.yaml.faults import nearest
    from workbench.store.queries.job_fields import LABEL, PARAM, find_field, sort_keys
    from workbench.store.queries.job_list import known_metrics, known_numbers
    from workbench.store.queries.metric_values import read_metric

    if find_field(key) is not None:
        return
    if key.startswith(PARAM):
        if (hint := _unknown_param(store, key[len(PARAM) :])) is not None:
            raise UsageError(f"cannot sort by {key!r}: no job has such a param", hint=hint)
        return
    if key.startswith(LABEL):
        labels = "SELECT 1 FROM jobs, json_each(jobs.labels) WHERE deleted_us IS NULL AND lower(key) = lower(?) LIMIT 1"
        if not store.rows(labels, (key[len(LABEL) :].encode("utf-8", "replace").decode(),)):
            raise UsageError(f"cannot sort by {key!r}: no job has such a label")
        return
    if has_metric(known_numbers(store), read_metric(key).name):
        return
    metrics = known_metrics(store)
    close = nearest(key, [*metrics, *(name.rpartition("/")[2] for name in metrics), *sort_keys()])
    hint = f"did you mean {close}? " if close else ""
    raise UsageError(
        f"cannot sort by {key!r}: there is no such field, and no job has such a metric",
        hint=f"{hint}Sort keys are {', '.join(sort_keys())}, params.NAME, label.NAME and metrics",
    )


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


def filter_words(metrics: Iterable[str], values: Mapping[str, Iterable[str]]) -> list[str]:
    """Return what a term of a filter may begin with: fields, what is known of their values, metrics.

    Args:
        metrics: Their names; the last part of a name stands for it, too.
        values: What some fields may be, by their names; states are known.
    """
    from workbench.store.queries.job_fields import COMPARED, PARAM, filter_field
    from workbench.store.queries.where import IS, STATES, filter_names

    known: dict[str, Iterable[str]] = {"state": STATES, "is": IS, **values}
    texts: list[str] = []
    compared: list[str] = []
    for name in filter_names():
        field = filter_field(name)
        is_compared = field is not None and field.kind in (*COMPARED, "time")
        (compared if is_compared else texts).append(name)
    words = [f"{name}:" for name in texts]
    words += [f"{name}:{value}" for name in texts for value in known.get(name, ())]
    names = list(metrics)
    words += [*compared, PARAM, *names, *(name.rpartition("/")[2] for name in names)]
    return [word for word in dict.fromkeys(words) if not any(sign.isspace() or sign == '"' for sign in word)]


def complete_filter(typed: str, words: Iterable[str]) -> list[str]:
    """Return what a filter may become whose last term is not ended, after a bracket or ``!`` too.

    A field that was typed by a former name has its values behind that name.
    """
    from workbench.store.queries.job_fields import filter_field

    last = typed.rpartition(" ")[2].lstrip("(!")
    before = typed[: len(typed) - len(last)]
    name, colon, value = last.partition(":")
    if colon and (field := filter_field(name.lower())) is not None:
        begun = f"{field.name}:{value}".lower()
        ends = [word.partition(":")[2] for word in words if word.lower().startswith(begun)]
        return [f"{before}{field.name if field.name == name.lower() else name}:{end}" for end in ends]
    return [before + word for word in words if word.lower().startswith(last.lower())]


def read_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Read conditions, all of them.

    Raises:
        UsageError: a part of it cannot be read; it is marked.
    """
    if not texts:
        return ()
    from workbench.metrics.conditions import ConditionError, parse

    found: list[Condition] = []
    for text in texts:
        try:
            found += parse(text)
        except ConditionError as error:
            raise pointing(text, error.start, error.end, error.message, error.hint) from None
    return tuple(found)
