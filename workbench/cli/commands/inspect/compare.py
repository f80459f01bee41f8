"""``fabric compare``: jobs side by side, one column each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, Where
from workbench.terminal.console import width

if TYPE_CHECKING:
    from workbench.documents.jobs import ComparisonDocument, MetricSummary
    from workbench.paths import Home
    from workbench.services.inspect.comparison import (
        ComparedMetric,
        ComparedValue,
        Comparison,
        FileDifference,
        JobRecord,
    )
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

MAX_JOBS = 20
"""More columns nobody reads."""

SHOWN_RECORDED = ("git.commit", "python", "fabric", "host.name")
"""What is shown of what was recorded, where jobs differ in it; `fabric diff` shows all of it."""

SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Two or more; or --where.", autocompletion=job_names),
]
All = Annotated[bool, typer.Option("--all", "-a", help="Also show equal settings.")]
NoCode = Annotated[bool, typer.Option("--no-code", help="Omit the code differences.")]


@command(
    "compare",
    "fabric compare digits other",
    "fabric compare @last digits --no-code",
    "fabric compare --where 'labels:sweep=lr' --json",
)
def compare(
    jobs: SomeJobs = None, where: Where = None, all: All = False, no_code: NoCode = False, json: Json = False
) -> None:
    """Compare jobs side by side: settings, values, code.

    Shows the settings that differ, the last and the best value of each metric and, for two jobs, how their
    code differs. The metric's name decides whether smaller values are better; where it does not, the minimum
    and the maximum are shown.
    """
    from workbench.services.inspect.comparison import compare as compare_jobs
    from workbench.services.open_store import open_store

    with open_store() as store:
        compared = compare_jobs(store, _rows(store, jobs or [], where))
        if json:
            from workbench.terminal.json_output import print_document

            print_document(_document(store.home, compared))
        else:
            sys.stdout.write(_text(compared, everything=all))
            if not no_code:
                sys.stdout.write(_code(store.home, compared.jobs))


def _rows(store: Store, jobs: Sequence[str], where: list[str] | None) -> list[JobRow]:
    from workbench.errors import UsageError
    from workbench.services.inspect.job_query import JobQuery, find
    from workbench.store.queries.resolve import each_name, resolve

    rows = [resolve(store, text) for text in each_name(store, jobs)]
    if where:
        rows += find(store, JobQuery(where=tuple(where), sort="submitted", limit=MAX_JOBS + 1)).rows
    rows = list({row.id: row for row in rows}.values())
    if len(rows) < 2:
        raise UsageError(
            f"only {len(rows)} job to compare; name two or more" if rows else "no matching jobs",
            hint="fabric compare JOB JOB, or --where FILTER",
        )
    if len(rows) > MAX_JOBS:
        raise UsageError(
            f"more than {MAX_JOBS} jobs cannot be compared side by side",
            hint="`fabric list --columns` shows one per line",
        )
    return rows


def _text(compared: Comparison, *, everything: bool) -> str:
    from workbench.clock import now_us
    from workbench.job import short_id
    from workbench.metrics.short_names import shared_folder
    from workbench.services.inspect.list_columns import took
    from workbench.terminal.table import Column, render

    rows = [job.row for job in compared.jobs]
    names = [row.name for row in rows]
    titles = [row.name if names.count(row.name) == 1 else short_id(row.id) for row in rows]
    now = now_us()
    shared = shared_folder(metric.name for metric in compared.metrics)
    lines = [
        ["id", *(short_id(row.id) for row in rows)],
        ["state", *(row.state for row in rows)],
        ["time", *(took(row, now) for row in rows)],
        *_setting_lines(compared, everything=everything),
        *(line for metric in compared.metrics for line in _metric_lines(metric, shared)),
    ]
    columns = [Column("", stretch=True), *(Column(title, stretch=True) for title in titles)]
    return render(columns, lines, width=width(160))


def _setting_lines(compared: Comparison, *, everything: bool) -> Iterator[list[str]]:
    for setting in compared.settings:
        if setting.key != "name" and (everything or setting.differs):
            yield _line(setting)
    codes = [job.code_hash[:12] for job in compared.jobs]
    if everything or len(set(codes)) > 1:
        yield ["code", *(code or "-" for code in codes)]
    recorded = {each.key: each for each in compared.recorded}
    for key in SHOWN_RECORDED:
        if key in recorded and recorded[key].differs:
            yield _line(recorded[key])


def _line(value: ComparedValue) -> list[str]:
    return [value.key, *map(_shown, value.values)]


def _metric_lines(metric: ComparedMetric, shared: str) -> Iterator[list[str]]:
    from workbench.formats import number

    def line(what: str, field: str) -> list[str]:
        cells = ["" if each is None else number(getattr(each, field)) for each in metric.series]
        return [f"{metric.name.removeprefix(shared)} {what}", *cells]

    yield line("last", "last")
    if metric.smaller_is_better is None:
        yield line("least", "minimum")
        yield line("greatest", "maximum")
    else:
        yield line("best", "minimum" if metric.smaller_is_better else "maximum")


def _shown(value: Any) -> str:
    if value in (None, "", {}, []):
        return "-"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _code(home: Home, jobs: Sequence[JobRecord]) -> str:
    from workbench.job import short_id
    from workbench.services.inspect.comparison import code_differences

    if len(jobs) != 2:
        return ""
    labels = (short_id(jobs[0].row.id), short_id(jobs[1].row.id))
    found = code_differences(home, jobs[0].code_hash, jobs[1].code_hash, labels)
    return "".join("\n" + "\n".join(difference_lines(each)) + "\n" for each in found)


def difference_lines(difference: FileDifference) -> list[str]:
    """Return how a file differs, as lines: the unified difference, or both sizes where it is not a text."""
    if difference.lines is not None:
        return list(difference.lines)
    sizes = [
        "not there" if size is None else f"{size:,} bytes"
        for size in (difference.before_bytes, difference.after_bytes)
    ]
    return [f"{difference.name} differs: {', '.join(sizes)}"]


def _document(home: Home, compared: Comparison) -> ComparisonDocument:
    from workbench.services.inspect.comparison import code_differences
    from workbench.services.inspect.job_document import job_document

    metrics: list[dict[str, MetricSummary]] = [
        {
            name: {"last": each.last, "least": each.minimum, "greatest": each.maximum, "step": each.last_step}
            for name, each in job.series.items()
        }
        for job in compared.jobs
    ]
    code: dict[str, list[str]] | None = None
    if len(compared.jobs) == 2:
        found = code_differences(home, compared.jobs[0].code_hash, compared.jobs[1].code_hash)
        code = {each.name: difference_lines(each) for each in found}
    return {
        "schema": "fabric.comparison/1",
        "jobs": [job_document(job.row) for job in compared.jobs],
        "differing": {each.key: list(each.values) for each in compared.settings if each.differs},
        "metrics": metrics,
        "code": code,
    }
