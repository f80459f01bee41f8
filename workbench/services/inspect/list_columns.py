"""The columns that a list of jobs can have: of the job, its settings, its labels, its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import InputMissing, UsageError
from workbench.formats import MICROSECONDS, ago, count, duration, number
from workbench.services.inspect.job_times import run_seconds
from workbench.services.inspect.why import why
from workbench.store.queries import job_fields
from workbench.store.queries.job_fields import LABEL, JobField, find_field

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentSummary

USUAL: Final = ("id", "name", "state", "backend", "gpus", "submitted", "time", "exit", "why")

Cell = Callable[["JobRow", int], str]

MetricCells = Mapping[str, Mapping[str, tuple[int, float | None]]]
"""By column, then by job: the learner whose value it is, and the value; of several learners the cell names it."""

COMPUTED: Final[Mapping[str, Cell]] = {
    "time": lambda row, now: took(row, now),
    "why": why,
}
"""The cells of fields that a row and a service say together."""

_SETTINGS: Final = ("params.", "env.", "framework.", "data_stores.")


def cells_of(store: Store | None, names: Sequence[str], rows: Sequence[JobRow], now: int) -> list[list[str]]:
    """Return the cells of a table, one row a job.

    Raises:
        UsageError: a column is none; the hint names the nearest.
    """
    values = _metric_values(store, names, rows)
    settings = _settings_of(store, names, rows)
    cells = [_maker(name, values, settings) for name in names]
    return [[cell(row, now) for cell in cells] for row in rows]


def search_cells(store: Store, names: Sequence[str], search: ExperimentSummary, now: int) -> list[str]:
    """Return the cells of the line that stands for all trials of a search."""
    from workbench.store.queries.experiments import short_experiment_id

    row = search.row
    seconds = ((row.ended_us or now) - row.created_us) / MICROSECONDS
    cells = {
        "id": short_experiment_id(row.id),
        "name": row.name,
        "state": row.state,
        "backend": ",".join(search.backends),
        "submitted": ago(row.created_us, now),
        "time": duration(seconds),
        "why": _search_text(store, search),
    }
    return [cells.get(name, "-" if name == "gpus" else "") for name in names]


def _search_text(store: Store, search: ExperimentSummary) -> str:
    row, amount = search.row, count(search.trials, "trial")
    if row.is_open and (expected := _expected_trials(store, search)) is not None:
        amount = f"{search.trials:,} of {count(expected, 'trial')}"
    parts = [amount]
    if search.running and row.is_open:
        parts.append(f"{search.running:,} {'runs' if search.running == 1 else 'run'}")
    if search.best is not None:
        parts.append(f"best {row.metric}={number(search.best)}")
    return ", ".join(parts) + (f"; {row.reason}" if row.reason else "")


def _expected_trials(store: Store, search: ExperimentSummary) -> int | None:
    """Return how many trials an open search will have; None where its files cannot be read."""
    from workbench.search.config import SearchConfig
    from workbench.services.inspect.search_standing import UNREADABLE
    from workbench.store.queries.experiments import newest_search, read_experiment_file

    try:
        seed = read_experiment_file(store.home, search.row.id)["seed"]
        method = SearchConfig.from_json(newest_search(store.home, search.row.id)).make_method()
        return max(sum(method.outlook(seed).values()), search.trials)
    except UNREADABLE:
        return None


def column_field(name: str) -> JobField | None:
    """Return the field that a column shows; None for settings, labels and metrics."""
    found = find_field(name)
    return found if found is not None and _cell_of(found) is not None else None


def column_names() -> list[str]:
    """Return the names of the columns that every job has."""
    return [each.name for each in job_fields.JOB_FIELDS if _cell_of(each) is not None]


def _cell_of(field: JobField) -> Cell | None:
    return field.text or COMPUTED.get(field.name)


def _maker(name: str, values: MetricCells, settings: Mapping[str, Mapping[str, Any]]) -> Cell:
    """Return what makes the cells of a column."""
    field = find_field(name)
    if field is not None and (made := _cell_of(field)) is not None:
        return made
    if name.startswith(LABEL):
        return lambda row, now: row.labels.get(name.removeprefix(LABEL), "")
    if name.startswith(_SETTINGS):
        return lambda row, now: str(settings[row.id].get(name, ""))

    def metric(row: JobRow, now: int) -> str:
        if (found := values[name].get(row.id)) is None:
            return ""
        learner, value = found
        return number(value) + (f" [{learner}]" if row.learners > 1 else "")

    return metric


def _metric_values(store: Store | None, names: Sequence[str], rows: Sequence[JobRow]) -> MetricCells:
    others = [name for name in names if column_field(name) is None]
    metrics = [name for name in others if not name.startswith((LABEL, *_SETTINGS))]
    if not metrics or store is None:
        return {name: {} for name in metrics}
    from workbench.manifest.yaml.faults import nearest
    from workbench.services.filters import has_metric, nearest_metric
    from workbench.store.queries.job_list import known_metrics, known_numbers, metric_values
    from workbench.store.queries.metric_values import read_metric

    known = known_numbers(store)
    for name in metrics:
        if not has_metric(known, read_metric(name).name):
            close = nearest(name, column_names())
            hint = f"did you mean {close}?" if close else nearest_metric(known_metrics(store), name)
            columns = ", ".join(column_names())
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
    from workbench.services.inspect.settings import job_settings
    from workbench.store.queries.jobs import detail

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
