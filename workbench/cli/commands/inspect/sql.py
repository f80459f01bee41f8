"""``fabric sql``: one query over the store, which cannot change anything."""

from __future__ import annotations

import csv as csv_writer
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json
from workbench.errors import InputMissing, UsageError
from workbench.learner.texts import clean, escaped
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.documents.jobs import RowDocument

EXAMPLE = "select name, state, exit_code from jobs where state = 'FAILED'"

Query = Annotated[
    str,
    typer.Argument(metavar="[QUERY]", help="One SELECT; `-` reads it from stdin; none lists the views."),
]
Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values.")]


@command(
    "sql",
    "fabric sql",
    f'fabric sql "{EXAMPLE}"',
    "fabric sql \"select setting(id, 'params.lr') lr, min(last) from jobs join metrics using (id) "
    "where metrics.name = 'loss' group by lr\" --csv",
)
def sql(query: Query = "", csv: Csv = False, json: Json = False) -> None:
    """Query the database with SQL, read-only.

    Without a query, the views are listed with their columns. `setting(id, 'params.lr')` returns any setting
    of a job. Times are UTC strings, `seconds` are numbers.
    """
    from workbench.paths import Home, default_home
    from workbench.services.open_store import attend_open_jobs
    from workbench.store.db.setup import refuse_lost_database
    from workbench.store.queries.sql_console import open_views

    if csv and json:
        raise UsageError("--csv and --json exclude each other")
    home = Home(default_home())
    refuse_lost_database(home)
    if not home.database.exists():
        raise InputMissing(f"there is no store in {home.path} yet", hint="the first job creates it")
    text = sys.stdin.read() if query == "-" else query
    attend_open_jobs()
    with open_views(home) as asking:
        if not text.strip():
            _print_views(json=json)
            return
        cursor = asking.run(text)
        names = [each[0] for each in cursor.description or ()]
        if csv:
            writer = csv_writer.writer(sys.stdout, lineterminator="\n")
            writer.writerow([_csv_cell(name) for name in names])
            writer.writerows([_csv_cell(value) for value in row] for row in asking.rows(cursor))
        elif json:
            _print_json(names, asking.rows(cursor))
        else:
            _print_table(names, list(asking.rows(cursor)))


def _print_json(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    from workbench.terminal.json_output import print_document

    if "schema" in names:
        raise UsageError("--json names each row's form `schema`", hint="give the column another name with AS")
    documents = [
        {"schema": "fabric.row/1", **dict(zip(names, map(_json_cell, row), strict=True))} for row in rows
    ]
    print_document(cast("list[RowDocument]", documents))  # its other keys are the query's


def _json_cell(value: Any) -> Any:
    """Return a value that JSON has: bytes are hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else value


def _print_table(names: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    from workbench.terminal.table import Column, render

    columns = [
        Column(name, right=all(isinstance(row[i], (int, float, type(None))) for row in rows), stretch=True)
        for i, name in enumerate(names)
    ]
    cells = [["" if value is None else _text(value) for value in row] for row in rows]
    if names:
        sys.stdout.write(render(columns, cells, width=width(200)))
    if not rows:
        narrate("no rows")


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escaped(str(value))


def _csv_cell(value: Any) -> Any:
    """Return a value without what controls a terminal; newlines stay, since CSV has quotes for them."""
    return clean(value) if isinstance(value, str) else value


def _print_views(*, json: bool) -> None:
    from workbench.store.queries.sql_console import FUNCTIONS, VIEWS
    from workbench.terminal.json_output import print_document

    if json:
        print_document(
            [
                {
                    "schema": "fabric.view/1",
                    "name": view.name,
                    "about": view.about,
                    "columns": list(view.columns),
                }
                for view in VIEWS
            ]
        )
        return
    for view in VIEWS:
        print(f"{view.name}: {view.about}\n  {', '.join(view.columns)}\n")
    print("\n".join(f"{name}: {about}" for name, about in FUNCTIONS.items()))
