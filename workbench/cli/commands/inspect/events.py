"""``fabric events``: who did what to which job, when and from where."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import JsonStream, Where

if TYPE_CHECKING:
    from workbench.store.db.database import Store

SHOWN = 50
KINDS = ("state", "request", "learner", "note", "annotate")

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

Row = tuple[Any, ...]
"""time_us, job id, name, attempt, kind, state, text, code, who, origin"""


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
    from workbench.clock import now_us
    from workbench.services.open_store import existing_store

    with existing_store() as store:
        if store is None:
            if json and not follow:
                print("[]")
            return
        chosen = _kinds(kind)
        more, values = _conditions(store, job, where, who, since)
        more.append(f"transitions.kind IN ({', '.join(repr(each) for each in chosen)})")
        values["now_us"] = now_us()
        rows = _rows(store, more, values, limit)
        if json and not follow:
            from workbench.terminal.json_output import print_document

            print_document([_document(row) for row in rows])
            return
        _print(rows, heading=True, json=json)
        if follow:
            _follow(store, more, values, json=json)


def _kinds(text: str) -> list[str]:
    from workbench.errors import UnknownName
    from workbench.manifest.yaml.faults import nearest

    named = [word for word in text.replace(" ", "").split(",") if word]
    for word in named:
        if word not in KINDS:
            close = nearest(word, KINDS)
            hint = f"did you mean {close}?" if close else f"kinds are {', '.join(KINDS)}"
            raise UnknownName(f"unknown kind of event '{word}'", hint=hint)
    return named or [each for each in KINDS if each != "learner"]


def _conditions(
    store: Store, job: str, where: list[str] | None, who: str, since: str
) -> tuple[list[str], dict[str, Any]]:
    from workbench.clock import now_us
    from workbench.logs.time_expressions import since_us
    from workbench.services.filters import read_where
    from workbench.store.jobs import resolve
    from workbench.store.queries.where import teach

    teach(store.connection)
    found = read_where(store, where)
    more, values = [f"({found.sql})"], dict[str, Any](found.values)
    if job:
        more.append("jobs.id = :job")
        values["job"] = resolve(store, job).id
    if who:
        more.append("instr(lower(transitions.who), :who)")
        values["who"] = who.lower()
    if since:
        more.append("transitions.time_us >= :since")
        values["since"] = since_us(since, now_us())
    return more, values


def _rows(store: Store, more: list[str], values: dict[str, Any], limit: int) -> list[Row]:
    sql = (
        "SELECT transitions.time_us, jobs.id, jobs.name, transitions.attempt, transitions.kind, "
        "transitions.state, transitions.text, transitions.code, transitions.who, transitions.origin "
        "FROM transitions JOIN jobs ON jobs.id = transitions.job_id "
        f"WHERE {' AND '.join(more)} ORDER BY transitions.time_us DESC, transitions.id DESC LIMIT {limit}"
    )
    return store.rows(sql, values)[::-1]


def _follow(store: Store, more: list[str], values: dict[str, Any], *, json: bool) -> None:
    import time

    seen = set(_rows(store, more, values, 1000))
    version = store.data_version()
    while True:
        time.sleep(0.1)
        if (now := store.data_version()) == version:
            continue
        version = now
        fresh = [row for row in _rows(store, more, values, 1000) if row not in seen]
        seen |= set(fresh)
        _print(fresh, heading=False, json=json)
        sys.stdout.flush()


def _print(rows: list[Row], *, heading: bool, json: bool) -> None:
    if json:
        from workbench.terminal.json_output import print_event

        for row in rows:
            document = _document(row)
            print_event(str(row[4]), {**document, "schema": "fabric.event/1"})
        return
    from workbench.formats import stamp
    from workbench.job import short_id
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    if not rows:
        return
    columns = [Column("TIME"), Column("JOB"), Column("NAME"), Column("WHAT"), Column("WHO"), Column("FROM")]
    columns.append(Column("TEXT", stretch=True))
    cells = [
        [stamp(row[0]), short_id(row[1]), row[2], row[5] or row[4], row[8], row[9], row[6]] for row in rows
    ]
    table = render(columns, cells, width=width(140))
    sys.stdout.write(table if heading else table.partition("\n")[2])


def _document(row: Row) -> dict[str, Any]:
    from workbench.formats import iso

    keys = ("time", "id", "name", "attempt", "kind", "state", "text", "code", "who", "origin")
    return {"schema": "fabric.happening/1", **dict(zip(keys, row, strict=True)), "time": iso(row[0])}
