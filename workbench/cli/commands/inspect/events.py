"""``fabric events``: who did what to which job, when and from where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import JsonStream, Where
from workbench.terminal.console import width

if TYPE_CHECKING:
    from workbench.services.inspect.history import HistoryEntry

SHOWN = 50
KINDS = ("state", "request", "learner", "note", "annotate")
"""As ``workbench.services.inspect.history`` has them, which the help does not load."""

OneJob = Annotated[
    str,
    typer.Argument(metavar="[JOB]", help="Only this job; default: all.", autocompletion=job_names),
]
Kind = Annotated[
    str, typer.Option("--kind", "-k", metavar="KIND", help=f"Only {', '.join(KINDS)} (with commas, several).")
]
Who = Annotated[str, typer.Option("--who", metavar="TEXT", help="Only what this user did.")]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="Only newer than: 5m, 2h, 2026-01-31.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="The last N.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow new events, until ctrl-c.")]


@command(
    "events",
    "fabric events",
    "fabric events digits --kind request,annotate",
    "fabric events --who ada --since 2h --json",
    "fabric events --where state:failed -n 100",
)
def events(
    job: OneJob = "",
    where: Where = None,
    kind: Kind = "",
    who: Who = "",
    since: Since = "",
    limit: Limit = SHOWN,
    follow: Follow = False,
    json: JsonStream = False,
) -> None:
    """Print what happened: who asked for what, and every change.

    The latest event comes last. FROM is where the request came from: the command line, the screens, Python or
    the controller.
    """
    from workbench.services.inspect.history import HistoryQuery, follow_history, history, read_kinds
    from workbench.services.open_store import existing_store

    with existing_store() as store:
        if store is None:
            if json and not follow:
                print("[]")
            return
        query = HistoryQuery(job, tuple(where or ()), who, since, read_kinds(kind), limit)
        if follow:
            for number, entries in enumerate(follow_history(store, query)):
                _print(entries, heading=not number, json=json)
                sys.stdout.flush()
        elif json:
            from workbench.terminal.json_output import print_document

            print_document([entry.document() for entry in history(store, query)])
        else:
            _print(history(store, query), heading=True, json=False)


def _print(entries: Sequence[HistoryEntry], *, heading: bool, json: bool) -> None:
    if json:
        from workbench.terminal.json_output import print_event

        for entry in entries:
            print_event(entry.event())
        return
    from workbench.formats import stamp
    from workbench.job import short_id
    from workbench.terminal.table import Column, render

    if not entries:
        return
    columns = [Column("TIME"), Column("JOB"), Column("NAME"), Column("WHAT"), Column("WHO"), Column("FROM")]
    columns.append(Column("TEXT", stretch=True))
    cells = [
        [
            stamp(each.time_us),
            short_id(each.job_id),
            each.name,
            each.state or each.kind,
            each.who,
            each.origin,
            each.text,
        ]
        for each in entries
    ]
    table = render(columns, cells, width=width(140))
    sys.stdout.write(table if heading else table.partition("\n")[2])
