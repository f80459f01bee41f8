"""The columns of the table of jobs: which are shown at which width, what stands in each, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.themes import overlay
from screens.widgets.sparkline import sparkline
from workbench import formats
from workbench.job import TERMINAL, State, short_id
from workbench.services.inspect.job_times import expected_end_us, run_seconds, unseen_seconds
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_fields import JobField, find_field
from workbench.store.queries.job_list import is_metric
from workbench.values import dataclass

if TYPE_CHECKING:
    from screens.style.themes import Paint
    from workbench.metrics.queries import ProgressRow
    from workbench.services.inspect.sweep_best import SweepOutcome
    from workbench.store.queries.job_list import JobList
    from workbench.store.queries.sweeps import Fold

_ROWS_KEPT_MAX: Final = 128
"""Of so many rows what was drawn last is kept: more than a terminal shows."""


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
    def name(self) -> str:
        """What stands above it, and by which a saved layout keeps it."""
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
    """Return the column of a field by any of its names."""
    found = find_field(name)
    return next((each for each in COLUMNS if each.field is found), None)


def sorted_column(columns: Sequence[JobColumn], sort: str) -> JobColumn | None:
    """Return the one of some columns that a list is sorted by."""
    return next((column for column in columns if column.sort == sort), None)


def layout(width: int, names: Sequence[str] = (), sort: str = "") -> list[tuple[JobColumn, int]]:
    """Choose columns for a table so wide, or those of the given names, and how many cells each gets.

    The column that it is sorted by has room for the sign of the direction; that of a metric stands behind the name.
    """
    shown = [column for name in names if (column := column_named(name)) is not None]
    shown = shown or [column for column in COLUMNS if column.from_width <= width]
    if sort and is_metric(sort):
        at = next((i + 1 for i, column in enumerate(shown) if column.name == "name"), len(shown))
        shown = [*shown[:at], metric_column(sort), *shown[at:]]
    signed = sorted_column(shown, sort)
    widths = [column.width for column in shown]
    if signed is not None and signed.width:
        widths[shown.index(signed)] = max(signed.width, min(_METRIC_MOST, len(signed.name) + 1))
    fixed = sum(widths) + GAP * (len(shown) - 1)
    flexible = [column for column in shown if not column.width]
    left = max(_NAME_LEAST * len(flexible), width - fixed)
    share: Mapping[str, int] = {}
    if len(flexible) == 2:  # a name is short, a reason is not
        name = max(_NAME_LEAST, min(28, left * 2 // 5))
        share = {"name": name, "why": left - name}
    return [
        (column, size or share.get(column.name, left)) for column, size in zip(shown, widths, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What a row shows, but for the time."""

    job: JobRow
    fold: Fold | None
    """What the row stands for, where that is several jobs."""
    sign: str
    """What stands before it: a mark, or a blank."""
    figures: Figures
    trend: Sequence[float | None]
    outcome: SweepOutcome | None
    """What a fold has come to."""
    is_opened: bool
    """Whether the job is of a sweep whose rows are shown."""


@dataclass(frozen=True, slots=True)
class _DrawnRow:
    """A row as it was drawn last."""

    facts: RowFacts
    now_us: int
    parts: Sequence[text.Part]
    strip: Strip


