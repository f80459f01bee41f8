"""``fabric loglines`` and ``emetrics``: FfDL's verbs, with its flags and its lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Set
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, JsonStream, Learner
from workbench.learner.texts import escaped

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from workbench.documents.events import LogLineEvent
    from workbench.documents.metrics import EmetricsDocument, LogLineDocument
    from workbench.metrics import MetricRow
    from workbench.services.follow.log_reader import LogLine
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

PAGE = 20
"""FfDL's page: it takes a position and no size."""

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")]
PageSize = Annotated[
    int | None, typer.Option("--pagesize", min=1, metavar="N", help=f"How many; default: {PAGE} with --pos.")
]
Position = Annotated[
    int | None, typer.Option("--pos", metavar="N", help="Start at the Nth; -1 is the last page.")
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only newer than: 5m, 2026-01-31, milliseconds.")
]

Item = TypeVar("Item", bound="LogLineDocument | EmetricsDocument")
"""One line or one set of metrics, with its ``rindex`` and ``time`` in milliseconds."""


@command(
    "loglines",
    "fabric loglines @last",
    "fabric loglines digits --pos -1 --pagesize 50",
    "fabric loglines @last --since 5m --follow --json",
)
def loglines(
    job: Job,
    follow: Follow = False,
    pagesize: PageSize = None,
    pos: Position = None,
    since: Since = "",
    learner: Learner = None,
    json: JsonStream = False,
) -> None:
    """Print a job's log as FfDL did: number, milliseconds, line.

    `fabric logs` prints only the lines.
    """
    from workbench.services.follow.log_reader import LogQuery, learners_of, read_lines, waiting_for_output
    from workbench.services.open_store import store_with

    with store_with(job) as (store, row):
        query = LogQuery(learners=learners_of(row, learner), attempt=row.attempt)
        with waiting_for_output(store) if follow else _nothing() as wait:
            items = _log_items(row, read_lines(store, row, query, wait))
            chosen = _chosen(items, pagesize, pos, since, follow=follow)
            if json and follow:
                _print_events(chosen)
            else:
                _print(chosen, json=json, flush=follow, text=_log_line)


@command(
    "emetrics",
    "fabric emetrics @last",
    "fabric emetrics digits --pos 1 --pagesize 10",
    "fabric emetrics @last --since 5m --json",
)
def emetrics(
    job: Job,
    pagesize: PageSize = None,
    pos: Position = None,
    since: Since = "",
    learner: Learner = None,
    json: JsonStream = False,
) -> None:
    """Print what a job measured as FfDL did, in blocks.

    There is one block for each step of each group. `fabric metrics` prints a table, and can follow.
    """
    from workbench.metrics import series
    from workbench.metrics.table import table
    from workbench.services.open_store import store_with

    with store_with(job) as (store, row):
        rows = table(store, row.id, learner=learner).rows
        times = {each.name for each in series(store, row.id, kinds=("etime",))}
        items = _metric_items(row, rows, times)
        text = partial(_metric_block, integers=times | _integers(store, row))
        _print(_chosen(items, pagesize, pos, since, follow=False), json=json, flush=False, text=text)


def _integers(store: Store, row: JobRow) -> set[str]:
    """Name the metrics that the manifest reads as INT: every value is a float in the store."""
    from workbench.errors import FabricError
    from workbench.store.queries.jobs import detail

    try:
        metrics = detail(store, row.id).spec.evaluation_metrics
    except FabricError:
        return set()  # its folder is damaged; its values are shown all the same
    groups = metrics.groups if metrics else {}
    return {
        f"{label}/{name}" if label else name
        for label, group in groups.items()
        for name, value in group.scalars.items()
        if value.type == "INT"
    }


def _nothing() -> AbstractContextManager[None]:
    return nullcontext()


def _log_items(row: JobRow, lines: Iterator[LogLine]) -> Iterator[LogLineDocument]:
    from workbench.formats import milliseconds

    for number, line in enumerate(lines, 1):
        yield {
            "schema": "fabric.logline/1",
            "training_id": row.id,
            "learner": line.learner,
            "time": milliseconds(line.time),
            "line": line.text,
            "rindex": number,
        }


def _metric_items(row: JobRow, rows: Iterable[MetricRow], times: Set[str]) -> Iterator[EmetricsDocument]:
    groups = ((each, label, values) for each in rows for label, values in _groups(each, times).items())
    for number, (each, label, (values, etimes)) in enumerate(groups, 1):
        yield {
            "schema": "fabric.emetrics/1",
            "training_id": row.id,
            "learner": each.learner,
            "time": each.time_us // 1000,
            "grouplabel": label,
            "etimes": etimes,
            "values": values,
            "rindex": number,
        }


def _groups(each: MetricRow, times: Set[str]) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Return the values and the times of each group of one step."""
    groups: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for name, value in each.values.items():
        label, _, metric = name.rpartition("/")
        groups.setdefault(label, ({}, {}))[name in times][metric] = value
    return groups


def _chosen(
    items: Iterator[Item], pagesize: int | None, pos: int | None, since: str, *, follow: bool
) -> Iterator[Item]:
    """Choose as FfDL's query does: from a time, from a number, or the Nth page from the end."""
    from itertools import islice

    from workbench.clock import now_us
    from workbench.errors import UsageError
    from workbench.time_expressions import since_us

    if since:
        begin = since_us(since, now_us()) // 1000
        return islice((item for item in items if item["time"] >= begin), pagesize)
    if pos is None:
        return islice(items, pagesize)
    if pos >= 0:
        start = max(0, pos - 1)
        return islice(items, start, None if follow and pagesize is None else start + (pagesize or PAGE))
    if follow:
        raise UsageError("--follow cannot be used with a page from the end", hint="--since 5m --follow")
    every = list(items)
    size = pagesize or PAGE
    start = max(0, len(every) + pos * size)
    return iter(every[start : start + size])


def _print(items: Iterator[Item], *, json: bool, flush: bool, text: Callable[[Item], str]) -> None:
    from workbench.terminal.json_output import print_document

    if json:
        print_document(list(items))
        return
    for item in items:
        sys.stdout.write(text(item))
        if flush:
            sys.stdout.flush()


def _print_events(items: Iterator[LogLineDocument]) -> None:
    from workbench.terminal.json_output import print_event

    for item in items:
        event: LogLineEvent = {
            "schema": "fabric.event/1",
            "event": "output",
            "training_id": item["training_id"],
            "learner": item["learner"],
            "time": item["time"],
            "line": item["line"],
            "rindex": item["rindex"],
        }
        print_event(event)


def _log_line(item: LogLineDocument) -> str:
    return f"{item['rindex']} {item['time']} {item['line']}\n"


def _metric_block(item: EmetricsDocument, integers: Set[str]) -> str:
    label = escaped(item["grouplabel"])
    head = f"time: {item['time']}, group-label: {label}, training-id: {item['training_id']}\n"
    prefix = f"{item['grouplabel']}/" if item["grouplabel"] else ""
    blocks = [
        f"{title}:\n"
        + "".join(_field(name, value, prefix + name in integers) for name, value in item[title].items())
        for title in ("etimes", "values")
    ]
    return head + "".join(blocks)


def _field(name: str, value: float, is_integer: bool) -> str:
    shown = int(value) if is_integer and value.is_integer() else value
    return f"  {escaped(name)}: {shown}\n"
