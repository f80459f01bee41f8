"""The dashboard of a job: where it stands and when it will be done, its main charts, its usage, the end of its log."""

from __future__ import annotations

import textwrap
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from textual.geometry import Region
from textual.strip import Strip

from screens.base.job_tab import JobPage, JobTab
from screens.charts.plot import ChartView
from screens.charts.queries import Charted, charts_page
from screens.charts.tile import Plots, tile
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.jobs.log_tail import Tail, tail
from screens.jobs.text_pages import facts_page
from screens.jobs.usage_chart import amount_of, is_tight
from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.themes import paint_of
from screens.widgets.cached_style import MadeLines
from screens.widgets.markup import bar
from screens.widgets.sparkline import sparkline
from screens.widgets.text_page import TextPage
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.job import TERMINAL
from workbench.metric_names import main_metrics
from workbench.metrics.short_names import shared_folder
from workbench.services.inspect.job_overview import JobOverview
from workbench.services.inspect.job_times import expected_end_us, run_seconds
from workbench.services.inspect.usage_history import UsageHistory, usage_histories
from workbench.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.timer import Timer

    from screens.charts.data import ChartsPage
    from screens.style.notices import EmptyNotice
    from workbench.store.db.database import Store

WIDE: Final = 150
"""From so many columns on the facts stand to the right of the dashboard."""
FACTS_WIDTH: Final = 66
"""Columns of the facts to the right of the dashboard."""
MOST_CHARTS: Final = 4
CHART_LEAST_WIDTH: Final = 44
CHART_LEAST_HEIGHT: Final = 6
TAIL_LINES: Final = 60
WHY_LINES: Final = 3
USAGE_WIDTH: Final = 60
"""How many values a history of usage has at most."""
USAGE_CELL: Final = 33
"""At least so wide one measure is shown; four, two or one stand in a line, so that a GPU's measures stand together."""
REDRAW_SECONDS: Final = 0.25
"""What is read makes the dashboard be drawn again no more often than that."""
FACTS_SECONDS: Final = 0.9
"""New values alone make the facts be written again no more often than that: each second's tick does it."""
LEARNERS: Final = 8
"""Of so many learners the usage is shown; the usage page has all."""

