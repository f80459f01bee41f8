"""Two or more jobs side by side: charts overlaid, values, a metric over a parameter, only what differs, the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from textual import on
from textual.containers import Container
from textual.content import Content
from textual.events import Resize
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from screens.charts.curve import OTHER
from screens.charts.grid import ChartGrid
from screens.charts.plot import MARGIN
from screens.charts.queries import Charted
from screens.charts.tile import style_of
from screens.core import actions
from screens.jobs.actions import JobActions
from screens.jobs.compare_pages import (
    NO_METRICS,
    ParameterValues,
    code_page,
    compare_query,
    differences_page,
    metric_of,
    metrics_of,
    parameter_values,
    titles,
    values_page,
)
from screens.jobs.queries import JOB_COUNTERS
from screens.style import text
from screens.style.notices import EmptyNotice
from screens.style.themes import CURVE_COLOURS, paint_of
from screens.widgets.cached_style import MadeLines
from screens.widgets.prompt import Prompt
from screens.widgets.tabs import TabBar, TabKeys
from screens.widgets.text_page import ComparePage
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.services.inspect.comparison import VALUES, Comparison
from workbench.store.db.rows import JobRow

TABS: Final = ("charts", "values", "parameters", "differences", "code")
TABS_OF_KEYS: Final = {
    "compare.metric": ("values", "parameters"),
    "compare.value": ("values", "parameters"),
    "compare.parameter": ("parameters",),
    "compare.log": ("parameters",),
    "compare.equal": ("differences",),
}
"""On which tabs a key does something."""
PAGE_EDGE: Final = 4
"""Columns that a page does not write in: its blank edges and the scroll bar."""


class ParameterPlot(MadeLines, can_focus=True):
    """The values of a metric over a parameter: a point for each job."""

    PANE: ClassVar = "compare"
    BINDINGS: ClassVar = actions.bindings("compare")

    class MetricRequested(Message):
        """Another metric is to be drawn."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: ParameterValues | None = None

    def show(self, values: ParameterValues | None) -> None:
        """Draw these values."""
        if values != self._drawn:
            self._drawn = values
            self.offer_keys(has_content=self.has_points)
            self.redraw()

    @property
    def has_points(self) -> bool:
        """Whether anything is drawn."""
        return self._drawn is not None and bool(self._drawn.points)

    def make_lines(self) -> list[Strip]:
        """Make the title and the plot, or say why there is none."""
        return self.plot_lines(*self.size)

    def plot_lines(self, width: int, height: int) -> list[Strip]:
        """Make them for so many columns and lines."""
        paint, drawn = paint_of(self), self._drawn
        if drawn is None or not drawn.points:
            notice = drawn.notice if drawn else EmptyNotice("reading the jobs")
            return [self.notice_strip(notice, y, (width, height)) for y in range(height)]
        title = self.text_strip([(f" {drawn.title}", "text", "bold"), (f"  {drawn.facts}", "dim", "")], width)
        strips = [title]
        for row in drawn.draw(width, max(1, height - 2), marked=not paint.coloured):
            segments = [Segment(shown, self.base + style_of(colour, paint)) for shown, colour in row]
            strips.append(Strip(segments).adjust_cell_length(width, self.base))
        name = formats.printable(drawn.parameter)
        strips.append(
            self.text_strip(
                [(" " * (MARGIN + max(0, (width - MARGIN - text.cells(name)) // 2)) + name, "dim", "")], width
            )
        )
        return strips

    def action_move_down(self) -> None:
        """The next metric."""
        self.post_message(self.MetricRequested(1))

    def action_move_up(self) -> None:
        """The metric before."""
        self.post_message(self.MetricRequested(-1))

    def action_move_page_down(self) -> None:
        """The next metric."""
        self.post_message(self.MetricRequested(1))

    def action_move_page_up(self) -> None:
        """The metric before."""
        self.post_message(self.MetricRequested(-1))

    def action_move_top(self) -> None:
        """The metric that a person looks at first."""
        self.post_message(self.MetricRequested(0))

    def action_move_bottom(self) -> None:
        """The metric before the first: the last."""
        self.post_message(self.MetricRequested(0))
        self.post_message(self.MetricRequested(-1))


class CompareScreen(JobActions, TabKeys):
    """Several jobs."""

    BINDINGS: ClassVar = actions.early_bindings("compare", "charts")

    def __init__(self, jobs: Sequence[JobRow]) -> None:
        super().__init__()
        self.jobs = list(jobs)
        self.tab = TABS[0]
        self._comparison: Comparison | None = None
        self._titles: list[str] = []
        self._which = VALUES[0]
        self._metric = ""
        self._parameter = ""
        self._logarithmic = False
        self._equal = False
        self._diffed: tuple[str, ...] = ()

    def body(self) -> Iterator[Widget]:
        """Make the tabs."""
        yield TabBar(TABS)
        with Container(id="run-body"):
            charts = ChartGrid(id="charts")
            charts.without_metrics = NO_METRICS
            yield charts
            for name in TABS[1:]:
                yield ParameterPlot(id=name) if name == "parameters" else ComparePage(id=name)
        yield Prompt(id="run-prompt")

    def on_mount(self) -> None:
        """Begin to read."""
        query = compare_query([job.id for job in self.jobs])
        self.fabric.reader.watch(self, "jobs", query, counters=JOB_COUNTERS, every_seconds=0.5)
        self.show(self.tab)
        self.refresh_head()

    def on_unmount(self) -> None:
        """Stop reading."""
        self.fabric.reader.forget(self)

    def show(self, tab: str) -> None:
        """Open a tab; the log and the overview are each job's own, and open on its own screen."""
        if tab not in TABS:
            if self.jobs:
                self.fabric.open_job(self.jobs[0], tab)
            return
        self.tab = tab
        self.query_one(TabBar).active = tab
        for name in TABS:
            self.query_one(f"#{name}").display = name == tab
        self.query_one(f"#{tab}").focus()
        if tab == "charts":
            self._read_charts()
        else:
            self.query_one(ChartGrid).rest()
        self.refresh_keys()
        self._write()

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        if not self.whole:
            return
        self._comparison = answer.value
        self.jobs = [job.row for job in answer.value.jobs]
        names = titles(answer.value)
        if names != self._titles:
            self._titles = names
            self._read_charts()
        self._write()
        self.refresh_head()

    def on_resize(self, event: Resize) -> None:
        """Write the page for the width that there is now."""
        super().on_resize(event)
        self._write()

    def _write(self) -> None:
        """Write the page that is in view; the others are written when they come into view."""
        if self._comparison is None or not self._comparison.jobs or not self.whole:
            return
        comparison, width = self._comparison, self.size.width - PAGE_EDGE
        match self.tab:
            case "values":
                shown = values_page(
                    comparison, self.fabric.clock(), which=self._which, metric=self._metric, width=width
                )
                self.query_one("#values", ComparePage).show(shown)
            case "parameters":
                self.query_one(ParameterPlot).show(self._parameter_values(comparison))
            case "differences":
                shown = differences_page(comparison, width=width, equal=self._equal)
                self.query_one("#differences", ComparePage).show(shown)
            case "code":
                self._write_code(comparison)

    def _parameter_values(self, comparison: Comparison) -> ParameterValues:
        return parameter_values(
            comparison,
            colours=self._colours(),
            metric=self._metric,
            parameter=self._parameter,
            which=self._which,
            logarithmic=self._logarithmic,
        )

    def _colours(self) -> list[int]:
        """Return each job's colour, in all charts: of more jobs than colours the best ones have one."""
        count = len(self.jobs)
        if count <= CURVE_COLOURS or self._comparison is None:
            return [place + 1 for place in range(count)]
        metric = metric_of(self._comparison, self._metric)
        order = metric.order(metric.values("last")) if metric else list(range(count))
        best = {place: rank + 1 for rank, place in enumerate(order[:CURVE_COLOURS])}
        return [best.get(place, OTHER) for place in range(count)]

    def action_compare_metric(self) -> None:
        """The next metric; the first time the one that a person looks at first."""
        self._choose_metric(1 if self._metric or self.tab == "parameters" else 0)

    @on(ParameterPlot.MetricRequested)
    def _metric_requested(self, asked: ParameterPlot.MetricRequested) -> None:
        self._choose_metric(asked.by)

    def _choose_metric(self, by: int) -> None:
        names = [metric.name for metric in metrics_of(self._comparison)] if self._comparison else []
        if names:
            at = names.index(self._metric) if self._metric in names and by else 0
            self._metric = names[(at + by) % len(names)]
            self._write()

    def action_compare_value(self) -> None:
        """Last, smallest or largest values."""
        self._which = VALUES[(VALUES.index(self._which) + 1) % len(VALUES)]
        self._write()

    def action_compare_parameter(self) -> None:
        """The next parameter."""
        keys = [value.key for value in self._comparison.varied] if self._comparison else []
        if keys:
            at = keys.index(self._parameter) if self._parameter in keys else 0
            self._parameter = keys[(at + 1) % len(keys)]
            self._write()

    def action_compare_log(self) -> None:
        """Logarithmic or linear."""
        self._logarithmic = not self._logarithmic
        self._write()

    def action_compare_equal(self) -> None:
        """What is equal, too, or not."""
        self._equal = not self._equal
        self._write()

    def _write_code(self, comparison: Comparison) -> None:
        hashes = tuple(job.code_hash for job in comparison.jobs)
        if hashes != self._diffed:
            self._diffed = hashes
            home = self.fabric.home
            self.fabric.background.run(
                lambda: code_page(home, comparison), self._show_code, owner=self, newest="code"
            )

    def _show_code(self, shown: Content | EmptyNotice) -> None:
        if not self.whole:
            return
        page = self.query_one("#code", ComparePage)
        if isinstance(shown, EmptyNotice):
            page.say(shown)
        else:
            page.show(shown)

    def _read_charts(self) -> None:
        if self.tab != "charts" or self._comparison is None:  # their names and colours come from all of them
            return
        self.query_one(ChartGrid).read(
            [
                Charted(job.id, name, job.started_us or job.submitted_us, colour)
                for job, name, colour in zip(self.jobs, self._titles, self._colours(), strict=True)
            ]
        )

    def refresh_head(self) -> None:
        """Say how many are compared."""
        self.head(("jobs", f"compare {formats.count(len(self.jobs), 'job')}"), ())

    def can_do(self, action_id: str) -> bool:
        """Offer what does something on the tab that is open."""
        if self.tab not in TABS_OF_KEYS.get(action_id, TABS):
            return False
        if action_id.startswith("chart."):
            return bool(self.query_one(ChartGrid).page.names)
        match action_id:
            case "compare.metric" | "compare.value":
                return self._comparison is not None and bool(self._comparison.metrics)
            case "compare.parameter":
                return self._comparison is not None and len(self._comparison.varied) > 1
            case "compare.log":
                return self.query_one(ParameterPlot).has_points
            case _:
                return super().can_do(action_id)

    def targets(self) -> list[JobRow]:
        """Return all of them."""
        return self.jobs

    def back(self) -> bool:
        """Take away what narrows the view of the charts."""
        return self.tab == "charts" and self.query_one(ChartGrid).back()
