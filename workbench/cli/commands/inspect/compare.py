"""``fabric compare``: jobs beside each other, one column each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, Where

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.services.inspect.compare import Sheet
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

MOST = 20
"""More columns nobody reads."""

SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Two or more; or --where.", autocompletion=job_names),
]
All = Annotated[bool, typer.Option("--all", "-a", help="Settings that are the same, too.")]
NoCode = Annotated[bool, typer.Option("--no-code", help="Leave out how the code differs.")]


@command(
    "compare",
    "fabric compare digits other",
    "fabric compare @last digits --no-code",
    "fabric compare --where 'label:sweep=lr' --json",
)
def compare(
    jobs: SomeJobs = None, where: Where = None, all: All = False, no_code: NoCode = False, json: Json = False
) -> None:
    """Lay jobs beside each other: settings, values, code.

    Shown are the settings in which they differ, the last and the best value of each metric, and, of two jobs,
    how their code differs. Whether less of a metric is better is told by its name; where it does not tell,
    least and greatest are shown.
    """
    from workbench.services.inspect.compare import sheet_of
    from workbench.services.open_store import open_store

    with open_store() as store:
        sheets = [sheet_of(store, row) for row in _rows(store, jobs or [], where)]
        if json:
            from workbench.terminal.json_output import print_document

            print_document(_document(store.home, sheets))
        else:
            sys.stdout.write(_text(sheets, everything=all))
            if not no_code:
                sys.stdout.write(_code(store.home, sheets))


def _rows(store: Store, jobs: Sequence[str], where: list[str] | None) -> list[JobRow]:
    from workbench.clock import now_us
    from workbench.errors import UsageError
    from workbench.services.filters import read_where
    from workbench.store.jobs import resolve
    from workbench.store.queries.listing import listed

    rows = [resolve(store, text) for text in jobs]
    if where:
        found = read_where(store, where)
        rows += listed(
            store, ["deleted_us IS NULL"], {}, where=found, now_us=now_us(), descending=False, limit=MOST + 1
        )
    rows = list({row.id: row for row in rows}.values())
    if len(rows) < 2:
        raise UsageError(
            f"there is {len(rows)} job to compare; name two or more" if rows else "no job fits",
            hint="fabric compare JOB JOB, or --where FILTER",
        )
    if len(rows) > MOST:
        raise UsageError(
            f"more than {MOST} jobs do not fit beside each other",
            hint="`fabric list --columns` has one a line",
        )
    return rows


def _text(sheets: Sequence[Sheet], *, everything: bool) -> str:
    from workbench.job import nine
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    names = [sheet.row.name for sheet in sheets]
    titles = [
        name if names.count(name) == 1 else nine(sheet.row.id)
        for name, sheet in zip(names, sheets, strict=True)
    ]
    rows = [
        ["id", *(nine(sheet.row.id) for sheet in sheets)],
        ["state", *(sheet.row.state for sheet in sheets)],
        ["time", *_times(sheets)],
        *_setting_rows(sheets, everything=everything),
        *_metric_rows(sheets),
    ]
    columns = [Column("", stretch=True), *(Column(title, stretch=True) for title in titles)]
    return render(columns, rows, width=width(160))


def _times(sheets: Sequence[Sheet]) -> Iterator[str]:
    from workbench.clock import now_us
    from workbench.services.inspect.list_columns import took

    now = now_us()
    for sheet in sheets:
        yield took(sheet.row, now)


def _setting_rows(sheets: Sequence[Sheet], *, everything: bool) -> Iterator[list[str]]:
    from workbench.services.inspect.compare import differing, recorded_of, settings_of

    settings = [settings_of(sheet) for sheet in sheets]
    keys = list(settings[0]) if everything else differing(settings)
    for key in keys:
        if key != "name":
            yield [key, *(_shown(table.get(key)) for table in settings)]
    codes = [sheet.detail.code_hash[:12] for sheet in sheets]
    if everything or len(set(codes)) > 1:
        yield ["code", *(code or "-" for code in codes)]
    recorded = [recorded_of(sheet) for sheet in sheets]
    for key in ("git.commit", "python", "fabric", "host.name"):
        if len({repr(table.get(key)) for table in recorded}) > 1:
            yield [key, *(_shown(table.get(key))[:40] for table in recorded)]


def _metric_rows(sheets: Sequence[Sheet]) -> Iterator[list[str]]:
    from workbench.formats import number
    from workbench.services.inspect.compare import best_is_least

    def cells(name: str, field: str) -> list[str]:
        found = [sheet.series.get(name) for sheet in sheets]
        return ["" if each is None else number(getattr(each, field)) for each in found]

    for name in dict.fromkeys(name for sheet in sheets for name in sheet.series):
        yield [f"{name} last", *cells(name, "last")]
        least = best_is_least(name)
        if least is not False:
            yield [f"{name} least" if least is None else f"{name} best", *cells(name, "minimum")]
        if least is not True:
            yield [f"{name} greatest" if least is None else f"{name} best", *cells(name, "maximum")]


def _shown(value: Any) -> str:
    if value in (None, "", {}, []):
        return "-"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _code(home: Home, sheets: Sequence[Sheet]) -> str:
    from workbench.job import nine
    from workbench.services.inspect.compare import code_differences

    if len(sheets) != 2:
        return ""
    names = (nine(sheets[0].row.id), nine(sheets[1].row.id))
    found = code_differences(home, sheets[0].detail.code_hash, sheets[1].detail.code_hash, names)
    return "".join("\n" + "\n".join(lines) + "\n" for _, lines in found)


def _document(home: Home, sheets: Sequence[Sheet]) -> dict[str, Any]:
    from workbench.services.inspect.compare import code_differences, differing, settings_of
    from workbench.terminal.json_output import job_document

    settings = [settings_of(sheet) for sheet in sheets]
    metrics = [
        {
            name: {"last": each.last, "least": each.minimum, "greatest": each.maximum, "step": each.last_step}
            for name, each in sheet.series.items()
        }
        for sheet in sheets
    ]
    code: dict[str, list[str]] | None = None
    if len(sheets) == 2:
        found = code_differences(home, sheets[0].detail.code_hash, sheets[1].detail.code_hash, ("a", "b"))
        code = dict(found)
    return {
        "schema": "fabric.comparison/1",
        "jobs": [job_document(sheet.row) for sheet in sheets],
        "differing": {key: [table.get(key) for table in settings] for key in differing(settings)},
        "metrics": metrics,
        "code": code,
    }
