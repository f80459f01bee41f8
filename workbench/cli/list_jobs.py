"""``fabric list``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.command import command
from workbench.cli.options import Backend, Json

if TYPE_CHECKING:
    from workbench.job import State
    from workbench.store.database import Store
    from workbench.store.rows import JobRow

SHOWN = 50
"""How many jobs are shown when nothing is said."""

MICROSECONDS = 1_000_000

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
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, metavar="N", help=f"How many; {SHOWN} if not said.")
]
All = Annotated[bool, typer.Option("--all", "-a", help="All of them.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Ids only, one a line.")]


@command("list", "fabric list", "fabric list --state failed --limit 10", "fabric list digits --json")
def list_jobs(
    text: Text = None,
    state: States = None,
    backend: Backend = "",
    label: Label = None,
    limit: Limit = None,
    all: All = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """List jobs, newest first.

    --json prints an array of all that fit (with --limit the newest N), each with id, state, reason and
    exit_code.
    """
    from workbench.cli.open_store import existing_store

    states = _states(state or [])
    shown = limit or (None if all or json or quiet else SHOWN)
    with existing_store() as store:
        rows = _rows(store, states, backend, text, label, shown) if store else []
        more = bool(store) and shown is not None and len(rows) > shown
        total = _count(store, states, backend, text, label) if store and more else len(rows)
        rows = rows[:shown]
    if json:
        from workbench.cli.documents import job_document, print_document

        print_document([job_document(row) for row in rows])
    elif quiet:
        sys.stdout.write("".join(f"{row.id}\n" for row in rows))
    else:
        _print_table(rows, total)


def _rows(
    store: Store,
    states: Sequence[State],
    backend: str,
    text: str | None,
    label: str | None,
    shown: int | None,
) -> list[JobRow]:
    from workbench.store.jobs import list_jobs as stored

    limit = None if shown is None else shown + 1
    return stored(store, states=states or None, backend=backend or None, text=text, label=label, limit=limit)


def _count(store: Store, states: Sequence[State], backend: str, text: str | None, label: str | None) -> int:
    if backend or text or label:
        return len(_rows(store, states, backend, text, label, None))
    from workbench.store.jobs import count_jobs

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
            known = ", ".join(state.lower() for state in State)
            raise UnknownName(f"there is no state '{word}'", hint=f"states are {known}, and open")
    return states


def _print_table(rows: Sequence[JobRow], total: int) -> None:
    from workbench.cli.console import narrate, state_style, width
    from workbench.cli.tables import Column, render
    from workbench.cli.words import ago
    from workbench.clock import now_us
    from workbench.job import nine

    if not rows:
        narrate("no jobs; `fabric run MANIFEST` or `fabric run -- COMMAND` starts one")
        return
    now = now_us()
    states = [row.state for row in rows]
    columns = [
        Column("ID"),
        Column("NAME", stretch=True),
        Column("STATE", paint=lambda text, number: state_style(states[number], text, sys.stdout)),
        Column("WHERE"),
        Column("GPUS", right=True),
        Column("SUBMITTED", right=True),
        Column("TIME", right=True),
        Column("EXIT", right=True),
        Column("WHY", stretch=True),
    ]
    cells = [
        [
            nine(row.id),
            row.name,
            row.state,
            row.place.backend,
            str(row.gpus * row.learners or "-"),
            ago(row.submitted_us, now),
            _took(row, now),
            "" if row.exit_code is None else str(row.exit_code),
            why(row, now),
        ]
        for row in rows
    ]
    sys.stdout.write(render(columns, cells, width=width(120)))
    if len(rows) < total:
        narrate(f"showing {len(rows):,} of {total:,}; --all shows the rest")


def why(row: JobRow, now: int) -> str:
    """Return a job's reason in one line, with what was asked of it and when its place was last heard of."""
    from workbench.cli.words import duration
    from workbench.job import TERMINAL

    parts = [row.reason.text]
    if row.intent:
        parts.insert(0, f"{row.intent} asked for;")
    unseen = (now - row.seen_us) / MICROSECONDS if row.seen_us else 0.0
    if row.state not in TERMINAL and unseen > 30:
        parts.append(f"(last seen {duration(unseen)} ago)")
    return " ".join(part for part in parts if part)


def _took(row: JobRow, now: int) -> str:
    from workbench.cli.words import duration
    from workbench.job import TERMINAL

    if row.started_us is None:
        return "-"
    end = row.ended_us if row.state in TERMINAL and row.ended_us else now
    return duration((end - row.started_us) / MICROSECONDS)
