"""Tabs in one line; clicked or chosen by key, and never focused themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from rich.segment import Segment
from textual import events, on
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip

from screens.core.actions import JOB_TABS
from screens.core.app_protocol import JumpTarget
from screens.style import text
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle

TABS: Final = tuple(JOB_TABS)
"""The tabs of a job."""


class TabBar(CachedStyle):
    """Which tab is open, and which there are."""

    active: reactive[str] = reactive("")

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self, tabs: Sequence[str]) -> None:
        super().__init__()
        self.tabs = tuple(tabs)

    def neighbour(self, by: int) -> str:
        """Return the tab so many tabs further, from the last one on to the first."""
        return self.tabs[(self.tabs.index(self.active) + by) % len(self.tabs)]

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name every tab."""
        at = 1
        for number, tab in enumerate(self.tabs, start=1):
            yield JumpTarget(at, self.region.y, partial(self.post_message, self.Chosen(tab)))
            at += text.cells(_label(number, tab)) + 1

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        base, paint = self.base, paint_of(self)
        segments = [Segment(" ", base)]
        for number, tab in enumerate(self.tabs, start=1):
            active = tab == self.active
            style = paint.style("key" if active else "dim", "bold reverse" if active else "")
            segments += [Segment(_label(number, tab), base + style), Segment(" ", base)]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def on_click(self, event: events.Click) -> None:
        """Choose the tab that was clicked."""
        at = 1
        for number, tab in enumerate(self.tabs, start=1):
            width = text.cells(_label(number, tab))
            if at <= event.x < at + width:
                self.post_message(self.Chosen(tab))
                return
            at += width + 1


class TabKeys(Screen[None]):
    """A screen with a :class:`TabBar`: clicks and keys open its tabs."""

    def show(self, tab: str) -> None:
        """Open a tab."""
        raise NotImplementedError

    @on(TabBar.Chosen)
    def _chosen(self, chosen: TabBar.Chosen) -> None:
        self.show(chosen.tab)

    def action_run_next_tab(self) -> None:
        """The next tab."""
        self.show(self.query_one(TabBar).neighbour(1))

    def action_run_previous_tab(self) -> None:
        """The tab before."""
        self.show(self.query_one(TabBar).neighbour(-1))

    def action_run_tab(self, number: int) -> None:
        """The tab of that number, where there is one."""
        tabs = self.query_one(TabBar).tabs
        if number <= len(tabs):
            self.show(tabs[number - 1])


def _label(number: int, tab: str) -> str:
    return f" {number} {tab} "
