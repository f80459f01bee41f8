"""The columns that a list of jobs can have: of the job, its settings, its labels, its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workbench.formats import ago, duration, number, size, stamp
from workbench.job import short_id
from workbench.services.inspect.job_times import run_seconds
from workbench.services.inspect.why import why

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

USUAL: Final = ("id", "name", "state", "where", "gpus", "submitted", "time", "exit", "why")

STRETCHED: Final = ("name", "why", "note", "tags", "labels")
RIGHT: Final = (
    "gpus", "cpus", "memory", "learners", "attempt", "submitted", "started", "ended", "time", "exit",
)  # fmt: skip

Cell = Callable[["JobRow", int], str]

MetricCells = Mapping[str, Mapping[str, tuple[int, float | None]]]
"""By column, then by job: the learner whose value it is, and the value; of several learners the cell names it."""

CELLS: Final[Mapping[str, Cell]] = {
    "id": lambda row, now: short_id(row.id),
    "name": lambda row, now: row.name,
    "state": lambda row, now: row.state,
    "where": lambda row, now: row.target.backend,
    "runner": lambda row, now: row.target.runner,
    "owner": lambda row, now: row.owner,
    "gpus": lambda row, now: str(row.gpus * row.learners or "-"),
    "cpus": lambda row, now: "-" if row.cpus is None else f"{row.cpus:g}",
    "memory": lambda row, now: "-" if row.memory_bytes is None else size(row.memory_bytes),
    "learners": lambda row, now: str(row.learners),
    "attempt": lambda row, now: str(row.attempt),
    "submitted": lambda row, now: ago(row.submitted_us, now),
    "started": lambda row, now: "-" if row.started_us is None else stamp(row.started_us),
    "ended": lambda row, now: "-" if row.ended_us is None else stamp(row.ended_us),
    "time": lambda row, now: took(row, now),
    "exit": lambda row, now: "" if row.exit_code is None else str(row.exit_code),
    "why": lambda row, now: why(row, now),
    "tags": lambda row, now: " ".join(row.tags),
    "labels": lambda row, now: " ".join(f"{key}={value}" for key, value in row.labels.items()),
    "note": lambda row, now: row.note,
    "parent": lambda row, now: short_id(row.parent or ""),
}
"""What a job's row alone says."""

_SETTINGS: Final = ("params.", "env.", "framework.", "data_stores.")


def cells_of(store: Store | None, names: Sequence[str], rows: Sequence[JobRow], now: int) -> list[list[str]]:
    """Return the cells of a table, one row a job.

    Raises:
        UsageError: a column is none; the hint names the nearest.
    """
    values = _metric_values(store, names, rows)
    settings = _settings_of(store, names, rows)
    return [[_cell(name, row, now, values, settings) for name in names] for row in rows]


def _cell(
    name: str,
    row: JobRow,
    now: int,
    values: MetricCells,
    settings: Mapping[str, Mapping[str, Any]],
) -> str:
    if name in CELLS:
        return CELLS[name](row, now)
    if name.startswith("label."):
        return row.labels.get(name.removeprefix("label."), "")
    if name.startswith(_SETTINGS):
        return str(settings[row.id].get(name, ""))
    if (found := values[name].get(row.id)) is None:
        return ""
    learner, value = found
    return number(value) + (f" [{learner}]" if row.learners > 1 else "")


def _metric_values(store: Store | None, names: Sequence[str], rows: Sequence[JobRow]) -> MetricCells:
    metrics = [name for name in names if name not in CELLS and not name.startswith(("label.", *_SETTINGS))]
    if not metrics or store is None:
        return {name: {} for name in metrics}
    from workbench.errors import UsageError
    from workbench.manifest.yaml.faults import nearest
    from workbench.services.filters import has_metric, nearest_metric
    from workbench.store.queries.job_list import known_metrics, known_numbers, metric_values
    from workbench.store.queries.metric_values import read_metric

    known = known_numbers(store)
    for name in metrics:
        if not has_metric(known, read_metric(name).name):
            close = nearest(name, CELLS)
            hint = f"did you mean {close}?" if close else nearest_metric(known_metrics(store), name)
            columns = ", ".join(CELLS)
            raise UsageError(
                f"there is no column {name!r}, and no job has such a metric",
                hint=f"{hint} Columns are {columns}, params.NAME, env.NAME, label.NAME and metrics",
            )
    job_ids = [row.id for row in rows]
    return {name: metric_values(store, job_ids, read_metric(name)) for name in metrics}


def _settings_of(
    store: Store | None, names: Sequence[str], rows: Sequence[JobRow]
) -> dict[str, dict[str, Any]]:
    if store is None or not any(name.startswith(_SETTINGS) for name in names):
        return {}
    from workbench.errors import InputMissing
    from workbench.services.inspect.settings import job_settings
    from workbench.store.jobs import detail

    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        try:
            found[row.id] = job_settings(detail(store, row.id))
        except InputMissing:
            found[row.id] = {}  # its folder is damaged; the list is of the others all the same
    return found


def took(row: JobRow, now: int) -> str:
    """Return how long a job ran, or runs."""
    seconds = run_seconds(row, now)
    return "-" if seconds is None else duration(seconds)
