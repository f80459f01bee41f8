"""What keys do to charts: zoom, pan, smooth, inspect, choose. Keeps the view, and draws nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.message import Message
from textual.widget import Widget

from screens.charts import plot
from screens.charts.axis import Axis
from screens.charts.curve import SMOOTHINGS, Curve
from screens.charts.data import ChartsPage
from screens.charts.layout import Layout, plot_width
from screens.charts.plot import ChartView

PAN = 0.25
"""Share of the view that one step to the side goes."""


class ChartKeys(Widget):
    """The keys of a grid of charts."""

    class FilterRequested(Message):
        """The reader wants to say which metrics are shown."""

    def __init__(self, *args: Any, **options: Any) -> None:  # passed on as they are
        super().__init__(*args, **options)
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

    # What the grid does when a key has changed something

    @property
    def plot_width(self) -> int:
        """How many columns one chart has."""
        raise NotImplementedError

    def rearrange(self) -> None:
        """Lay the charts out again."""
        raise NotImplementedError

    def reveal(self, name: str) -> None:
        """Scroll until a chart is in view."""
        raise NotImplementedError

    def changed_view(self) -> None:
        """Draw again after the view has changed."""
        raise NotImplementedError

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

    def undo(self) -> bool:
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

    # Which chart

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
        self.post_message(self.FilterRequested())

    # How they are shown

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
