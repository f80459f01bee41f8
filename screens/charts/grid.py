"""All charts of a job, or of several laid over each other: only those in view are read and drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.charts.data import ChartData, ChartsPage
from screens.charts.keys import ChartKeys
from screens.charts.layout import Block, lay_out, plot_width
from screens.charts.tile import Plots, tile
from screens.core import actions
from screens.style.glyphs import glyphs
from screens.style.notices import EmptyNotice
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle
from workbench import formats
from workbench.metrics.short_names import shared_folder


class ChartGrid(ChartKeys, CachedStyle, ScrollView, can_focus=True):
    """A grid of charts that share a view; one of them is the focused one."""

    PANE: ClassVar = "charts"
    BINDINGS: ClassVar = actions.bindings("charts")

    class SeriesRequested(Message):
        """Other charts, or other points of them, are needed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.notice = EmptyNotice("loading the metrics")
        self._tiles: dict[str, tuple[object, list[Strip]]] = {}
        self._plots = Plots()
        self._asked: tuple[object, ...] = ()
        self._shared = ""
        """What the names of all metrics begin with, and are shown without."""

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
        """Tell the screen which charts are in view, when these are others than before."""
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
            self.post_message(self.SeriesRequested())

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
