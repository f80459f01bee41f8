"""A page of a job that is read from top to bottom."""

from __future__ import annotations

from typing import ClassVar

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from screens.core import actions


class TextPage(VerticalScroll, can_focus=True):
    """A text that scrolls; its keys are those of its own pane."""

    PANE: ClassVar = "overview"
    BINDINGS: ClassVar = actions.bindings("overview")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._static = Static(Content("loading"), markup=False)
        self._shown = Content("")

    def compose(self) -> list[Static]:
        """Hold the text."""
        return [self._static]

    def show(self, shown: Content) -> None:
        """Show a text; where the reader is in it stays."""
        if not shown.is_same(self._shown):
            self._shown = shown
            self._static.update(shown)

    @property
    def plain(self) -> str:
        """What is shown, without colours."""
        return self._shown.plain

    def action_move_down(self) -> None:
        """A line down."""
        self.scroll_relative(y=1, animate=False)

    def action_move_up(self) -> None:
        """A line up."""
        self.scroll_relative(y=-1, animate=False)

    def action_move_page_down(self) -> None:
        """A page down."""
        self.scroll_relative(y=max(1, self.size.height - 2), animate=False)

    def action_move_page_up(self) -> None:
        """A page up."""
        self.scroll_relative(y=-max(1, self.size.height - 2), animate=False)

    def action_move_top(self) -> None:
        """To the top."""
        self.scroll_home(animate=False)

    def action_move_bottom(self) -> None:
        """To the bottom."""
        self.scroll_end(animate=False)


class OverviewPage(TextPage):
    """Where the job stands."""


class UsagePage(TextPage):
    """What it uses."""

    PANE: ClassVar = "usage"
    BINDINGS: ClassVar = actions.bindings("usage")


class ConfigPage(TextPage):
    """What it was asked to be."""

    PANE: ClassVar = "config"
    BINDINGS: ClassVar = actions.bindings("config")


class ComparePage(TextPage):
    """What several jobs have in common, and what not."""

    PANE: ClassVar = "compare"
    BINDINGS: ClassVar = actions.bindings("compare")


class PlanPage(TextPage):
    """What a draft would start."""

    PANE: ClassVar = "plan"
    BINDINGS: ClassVar = actions.bindings("plan")


class BackendsPage(TextPage):
    """What there is to run on."""

    PANE: ClassVar = "places"
    BINDINGS: ClassVar = actions.bindings("places")


class EventsPage(TextPage):
    """What has happened."""

    PANE: ClassVar = "events"
    BINDINGS: ClassVar = actions.bindings("events")
