"""The columns of the table of jobs: which are shown at which width, and what stands in each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from screens.style import status
from screens.style.glyphs import glyphs
from screens.widgets.sparkline import sparkline
from workbench import formats
from workbench.job import TERMINAL, State, short_id
from workbench.services.inspect.job_times import expected_end_us, run_seconds, unseen_seconds
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_fields import JobField, find_field
from workbench.store.queries.job_list import is_metric
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.metrics.queries import ProgressRow
    from workbench.services.inspect.sweep_best import SweepOutcome
    from workbench.store.queries.sweeps import Fold


@dataclass(frozen=True, slots=True)
class Figures:
    """What a job's learners have reported last, as far as a list shows it."""

    step: int | None = None
    loss: float | None = None
    progress: ProgressRow | None = None
    """How much is done, where the job says so."""
    first_progress: ProgressRow | None = None
    """What an attempt that was resumed reported first."""
    sorted_by: float | None = None
    """The value of the metric that the list is sorted by."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row to be shown."""

    job: JobRow
    figures: Figures
    now_us: int
    trend: Sequence[float | None] = ()
    """How its main metric went, from 0 to 1, the oldest first."""
    in_opened_sweep: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a row's column, and by which role it is coloured."""

    text: str
    role: str = "text"


@dataclass(frozen=True, slots=True)
class JobColumn:
    """How a field of jobs is drawn as a column."""

    field: JobField
    width: int
    """0 takes a share of what is left."""
    cell: Callable[[Line], Cell]
    from_width: int = 0
    """The narrowest table that shows it."""

    @property
    def title(self) -> str:
        """The name by which a saved layout keeps it."""
        return self.field.name

    @property
    def heading(self) -> str:
        """What stands above it."""
        return self.field.name

    @property
    def align(self) -> Literal["left", "right"]:
        """To which side its cells are aligned."""
        return "right" if self.field.right else "left"

    @property
    def sort(self) -> str:
        """The name of what a listing is sorted by that is sorted by it."""
        return self.field.sort_key

    @property
    def is_reversed(self) -> bool:
        """Whether its values fall where those that it is sorted by rise: the oldest job was submitted first."""
        return self.field.is_turned


def _backend(line: Line) -> Cell:
    return Cell(formats.printable(line.job.target.backend))


def _state(line: Line) -> Cell:
    if unseen_seconds(line.job, line.now_us) is not None:
        return Cell(f"{glyphs().lost} {line.job.state.lower()}", "dim")
    if line.job.intent:
        verb = {"halt": "halting", "kill": "killing", "delete": "deleting"}[line.job.intent]
        return Cell(f"{status.look(line.job.state).shape} {verb}", "warning")
    return Cell(str(status.look(line.job.state)), line.job.state.lower())


def _name(line: Line) -> Cell:
    sign = f"{glyphs().cursor} " if line.in_opened_sweep else ""
    return Cell(sign + formats.printable(line.job.name))


def _progress(line: Line) -> Cell:
    progress = line.figures.progress
    if progress is None or progress.fraction is None or line.job.state is State.COMPLETED:
        return Cell("")
    role = "dim" if line.job.state in TERMINAL else "text"
    return Cell(formats.percent(max(0.0, min(1.0, progress.fraction))), role)


def _end_us(line: Line) -> int | None:
    return expected_end_us(line.job, line.figures.progress, line.figures.first_progress)


def _seconds_left(line: Line) -> float | None:
    end_us = _end_us(line)
    return None if end_us is None or end_us < line.now_us else (end_us - line.now_us) / 1e6


def _eta(line: Line) -> Cell:
    seconds = _seconds_left(line)
    return Cell("" if seconds is None else formats.short_duration(seconds))


def _end(line: Line) -> Cell:
    """Return the time of day of the expected end; a later day is in how long it is till then."""
    seconds, end_us = _seconds_left(line), _end_us(line)
    if seconds is None or end_us is None:
        return Cell("")
    shown = formats.clock_time(end_us, now_us=line.now_us)
    return Cell(shown[:5] if shown[2:3] == ":" else shown[5:10], "dim")


def _trend(line: Line) -> Cell:
    return Cell(sparkline(line.trend, TREND_CELLS) if line.trend else "", "key")


def _step(line: Line) -> Cell:
    return Cell("" if line.figures.step is None else str(line.figures.step))


def _rate(line: Line) -> Cell:
    """Return steps a second since the command started, while it runs."""
    seconds, step = run_seconds(line.job, line.now_us), line.figures.step
    if not step or not seconds or line.job.state in TERMINAL:
        return Cell("")
    return Cell(formats.compact_number(step / seconds), "dim")


def _loss(line: Line) -> Cell:
    return Cell("" if line.figures.loss is None else formats.compact_number(line.figures.loss))


def _time(line: Line) -> Cell:
    seconds = run_seconds(line.job, line.now_us)
    return Cell("" if seconds is None else formats.short_duration(seconds))


def _age(line: Line) -> Cell:
    return Cell(formats.short_duration((line.now_us - line.job.submitted_us) / 1e6), "dim")


def _why(line: Line) -> Cell:
    failed = status.is_problem(line.job)
    return Cell(status.why(line.job, line.now_us), "error" if failed else "dim")


def _tags(line: Line) -> Cell:
    return Cell(formats.printable(" ".join(line.job.tags)), "dim")


def _exit(line: Line) -> Cell:
    code = line.job.exit_code
    return Cell("" if code is None else str(code), "dim" if code == 0 else "error")