_MEASURES: Final = {
    "cpu_percent": "CPU",
    "memory_bytes": "memory",
    "utilization_percent": "use",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How many lines each part has."""

    head: int
    chart: int
    """Lines of one chart; 0 without charts."""
    chart_rows: int
    chart_columns: int
    usage: int
    log: int

    @property
    def height(self) -> int:
        """Lines of the whole dashboard: parts are a blank or ruled line apart."""
        return self.head + sum(
            1 + lines for lines in (self.chart * self.chart_rows, self.usage, self.log) if lines
        )


def plan(width: int, height: int, *, head: int, charts: int, usage: int, log: int) -> Plan:
    """Divide the room: the log has five lines or a quarter, the usage its own, the charts what is left.

    Args:
        width: Columns.
        height: Lines.
        head: Lines of the head.
        charts: How many metrics there are to draw.
        usage: Lines that the usage would take.
        log: Lines of log there are.
    """
    usage = min(usage, 2 if height < 30 else height // 5)
    tail_lines = min(log, max(5, height // 4))
    left = height - head - sum(1 + lines for lines in (usage, tail_lines) if lines) - 1
    if not charts or left < CHART_LEAST_HEIGHT:
        roomy = max(0, height - head - 1 - (1 + usage if usage else 0))
        return Plan(head, 0, 0, 0, usage, min(log, roomy))
    columns = max(1, min(2, charts, width // CHART_LEAST_WIDTH))
    rows = 2 if charts > columns and left >= 2 * (CHART_LEAST_HEIGHT + 3) else 1
    return Plan(head, left // rows, rows, columns, usage, tail_lines)


class OverviewPage(TextPage, JobTab):
    """The first page of a job: its dashboard, and below it, or to its right where there is room, the facts."""

    TAB: ClassVar = "overview"
    PANE: ClassVar = "overview"
    BINDINGS: ClassVar = actions.bindings("overview")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._job: tuple[JobOverview, int] | None = None
        """The job, and as of when."""
        self._facts_for: object = None
        self._facts_at = 0.0

    def compose(self) -> ComposeResult:
        """Hold the dashboard and the facts."""
        yield Dashboard()
        yield from super().compose()

    def on_resize(self) -> None:
        """Take the room that there is."""
        self._fit()
        self._write_facts()

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Show a job as of now."""
        self._job = page.overview, now_us
        self._write_facts()
        self.query_one(Dashboard).show(page.overview, now_us)

    def _write_facts(self) -> None:
        """Write the facts for the width there is; before the first layout there is none, and nothing is written."""
        if self._job is None or not self.size.width:
            return
        shown, now_us = self._job
        width = FACTS_WIDTH if self.size.width >= WIDE else self.scrollable_content_region.width
        besides_values = replace(shown, metrics=(), progress=None, run_seconds=None), width
        if besides_values != self._facts_for or time.monotonic() >= self._facts_at + FACTS_SECONDS:
            self._facts_for, self._facts_at = besides_values, time.monotonic()
            self.show(facts_page(shown, now_us, width))

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show the notice instead, at every width."""
        self._job = None
        self.say(notice)

    def rest(self) -> None:
        """Read nothing while it is out of sight."""
        for dashboard in self.query(Dashboard):
            dashboard.rest()

    @property
    def plain(self) -> str:
        """What is shown, without colours."""
        return f"{self.query_one(Dashboard).plain}\n\n{super().plain}"

    def _fit(self) -> None:
        """Give the dashboard the room that can be seen at once, less that of the facts where they are to its right."""
        width, height = self.scrollable_content_region.size
        side_by_side = self.size.width >= WIDE
        self.set_class(side_by_side, "-side-by-side")
        self.query_one(Dashboard).fit(width - FACTS_WIDTH - 2 if side_by_side else width, height)


class Dashboard(MadeLines):
    """What a person looks at first; the facts stand below it, or to its right where there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.viewport = (0, 0)
        self._shown: JobOverview | None = None
        self._now_us = 0
        self._charts: ChartsPage | None = None
        self._usage: tuple[UsageHistory, ...] = ()
        self._tail: Tail | None = None
        self._read_for: object = None
        self._plots = Plots()
        self._charts_for: object = None
        self._charts_made: list[Strip] = []
        self._redrawn_at = 0.0
        self._redraw_timer: Timer | None = None

    def show(self, shown: JobOverview, now_us: int) -> None:
        """Show a job as of now, and read its charts, usage and log."""
        self._shown, self._now_us = shown, now_us
        self._read()
        self._redraw_soon()

    def rest(self) -> None:
        """Read nothing while it is out of sight."""
        self._read_for = None
        fabric_app(self).reader.forget(self)

    def on_unmount(self) -> None:
        """Read no more."""
        self.rest()

    def fit(self, width: int, height: int) -> None:
        """Take the room that there is to be seen at once."""
        if (width, height) != self.viewport:
            self.viewport = width, height
            self.styles.width = width
            if self._shown is not None and self._read_for is not None:
                self._read()
            self.redraw()

    @property
    def plain(self) -> str:
        """What is shown, without colours."""
        return "\n".join(strip.text.rstrip() for strip in self.made_lines())

    # Reading

    def _read(self) -> None:
        shown, app = self._shown, fabric_app(self)
        if shown is None or not self.viewport[0]:
            return
        row = shown.row
        names = main_metrics([series.name for series in shown.metrics], MOST_CHARTS)
        key = row.id, row.attempt, names, self.viewport[0]
        if key == self._read_for:
            return
        self._read_for = key
        app.reader.forget(self)
        app.reader.watch(self, "tail", tail(app.home, row, TAIL_LINES), counters=None, every_seconds=0.25)
        charted = Charted(row.id, row.name, row.started_us or row.submitted_us)
        charts = charts_page((charted,), names, max(8, self.viewport[0] // 2), ChartView(), ("value",))
        app.reader.watch(self, "charts", charts, counters=("series",), every_seconds=0.5)
        app.reader.watch(self, "usage", _usage_query(shown), counters=("series",), every_seconds=1.0)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take what was read."""
        if answer.key == "charts":
            self._charts = answer.value
        elif answer.key == "usage":
            self._usage = answer.value
        elif self._shown is not None and answer.value.job_id == self._shown.row.id:
            self._tail = answer.value
        self._redraw_soon()

    # Drawing

    def _redraw_soon(self) -> None:
        """Draw again, at once unless that was done a moment ago: several answers come for each point of a metric."""
        if self._redraw_timer is None:
            wait = self._redrawn_at + REDRAW_SECONDS - time.monotonic()
            if wait <= 0:
                self.redraw()
            else:
                self._redraw_timer = self.set_timer(wait, self.redraw)

    def redraw(self) -> None:
        """Make the lines again, draw those that have changed, and be as high as they are."""
        if self._redraw_timer is not None:
            self._redraw_timer.stop()
        self._redraw_timer, self._redrawn_at = None, time.monotonic()
        before = self._made
        self._changes += 1
        lines = self.made_lines()
        height = max(1, len(lines))
        if len(before) != len(lines) or self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
            self.refresh()
            return
        width = self.size.width
        changed = [y for y, (old, new) in enumerate(zip(before, lines, strict=True)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def make_lines(self) -> list[Strip]:
        """Make the head, then the charts, the usage and the end of the log as far as there is room."""
        width, height = self.viewport
        if self._shown is None or not width:
            return []
        head = self._head(self._shown, width)
        usage = _usage_cells(self._usage)
        across = 4 if width >= 4 * USAGE_CELL else 2 if width >= 2 * USAGE_CELL else 1
        usage_lines = [line for cells in usage for line in _rows_of(cells, across)]
        log = self._tail.lines if self._tail else ()
        charts = self._chart_names()
        room = plan(width, height, head=len(head), charts=len(charts), usage=len(usage_lines), log=len(log))
        lines = list(head)
        if room.chart:
            lines += [self._blank(width), *self._made_charts(charts, room, width)]
        if room.usage:
            more = len(usage_lines) - room.usage
            title = "usage" if more <= 0 else f"usage: {formats.count(more, 'more line')} on its own page"
            lines.append(self._rule(title, width))
            lines += self._usage_lines(usage_lines[: room.usage], across, width)
        if room.log:
            several = self._shown.row.learners > 1
            lines.append(self._rule("log of learner 1" if several else "log", width))
            lines += [line.strip(width, paint_of(self), self.base) for line in log[-room.log :]]
        return lines

    def _blank(self, width: int) -> Strip:
        return Strip.blank(width, self.base)

    def _rule(self, title: str, width: int) -> Strip:
        ruler = glyphs().ruler * max(0, width - len(title) - 1)
        return self.text_strip([(f"{title} ", "dim", "bold"), (ruler, "dim", "dim")], width)

    # The head

    def _head(self, shown: JobOverview, width: int) -> list[Strip]:
        row = shown.row
        parts = [(str(status.look(row.state)), row.state.lower(), "bold"), *self._progress(shown, width)]
        if row.exit_code is not None and row.state in TERMINAL:
            parts.append((f"  exit {row.exit_code}", "text", ""))
        end_us = expected_end_us(row, shown.progress, shown.first_progress)
        if end_us is not None and end_us > self._now_us:
            left = formats.duration((end_us - self._now_us) / 1e6)
            at = formats.clock_time(end_us, now_us=self._now_us)
            parts += [(f"  done in about {left}", "text", ""), (f", at {at}", "text", "")]
        seconds = run_seconds(row, self._now_us)
        if seconds is not None:
            ran = "ran" if row.state in TERMINAL else "running for"
            parts.append((f"  {ran} {formats.duration(seconds)}", "dim", ""))
        while len(parts) > 1 and sum(text.cells(shown) for shown, _, _ in parts) > width:
            parts.pop()
        lines = [self.text_strip(parts, width)]
        if why := status.why(row, self._now_us):
            role = "error" if status.is_problem(row) else "dim"
            wrapped = textwrap.wrap(why, max(20, width))
            lines += [self.text_strip([(line, role, "")], width) for line in wrapped[:WHY_LINES]]
        if shown.error is not None:
            lines.append(
                self.text_strip([("job.json cannot be read: the facts say why", "error", "")], width)
            )
        lines.append(self.text_strip([(self._facts(shown), "dim", "")], width))
        return lines

    def _progress(self, shown: JobOverview, width: int) -> list[tuple[str, str, str]]:
        progress = shown.progress
        if progress is None or shown.row.state in TERMINAL:
            return []
        parts = []
        if progress.fraction is not None:
            parts.append((f"  {bar(progress.fraction, 10 if width < 100 else 24)}", "key", ""))
            parts.append((f" {formats.percent(progress.fraction)}", "text", "bold"))
        if progress.text:
            parts.append((f"  {formats.printable(progress.text)}", "text", ""))
        return parts

    def _facts(self, shown: JobOverview) -> str:
        row = shown.row
        facts = [row.target.backend, row.target.runner]
        facts += [formats.count(row.learners, "learner")] if row.learners > 1 else []
        facts += [formats.count(row.gpus, "GPU") + (" each" if row.learners > 1 else "")] if row.gpus else []
        if shown.detail is not None:
            params = shown.detail.spec.params
            facts += ["  ".join(f"{name}={value}" for name, value in params.items())] if params else []
            facts.append(shown.detail.spec.framework.command.strip().split("\n")[0])
        return f" {glyphs().dot} ".join(formats.printable(fact) for fact in facts if fact)

    # Charts

    def _chart_names(self) -> list[str]:
        if self._charts is None or self._shown is None:
            return []
        names = main_metrics([series.name for series in self._shown.metrics], MOST_CHARTS)
        return [name for name in names if name in self._charts.charts]

    def _made_charts(self, names: Sequence[str], room: Plan, width: int) -> list[Strip]:
        """Draw the charts, or return them as they were drawn: the lines around them change more often."""
        made_for = (
            *(self._charts, names, width, room.chart, room.chart_rows, room.chart_columns),
            *(id(paint_of(self)), self.base),
        )
        if made_for != self._charts_for:
            self._charts_for, self._charts_made = made_for, self._chart_lines(names, room, width)
        return self._charts_made

    def _chart_lines(self, names: Sequence[str], room: Plan, width: int) -> list[Strip]:
        assert self._charts is not None
        shared = shared_folder(self._charts.names)
        lines: list[Strip] = []
        for start in range(0, room.chart_rows * room.chart_columns, room.chart_columns):
            shown = names[start : start + room.chart_columns]
            if not shown:
                break
            cell = width // len(shown)
            tiles = []
            for name in shown:
                drawn = tile(
                    self._charts.charts[name],
                    ChartView(),
                    (cell - 1 if len(shown) > 1 else cell, room.chart),
                    paint_of(self),
                    self.base,
                    plots=self._plots,
                    shared=shared,
                )
                padded = [strip.adjust_cell_length(cell, self.base) for strip in drawn]
                tiles.append(padded + [self._blank(cell)] * (room.chart - len(padded)))
            lines += [
                Strip.join(row).adjust_cell_length(width, self.base) for row in zip(*tiles, strict=True)
            ]
        return lines

    # Usage

    def _usage_lines(
        self, lines: Sequence[Sequence[tuple[str, UsageHistory]]], across: int, width: int
    ) -> list[Strip]:
        columns = [[cells[at] for cells in lines if at < len(cells)] for at in range(across)]
        widths = [
            (
                max((len(name) for name, _ in column), default=0),
                max((len(_limit(history)) for _, history in column), default=0),
            )
            for column in columns
        ]
        return [self._usage_line(cells, widths, width // across, width) for cells in lines]

    def _usage_line(
        self,
        cells: Sequence[tuple[str, UsageHistory]],
        widths: Sequence[tuple[int, int]],
        cell: int,
        width: int,
    ) -> Strip:
        parts: list[tuple[str, str, str]] = []
        for (name, history), column in zip(cells, widths, strict=False):
            parts += _usage_cell(name, history, column, cell - 2)
            parts.append(("  ", "text", ""))
        return self.text_strip(parts, width)


def _usage_query(shown: JobOverview) -> Callable[[Store], tuple[UsageHistory, ...]]:
    job_id, spec = shown.row.id, shown.detail.spec if shown.detail else None
    return lambda store: usage_histories(store, job_id, spec, width=USAGE_WIDTH, learners=LEARNERS)


def _usage_cells(histories: Sequence[UsageHistory]) -> list[list[tuple[str, UsageHistory]]]:
    """Return each learner's measures with their names, in the order in which they are shown."""
    learners = sorted({history.learner for history in histories})
    return [_cells_of(histories, learner, several=len(learners) > 1) for learner in learners]


def _cells_of(
    histories: Sequence[UsageHistory], learner: int, *, several: bool
) -> list[tuple[str, UsageHistory]]:
    own = [history for history in histories if history.learner == learner]
    gpus = list(dict.fromkeys(history.gpu for history in own if history.gpu))
    prefix = f"{learner} " if several else ""
    found = []
    for gpu in ("", *gpus):
        where = f"GPU {gpus.index(gpu)} " if gpu else ""
        measured = [history for history in own if history.gpu == gpu and history.measure in _MEASURES]
        measured.sort(key=lambda history: list(_MEASURES).index(history.measure), reverse=bool(gpu))
        found += [(f"{prefix}{where}{_MEASURES[history.measure]}", history) for history in measured]
    return found


def _rows_of(
    cells: Sequence[tuple[str, UsageHistory]], across: int
) -> list[Sequence[tuple[str, UsageHistory]]]:
    return [cells[start : start + across] for start in range(0, len(cells), across)]


def _usage_cell(
    name: str, history: UsageHistory, widths: tuple[int, int], width: int
) -> list[tuple[str, str, str]]:
    """Draw one measure: its name, last value, limit, and how it went; ``widths`` are those of names and limits."""
    label = f"{name:<{widths[0]}} "
    last, limit = f"{amount_of(history.measure, history.last):>8}", f"{_limit(history):<{widths[1]}} "
    known = [value for value in history.values if value is not None]
    # Without a limit a little is left free above, so that a steady use does not look like a full one.
    most = history.limit or max(known, default=0.0) * 1.25 or 1.0
    shares = [None if value is None else value / most for value in history.values]
    curve = sparkline(shares, width - len(label) - len(last) - len(limit))
    return [
        (label, "dim", ""),
        (last, "warning" if is_tight(history) else "text", ""),
        (limit, "dim", ""),
        (curve, "key", ""),
    ]


def _limit(history: UsageHistory) -> str:
    if history.limit is None or history.measure == "utilization_percent":
        return ""
    return f" of {amount_of(history.measure, history.limit)}"
