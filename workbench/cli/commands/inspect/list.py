"""``fabric list``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import column_names, metric_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, Where

if TYPE_CHECKING:
    from workbench.job import State
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

SHOWN = 50
"""How many jobs are shown when nothing is said."""

WATCH_SECONDS = 1.0
"""How often a list that is watched is drawn anew, where only times change."""

Text = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help="Only jobs with this in their name or id.")
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", "-s", metavar="STATE", help="Only this state (repeatable); `open`: those not ended."
    ),
]
Label = Annotated[
    str | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only jobs with this label.")
]
Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="KEY",
        help="By a column or a metric, the least first; `-KEY` turns it round.",
        autocompletion=metric_names,
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        "-c",
        metavar="A,B,...",
        help="Which columns: of the job, params.NAME, label.NAME, metrics; `+A` adds to the usual ones.",
        autocompletion=column_names,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Draw it anew as it changes, until ctrl-c.")]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, metavar="N", help=f"How many; {SHOWN} if not said.")
]
All = Annotated[bool, typer.Option("--all", "-a", help="All of them.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Ids only, one a line.")]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which jobs are asked for, and how many of them are shown."""

    states: list[State]
    backend: str
    text: str | None
    label: str | None
    where: list[str]
    sort: str
    columns: tuple[str, ...]
    shown: int | None


@command(
    "list",
    "fabric list",
    "fabric list --state failed --limit 10",
    "fabric list digits --json",
    "fabric list --where 'state:done loss<0.3' --sort loss --columns id,name,params.lr,loss",
    "fabric list --where is:open --watch",
)
def list_jobs(
    text: Text = None,
    state: States = None,
    backend: Backend = "",
    label: Label = None,
    where: Where = None,
    sort: Sort = "",
    columns: Columns = "",
    watch: Watch = False,
    limit: Limit = None,
    all: All = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """List jobs, newest first.

    `fabric help filters` says what --where understands. --json prints an array of all that fit (with --limit
    the first N), each with id, state, reason and exit_code; with --watch a line for each job that changed.
    """
    from workbench.services.open_store import existing_store

    shown = limit or (None if all or json or quiet else SHOWN)
    asked = _Asked(_states(state or []), backend, text, label, where or [], sort, _columns(columns), shown)
    with existing_store() as store:
        if watch and store is not None:
            from workbench.cli.framework.watch import watch_list

            watch_list(store, lambda: _page(store, asked), json=json)
            return
        rows, total = read(store, asked)
        if json:
            from workbench.terminal.json_output import job_document, print_document

            print_document([job_document(row) for row in rows])
        elif quiet:
            sys.stdout.write("".join(f"{row.id}\n" for row in rows))
        else:
            _print_table(store, asked, rows, total)


def read(store: Store | None, asked: _Asked) -> tuple[list[JobRow], int]:
    """Return the jobs that are shown, and how many fit."""
    if store is None:
        return [], 0
    rows = _rows(store, asked, None if asked.shown is None else asked.shown + 1)
    if asked.shown is None or len(rows) <= asked.shown:
        return rows, len(rows)
    return rows[: asked.shown], _count(store, asked)


def _rows(store: Store, asked: _Asked, limit: int | None) -> list[JobRow]:
    if not (asked.where or asked.sort):
        from workbench.store.jobs import list_jobs as stored

        return stored(
            store,
            states=asked.states or None,
            backend=asked.backend or None,
            text=asked.text,
            label=asked.label,
            limit=limit,
        )
    from workbench.clock import now_us
    from workbench.services.filters import check_metric, read_where
    from workbench.store.queries.jobs import conditions
    from workbench.store.queries.listing import SORTS, listed

    key = asked.sort.lstrip("-").removeprefix("+") or "submitted"
    if key not in SORTS:
        check_metric(store, key)
    descending = asked.sort.startswith("-") if asked.sort else True
    more, values = conditions(
        states=asked.states or None, backend=asked.backend or None, text=asked.text, label=asked.label
    )
    where = read_where(store, asked.where)
    return listed(
        store, more, values, where=where, sort=key, descending=descending, now_us=now_us(), limit=limit
    )


def _count(store: Store, asked: _Asked) -> int:
    if asked.backend or asked.text or asked.label or asked.where:
        return len(_rows(store, asked, None))
    from workbench.store.jobs import count_jobs

    states = asked.states
    return sum(count for state, count in count_jobs(store).items() if not states or state in states)


def _states(words: Sequence[str]) -> list[State]:
    from workbench.errors import UnknownName
    from workbench.job import TERMINAL, State

    states: list[State] = []
    for word in ",".join(words).replace(",", " ").split():
        if word.lower() == "open":
            states += [state for state in State if state not in TERMINAL]
        elif word.upper() in State.__members__:
            states.append(State[word.upper()])
        else:
            from workbench.manifest.yaml.faults import nearest

            known = [*(state.lower() for state in State), "open"]
            close = nearest(word, known)
            hint = f"did you mean {close}?" if close else f"states are {', '.join(known)}"
            raise UnknownName(f"there is no state '{word}'", hint=hint)
    return states


def _columns(text: str) -> tuple[str, ...]:
    from workbench.services.inspect.list_columns import USUAL

    names = [name for name in text.replace(" ", "").split(",") if name]
    if any(name.startswith("+") for name in names):
        added = [name.removeprefix("+") for name in names]
        return (*USUAL[:-1], *added, USUAL[-1])
    return tuple(name.removeprefix("+") for name in names) or USUAL


def _print_table(store: Store | None, asked: _Asked, rows: list[JobRow], total: int) -> None:
    from workbench.terminal.console import narrate

    if not rows:
        if asked.states or asked.backend or asked.text or asked.label or asked.where:
            narrate("no job fits; `fabric list --all` shows all there are")
        else:
            narrate("no jobs; `fabric run MANIFEST` or `fabric run -- COMMAND` starts one")
        return
    sys.stdout.write(_table(store, asked, rows))
    if len(rows) < total:
        narrate(f"showing {len(rows):,} of {total:,}; --all shows the rest")


def _page(store: Store, asked: _Asked) -> tuple[list[JobRow], str]:
    """Return what is watched: the jobs, and the table of them."""
    rows, total = read(store, asked)
    if not rows:
        return rows, "no job fits\n"
    more = f"showing {len(rows):,} of {total:,}\n" if len(rows) < total else ""
    return rows, _table(store, asked, rows) + more


def _table(store: Store | None, asked: _Asked, rows: Sequence[JobRow]) -> str:
    from workbench.clock import now_us
    from workbench.services.inspect.list_columns import CELLS, RIGHT, STRETCHED, cells_of
    from workbench.terminal.console import state_style, width
    from workbench.terminal.table import Column, render

    states = [row.state for row in rows]

    def paint(text: str, number: int) -> str:
        return state_style(states[number], text, sys.stdout)

    made = [
        Column(
            name.upper() if name in CELLS else name,
            right=name in RIGHT or name not in CELLS,
            stretch=name in STRETCHED,
            paint=paint if name == "state" else None,
        )
        for name in asked.columns
    ]
    return render(made, cells_of(store, asked.columns, rows, now_us()), width=width(120))