TREND_CELLS: Final = 8


def _column(name: str, width: int, cell: Callable[[Line], Cell], from_width: int = 0) -> JobColumn:
    found = find_field(name)
    if found is None:
        raise KeyError(name)
    return JobColumn(found, width, cell, from_width)


COLUMNS: Final = (
    _column("state", 13, _state),
    _column("name", 0, _name),
    _column("id", 9, lambda line: Cell(short_id(line.job.id), "dim"), 130),
    _column("backend", 8, _backend, 74),
    _column("runner", 9, lambda line: Cell(line.job.target.runner, "dim"), 160),
    _column("gpus", 4, lambda line: Cell(str(line.job.gpus or "")), 110),
    _column("step", 7, _step, 135),
    _column("step/s", 7, _rate, 150),
    _column("loss", 9, _loss, 55),
    _column("trend", TREND_CELLS, _trend, 64),
    _column("done", 4, _progress, 50),
    _column("left", 4, _eta, 60),
    _column("end", 5, _end, 125),
    _column("time", 4, _time, 50),
    _column("age", 4, _age, 66),
    _column("exit", 4, _exit, 140),
    _column("tags", 12, _tags, 150),
    _column("why", 0, _why, 100),
)

GAP: Final = 1
_NAME_LEAST: Final = 10
_METRIC_MOST: Final = 20


def fold_parts(fold: Fold, outcome: SweepOutcome | None, name_width: int) -> list[tuple[str, str, str]]:
    """Return what a fold shows behind its states: its name, how many jobs it has, and what they have come to.

    That is the best of them; of a metric that does not say what is better, between which values they are.
    """
    name = f"{glyphs().folded} {formats.printable(fold.name)}"
    parts = [
        (name.ljust(name_width + GAP), "text", "bold"),
        (f"{formats.count(len(fold.job_ids), 'job')}  ", "dim", ""),
    ]
    if outcome is None:
        return parts
    metric = formats.printable(outcome.metric)
    if outcome.best is not None:
        params = "  ".join(f"{name}={value}" for name, value in outcome.params)
        parts.append((f"best {metric} ", "dim", ""))
        parts.append((f"{formats.compact_number(outcome.best)}  ", "accent", ""))
        parts.append((formats.printable(params), "key", ""))
        return parts
    least, most = formats.compact_number(outcome.least), formats.compact_number(outcome.most)
    parts.append((f"last {metric} ", "dim", ""))
    parts.append((least if least == most else f"{least} to {most}", "text", ""))
    return parts


def state_counts(fold: Fold, width: int) -> list[tuple[str, str, str]]:
    """Return how many jobs of a fold are in each state, what wants attention first, as far as there is room."""
    parts: list[tuple[str, str, str]] = []
    room = width
    for state, amount in sorted(fold.states, key=lambda each: _ATTENTION.index(each[0])):
        shown = f"{status.look(state).shape}{amount} "
        if len(shown) > room + 1:
            parts.append((glyphs().more, "dim", ""))
            break
        parts.append((shown, state.lower(), ""))
        room -= len(shown)
    return parts


_ATTENTION: Final = (
    State.FAILED, State.PROCESSING, State.COMPLETED, State.QUEUED, State.HALTED, State.STORING, State.PENDING,
    State.DOWNLOADING,
)  # fmt: skip


def metric_column(metric: str) -> JobColumn:
    """Return the column of a metric that the list is sorted by."""

    def cell(line: Line) -> Cell:
        value = line.figures.sorted_by
        return Cell("" if value is None else formats.compact_number(value), "accent")

    field = JobField(metric, "number", right=True)
    return JobColumn(field, max(9, min(_METRIC_MOST, len(metric) + 1)), cell)


def column_named(name: str) -> JobColumn | None:
    """Return the column of a field by its name, or by what stands above it."""
    found = find_field(name)
    return next(
        (each for each in COLUMNS if name == each.heading or (found and each.title == found.name)), None
    )


def sorted_column(columns: Sequence[JobColumn], sort: str) -> JobColumn | None:
    """Return the one of some columns that a list is sorted by."""
    return next((column for column in columns if column.sort == sort), None)


def layout(width: int, titles: Sequence[str] = (), sort: str = "") -> list[tuple[JobColumn, int]]:
    """Choose columns for a table so wide, or those of the given titles, and how many cells each gets.

    The column that it is sorted by has room for the sign of the direction; that of a metric stands behind the name.
    """
    shown = [column for title in titles if (column := column_named(title)) is not None]
    shown = shown or [column for column in COLUMNS if column.from_width <= width]
    if sort and is_metric(sort):
        at = next((i + 1 for i, column in enumerate(shown) if column.title == "name"), len(shown))
        shown = [*shown[:at], metric_column(sort), *shown[at:]]
    signed = sorted_column(shown, sort)
    widths = [column.width for column in shown]
    if signed is not None and signed.width:
        widths[shown.index(signed)] = max(signed.width, min(_METRIC_MOST, len(signed.heading) + 1))
    fixed = sum(widths) + GAP * (len(shown) - 1)
    flexible = [column for column in shown if not column.width]
    left = max(_NAME_LEAST * len(flexible), width - fixed)
    share: Mapping[str, int] = {}
    if len(flexible) == 2:  # a name is short, a reason is not
        name = max(_NAME_LEAST, min(28, left * 2 // 5))
        share = {"name": name, "why": left - name}
    return [
        (column, size or share.get(column.title, left)) for column, size in zip(shown, widths, strict=True)
    ]
