"""``fabric loglines`` and ``emetrics``: FfDL's verbs, with its flags and its lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Set
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, JsonStream, Learner
from workbench.learner.texts import escaped

if TYPE_CHECKING:
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

Item = dict[str, Any]
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
            items = _numbered(_log_items(row, read_lines(store, row, query, wait)))
            _print(
                _chosen(items, pagesize, pos, since, follow=follow), json=json, follow=follow, say=_log_line
            )


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
        items = _numbered(item for each in rows for item in _metric_items(row, each, times))
        say = partial(_metric_block, integers=times | _integers(store, row))
        _print(_chosen(items, pagesize, pos, since, follow=False), json=json, follow=False, say=say)


def _integers(store: Store, row: JobRow) -> set[str]:
    """Name the metrics that the manifest reads as INT: every value is a float in the store."""
    from workbench.errors import FabricError
    from workbench.store.jobs import detail

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


def _nothing() -> Any:  # a context manager of None
    from contextlib import nullcontext

    return nullcontext()


def _log_items(row: JobRow, lines: Iterator[LogLine]) -> Iterator[Item]:
    from workbench.formats import milliseconds

    for line in lines:
        yield {
            "schema": "fabric.logline/1",
            "training_id": row.id,
            "learner": line.learner,
            "time": milliseconds(line.time),
            "line": line.text,
        }


def _metric_items(row: JobRow, each: MetricRow, times: Set[str]) -> Iterator[Item]:
    groups: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for name, value in each.values.items():
        label, _, metric = name.rpartition("/")
        groups.setdefault(label, ({}, {}))[name in times][metric] = value
    for label, (values, etimes) in groups.items():
        yield {
            "schema": "fabric.emetrics/1",
            "training_id": row.id,
            "learner": each.learner,
            "time": each.time_us // 1000,
            "grouplabel": label,
            "etimes": etimes,
            "values": values,
        }


def _numbered(items: Iterator[Item]) -> Iterator[Item]:
    for number, item in enumerate(items, 1):
        yield {**item, "rindex": number}


def _chosen(
    items: Iterator[Item], pagesize: int | None, pos: int | None, since: str, *, follow: bool
) -> Iterator[Item]:
    """Choose as FfDL's query does: from a time, from a number, or the Nth page from the end."""
    from itertools import islice

    from workbench.clock import now_us
    from workbench.errors import UsageError
    from workbench.logs.time_expressions import since_us

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


def _print(items: Iterator[Item], *, json: bool, follow: bool, say: Any) -> None:
    from workbench.terminal.json_output import print_document, print_event

    if json and not follow:
        print_document(list(items))
        return
    for item in items:
        if json:
            print_event("output", {**item, "schema": "fabric.event/1"})
        else:
            sys.stdout.write(say(item))
            if follow:
                sys.stdout.flush()


def _log_line(item: Item) -> str:
    return f"{item['rindex']} {item['time']} {item['line']}\n"


def _metric_block(item: Item, integers: Set[str]) -> str:
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
