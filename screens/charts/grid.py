"""All charts of a job, or of several laid over each other, and their keys: only those in view are read and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.segment import Segment
from textual import events, on
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.base.job_tab import JobTab
from screens.charts import plot
from screens.charts.axis import Axis
from screens.charts.curve import SMOOTHINGS, Curve
from screens.charts.data import ChartData, ChartsPage
from screens.charts.layout import Block, Layout, lay_out, plot_width
from screens.charts.plot import ChartView
from screens.charts.queries import Charted, charts_page
from screens.charts.tile import Plots, tile
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.style.glyphs import glyphs
from screens.style.notices import NOTHING, EmptyNotice, no_metrics
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle
from screens.widgets.prompt import Prompt
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.metrics.short_names import shared_folder

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow

PAN: Final = 0.25
"""Share of the view that one step to the side goes."""


class ChartGrid(CachedStyle, ScrollView, can_focus=True):
    """A grid of charts that share a view; one of them is the focused one."""

    PANE: ClassVar = "charts"
    BINDINGS: ClassVar = actions.bindings("charts")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = ChartView()
        self.page = ChartsPage((), {}, self.view)
        self.plan = Layout((), 1, 1)
        self.focused_name = ""
        self.single = False
        """Whether one chart has the whole pane."""
        self.columns = 0
        """0: as many as there is room for."""
        self.pinned: list[str] = []
        self.filter_text = ""
        self.notice = EmptyNotice("loading the metrics")
        self.without_metrics = NOTHING
        """What is shown once it is known that there are no metrics."""
        self._charted: Sequence[Charted] = ()
        """The jobs that are read; none while nothing is."""
        self._tiles: dict[str, tuple[object, list[Strip]]] = {}
        self._plots = Plots()
        self._asked: tuple[object, ...] = ()
        self._shared = ""
        """What the names of all metrics begin with, and are shown without."""

    # What is read

    def read(self, charted: Sequence[Charted]) -> None:
        """Read the metrics in view of these jobs from now on."""
        self._charted = charted
        self._watch()

    def rest(self) -> None:
        """Read no more."""
        self._charted = ()
        fabric_app(self).reader.forget(self)

    def on_unmount(self) -> None:
        """Read no more."""
        self.rest()

    def _watch(self) -> None:
        if self._charted:
            query = charts_page(self._charted, self.metrics_in_view, self.plot_width, self.view, ("value",))
            fabric_app(self).reader.watch(self, "charts", query, counters=("series",), every_seconds=0.25)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        if self._charted:
            self.show(answer.value, self.without_metrics)

    # What is shown

    def show(self, page: ChartsPage, notice: EmptyNotice) -> None:
        """Take what was read; ``notice`` is shown where there are none."""
        before, kept = self.page, {}
        if page.view == before.view:
            kept = {name: data for name, data in before.charts.items() if name in page.names}
        self.page = replace(page, charts={**kept, **page.charts})
        self.offer_keys(has_content=bool(page.names))
        if before.names != page.names:
            self._shared = shared_folder(page.names)
        if (before.names, before.view, self.notice) != (page.names, page.view, notice):
            self.notice = notice
            self.rearrange()
        else:
            self._refresh_changed(before)

    def _refresh_changed(self, before: ChartsPage) -> None:
        """Draw again only the lines that differ: often but a value in a title, or the end of a curve."""
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        for block in self.plan.blocks:
            if block.top + block.height <= top or block.top >= bottom:
                continue
            for index, name in enumerate(block.names):
                old, new = before.charts.get(name), self.page.charts.get(name)
                if old is new:
                    continue
                shown = self._tiles.get(name)
                if shown is None:
                    self.refresh_lines(block.top, block.height)
                    continue
                changed = [
                    Region(index * block.cell_width, block.top + y - top, block.cell_width, 1)
                    for y, (one, other) in enumerate(zip(shown[1], self._tile(name, block), strict=False))
                    if one != other
                ]
                if changed:
                    self.refresh(*changed)

    @property
    def shown_names(self) -> list[str]:
        """The metrics that the filter lets through; one alone when a chart has the whole pane."""
        names = [name for name in self.page.names if self.filter_text.lower() in name.lower()]
        return [self.focused_name] if self.single and self.focused_name in names else names

    def rearrange(self) -> None:
        """Lay out again, and ask for what is in view and not at hand."""
        names, size = self.shown_names, self.size
        if not size.width:
            return
        if self.focused_name not in self.page.names:
            self.focused_name = names[0] if names else ""
        pinned = () if self.single else self.pinned
        self.plan = lay_out(names, pinned, self.room, size.height, columns=self.columns)
        self.virtual_size = Size(self.room, self.plan.height)
        self.ask()
        self.refresh()

    def ask(self) -> None:
        """Read the charts in view, when these are others than before."""
        in_view = self.metrics_in_view
        asked = (
            in_view and tuple(in_view),
            self.plot_width,
            self.view.axis,
            self.view.x_low,
            self.view.x_high,
        )
        if asked != self._asked:
            self._asked = asked
            self._watch()

    @property
    def metrics_in_view(self) -> list[str] | None:
        """The metrics in view; None while nothing is known of them."""
        if not self.page.names:
            return None
        return self.plan.in_view(self.scroll_offset.y, self.size.height)

    @property
    def plot_width(self) -> int:
        """How many columns one chart has."""
        return plot_width(self.plan.cell_width)

    def changed_view(self) -> None:
        """Draw again after the view changed; a zoom or another axis needs other points."""
        self.ask()
        self.refresh()

    def reveal(self, name: str) -> None:
        """Scroll until a chart is in view."""
        block = self.plan.block_of(name)
        if block is None:
            return
        top, height = self.scroll_offset.y, self.size.height
        if block.top < top:
            self.scroll_to(y=max(0, block.top - 1), animate=False, force=True)
        elif block.top + block.height > top + height:
            self.scroll_to(y=block.top + block.height - height, animate=False, force=True)

    def on_resize(self) -> None:
        """Lay out again."""
        self.rearrange()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Ask for what has come into view."""
        super().watch_scroll_y(old_value, new_value)
        self.ask()

    def on_click(self, event: events.Click) -> None:
        """Give a chart the focus, twice the whole pane; while values are inspected move their cursor."""
        block = self.plan.block_at(self.scroll_offset.y + event.y)
        if block is None or not block.names:
            return
        index = event.x // max(1, block.cell_width)
        if index >= len(block.names):
            return
        self.focused_name = block.names[index]
        if event.chain == 2:
            self.action_chart_open()
        elif self.view.cursor is not None:
            self.put_cursor(event.x - index * block.cell_width, block.cell_width)
        self.refresh()

    def _look(self, **change: Any) -> None:  # fields of View
        self.view = replace(self.view, **change)
        self.changed_view()

    def _curves(self) -> tuple[Curve, ...]:
        data = self.page.charts.get(self.focused_name)
        return data.curves if data else ()

    def _axis(self) -> Axis:
        return plot.x_axis(self._curves(), self.view)

    def set_filter(self, typed: str) -> None:
        """Show only metrics whose name holds a text."""
        self.filter_text = typed.strip()
        self.rearrange()

    def back(self) -> bool:
        """Take away the innermost thing that narrows the view; return whether there was one."""
        if self.view.cursor is not None or self.view.x_low is not None:
            self._look(cursor=None, x_low=None, x_high=None)
        elif self.single:
            self.action_chart_open()
        elif self.filter_text:
            self.set_filter("")
        else:
            return False
        return True

    # Keys: which chart

    def _step(self, by: int) -> None:
        order = self.page.names if self.single else self.plan.order
        if not order:
            return
        index = order.index(self.focused_name) if self.focused_name in order else 0
        self.focused_name = order[max(0, min(len(order) - 1, index + by))]
        if self.single:
            self.rearrange()
        else:
            self.reveal(self.focused_name)
        self.refresh()

    def action_move_down(self) -> None:
        """The next chart."""
        self._step(1)

    def action_move_up(self) -> None:
        """The chart before."""
        self._step(-1)

    def action_move_page_down(self) -> None:
        """A row of charts on."""
        self._step(2 * self.plan.columns)

    def action_move_page_up(self) -> None:
        """A row of charts back."""
        self._step(-2 * self.plan.columns)

    def action_move_top(self) -> None:
        """The first chart."""
        self._step(-(10**6))

    def action_move_bottom(self) -> None:
        """The last chart."""
        self._step(10**6)

    def action_chart_open(self) -> None:
        """Give the chart the whole pane, or show all again."""
        self.single = not self.single
        self.rearrange()
        self.reveal(self.focused_name)

    def action_chart_pin(self) -> None:
        """Keep a chart at the top, or let it go."""
        if self.focused_name in self.pinned:
            self.pinned.remove(self.focused_name)
        elif self.focused_name:
            self.pinned.append(self.focused_name)
        self.rearrange()
        self.reveal(self.focused_name)

    def action_chart_fewer_columns(self) -> None:
        """One chart less side by side."""
        self._set_columns(self.plan.columns - 1)

    def action_chart_more_columns(self) -> None:
        """One chart more side by side."""
        self._set_columns(self.plan.columns + 1)

    def _set_columns(self, columns: int) -> None:
        self.columns = max(1, min(9, columns))
        self.rearrange()

    def action_chart_filter(self) -> None:
        """Ask which metrics are shown."""
        self.screen.query_one(Prompt).ask("metrics", self.filter_text, asker=self)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        self.set_filter(typed.value)

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        self.set_filter(entered.value)
        entered.prompt.close()
        self.focus()

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        self.set_filter(left.before)
        self.focus()

    # Keys: how they are shown

    def action_chart_log(self) -> None:
        """Logarithmic or linear."""
        self._look(logarithmic=not self.view.logarithmic)

    def action_chart_smooth(self) -> None:
        """The next smoothing."""
        index = SMOOTHINGS.index(self.view.smoothing) if self.view.smoothing in SMOOTHINGS else 0
        self._look(smoothing=SMOOTHINGS[(index + 1) % len(SMOOTHINGS)])

    def action_chart_axis(self) -> None:
        """Steps, time, epochs: what was zoomed into has no meaning on another axis."""
        known = self.page.axes
        index = known.index(self.view.axis) if self.view.axis in known else -1
        self._look(axis=known[(index + 1) % len(known)], x_low=None, x_high=None, cursor=None)

    def action_chart_reset(self) -> None:
        """See all again."""
        self.columns = 0
        self._look(x_low=None, x_high=None, cursor=None)
        self.rearrange()

    def _zoom(self, factor: float) -> None:
        axis = self._axis()
        middle = self.view.cursor if self.view.cursor is not None else (axis.low + axis.high) / 2
        half = (axis.high - axis.low) * factor / 2
        if half > 0:
            self._look(x_low=middle - half, x_high=middle + half)

    def action_chart_zoom_in(self) -> None:
        """Half as much."""
        self._zoom(0.5)

    def action_chart_zoom_out(self) -> None:
        """Twice as much; when that is all there is, all of it."""
        if self.view.x_low is not None and self.view.x_high is not None:
            all_there_is = plot.x_axis(self._curves(), replace(self.view, x_low=None, x_high=None))
            if 2 * (self.view.x_high - self.view.x_low) >= all_there_is.high - all_there_is.low > 0:
                self._look(x_low=None, x_high=None)
                return
            self._zoom(2.0)

    def action_chart_inspect(self) -> None:
        """Show or hide the cursor."""
        if self.view.cursor is not None:
            self._look(cursor=None)
            return
        axis = self._axis()
        self._look(cursor=axis.high)

    def _sideways(self, direction: int) -> None:
        if self.view.cursor is not None:
            self._move_cursor(direction)
        elif self.view.x_low is not None and self.view.x_high is not None:
            by = direction * PAN * (self.view.x_high - self.view.x_low)
            self._look(x_low=self.view.x_low + by, x_high=self.view.x_high + by)

    def _move_cursor(self, direction: int) -> None:
        """Move the cursor to the next point of the focused chart, so that every press shows another value."""
        curves = self._curves()
        if not curves or self.view.cursor is None:
            return
        at = curves[0].nearest(self.view.cursor)
        if at is not None:
            at = max(0, min(len(curves[0].x) - 1, at + direction))
            self._look(cursor=curves[0].x[at])

    def put_cursor(self, x: int, cell_width: int) -> None:
        """Put the cursor under a column of the focused chart, which is so wide."""
        axis = self._axis()
        width = plot_width(cell_width)
        margin = cell_width - width
        self._look(cursor=axis.value_at(max(0, x - margin + 1), width))

    def action_chart_left(self) -> None:
        """To the left."""
        self._sideways(-1)

    def action_chart_right(self) -> None:
        """To the right."""
        self._sideways(1)

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw a line of whichever charts are there."""
        width, base = self.room, self.base
        if not self.plan.blocks:
            return self._notice_line(y, width)
        block = self.plan.block_at(self.scroll_offset.y + y)
        if block is None:
            return Strip.blank(width, base)
        if block.heading:
            title = (block.heading + "/").removeprefix(self._shared).rstrip("/") or "metrics"
            ruled = f" {formats.printable(title)} ".ljust(width - 1, glyphs().ruler)
            return Strip([Segment(ruled, base + paint_of(self).style("dim"))]).adjust_cell_length(width, base)
        line = self.scroll_offset.y + y - block.top
        strips = [self._tile(name, block)[line] for name in block.names]
        return Strip.join(strips).adjust_cell_length(width, base)

    def _tile(self, name: str, block: Block) -> list[Strip]:
        """Return a chart's lines, drawn again only when something of it has changed."""
        cell = block.cell_width, block.height
        data = self.page.charts.get(name)
        paint, focused = paint_of(self), name == self.focused_name and self.has_focus
        drawn_for = (
            id(data),
            self.view,
            cell,
            focused,
            name in self.pinned,
            id(paint),
            self.base,
            self._shared,
        )
        known = self._tiles.get(name)
        if known is None or known[0] != drawn_for:
            base = self.base
            gap = cell[0] - 1 if len(block.names) > 1 else cell[0]
            drawn = tile(
                data or ChartData(name, (), None, None, None, 0),
                self.view,
                (gap, cell[1]),
                paint,
                base,
                focused=focused,
                pinned=name in self.pinned,
                plots=self._plots,
                shared=self._shared,
            )
            lines = [strip.adjust_cell_length(cell[0], base) for strip in drawn]
            lines += [Strip.blank(cell[0], base)] * (cell[1] - len(lines))
            self._tiles[name] = known = (drawn_for, lines)
        return known[1]

    def _notice_line(self, y: int, width: int) -> Strip:
        notice = self.notice
        if self.filter_text and self.page.names:
            notice = EmptyNotice(f"no metric matches {self.filter_text!r}", "esc shows all")
        return self.notice_strip(notice, y, (width, self.size.height))


class ChartsTab(ChartGrid, JobTab):
    """The charts of one job."""

    TAB: ClassVar = "charts"
    BESIDE: ClassVar = "logs"

    def take_job(self, job: JobRow) -> None:
        """Take the job."""
        self.job, self.without_metrics = job, no_metrics(job)

    def opened(self) -> None:
        """Read the metrics."""
        if (job := self.job) is not None:
            self.read((Charted(job.id, job.name, job.started_us or job.submitted_us),))

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show no charts any more."""
        self.job = None
        self.rest()
        self.show(ChartsPage((), {}, self.view), notice)

    def can_do(self, action_id: str) -> bool | None:
        """Offer no zoom where there is no chart."""
        return bool(self.page.names) if action_id.startswith("chart.") else None