class RowPainter:
    """Draws the heading and the rows, and keeps what was drawn last."""

    def __init__(self) -> None:
        self.columns: list[tuple[JobColumn, int]] = []
        """With their widths."""
        self.width = 0
        self._columns_for: object = None
        self._drawn_with: object = None
        """What all rows are drawn with; None before the first drawing."""
        self._drawn: dict[str, _DrawnRow] = {}
        """Rows as they were drawn last, by the ids of their jobs."""
        self._base = Style()
        self._paint: Paint | None = None

    def begin(self, width: int, wanted: tuple[str, ...], sort: str, base: Style, paint: Paint) -> None:
        """Choose the columns for the width; what was drawn with other colours or columns is forgotten."""
        columns_for = width, wanted, sort
        if columns_for != self._columns_for:
            self._columns_for, self.width = columns_for, width
            self.columns = layout(max(1, width - 2), wanted, sort)
        self._base, self._paint = base, paint
        look = columns_for, base, paint, glyphs()
        if look != self._drawn_with:
            self._drawn_with = look
            self._drawn.clear()

    def last(self, job_id: str) -> Strip | None:
        """Return a row as it was drawn last."""
        known = self._drawn.get(job_id)
        return known.strip if known is not None else None

    def row(self, facts: RowFacts, now_us: int) -> Strip:
        """Return a row without the cursor; the one that was drawn last where nothing that it shows has changed."""
        job_id = facts.job.id
        known = self._drawn.get(job_id)
        if known is not None and known.facts == facts and known.now_us == now_us:
            return known.strip
        parts = self._job_parts(facts, now_us) if facts.fold is None else self._fold_parts(facts, facts.fold)
        parts.insert(0, (facts.sign, "accent", "bold"))
        if known is not None and known.parts == parts:
            strip = known.strip
        else:
            strip = self.line([Segment(shown, self._style(*look)) for shown, *look in parts])
        if known is None and len(self._drawn) >= _ROWS_KEPT_MAX:
            del self._drawn[next(iter(self._drawn))]
        self._drawn[job_id] = _DrawnRow(facts, now_us, parts, strip)
        return strip

    def _job_parts(self, facts: RowFacts, now_us: int) -> list[text.Part]:
        """Return the cells of a job's row."""
        line = Line(facts.job, facts.figures, now_us, facts.trend, facts.is_opened)
        return _cells([(column, column.cell(line), size) for column, size in self.columns])

    def _fold_parts(self, facts: RowFacts, fold: Fold) -> list[text.Part]:
        """Return a fold's row: its states where those of jobs stand, then its name and what it has come to."""
        width = self.width - 1
        titles = [column.name for column, _ in self.columns]
        sizes = {column.name: size for column, size in self.columns}
        lead = sizes["state"] if titles[:1] == ["state"] else 0
        name_width = sizes.get("name", 0) if titles[1:2] == ["name"] else 0
        states = state_counts(fold, lead or width // 3)
        parts = fold_parts(fold, facts.outcome, name_width)
        used = sum(text.cells(shown) for shown, _, _ in states)
        blank = " " * max(0, lead + GAP - used) or " "
        return text.fit([*states, (blank, "text", ""), *parts], width)

    def heading(self, listing: JobList) -> Strip:
        """Draw the titles of the columns; the one that the list is sorted by has the direction."""
        cells = []
        signed = sorted_column([column for column, _ in self.columns], listing.sort)
        for column, size in self.columns:
            cell = Cell(text.shorten(column.name, size), "dim")
            if column is signed:
                is_falling = listing.descending != column.is_reversed  # as the values of the column go
                sign = glyphs().down if is_falling else glyphs().up
                cell = Cell(text.shorten(column.name, size - 1) + sign, "accent")
            cells.append((column, cell, size))
        segments = [Segment(shown, self._style(role)) for shown, role, _ in _cells(cells)]
        return overlay(self.line([Segment(" ", self._base), *segments]), Style(bold=True))

    def notice(self, shown: str, role: str) -> Strip:
        """Draw a line that is shown while there are no rows, in the middle."""
        shown = text.shorten(shown, self.width - 2)
        left = max(0, (self.width - text.cells(shown)) // 2)
        return self.line([Segment(" " * left, self._base), Segment(shown, self._style(role))])

    def to_come(self) -> Strip:
        """Draw a row that is on its way."""
        return self.line([Segment(f"  {glyphs().more}", self._style("dim"))])

    def line(self, segments: Sequence[Segment] = ()) -> Strip:
        """Return a line of the whole width."""
        return Strip(segments).adjust_cell_length(self.width, self._base)

    def _style(self, role: str, attributes: str = "") -> Style:
        assert self._paint is not None  # it has begun
        return self._base + self._paint.style(role, attributes)

    def sort_at(self, x: int) -> str:
        """Return what a click on a column of the heading sorts by; nothing between them."""
        at = 1
        for column, width in self.columns:
            if at <= x < at + width + GAP:
                return column.sort
            at += width + GAP
        return ""

    def is_fold_sign(self, x: int) -> bool:
        """Say whether a column of the screen is that of the sign that opens a fold."""
        lead = next((size for column, size in self.columns[:1] if column.name == "state"), 0)
        return 0 <= x - 1 - lead - GAP < len(f"{glyphs().folded} ")


def _cells(cells: Sequence[tuple[JobColumn, Cell, int]]) -> list[text.Part]:
    """Return texts as wide as their columns, with what keeps them apart."""
    parts = []
    for column, cell, width in cells:
        shown = text.shorten(cell.text, width)
        blank = " " * (width - text.cells(shown))
        padded = blank + shown if column.align == "right" else shown + blank
        parts.append((padded + " " * GAP, cell.role, ""))
    return parts
