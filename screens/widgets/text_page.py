"""A page of a job that is read from top to bottom."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from screens.core import actions
from screens.style import text
from screens.style.notices import WIDEST, EmptyNotice
from screens.widgets.markup import plain


class LineKeys(Widget):
    """The keys of a page that scrolls by lines; named behind the widget whose looks the page has."""

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


class TextPage(VerticalScroll, LineKeys, can_focus=True):
    """A text that scrolls; who inherits from it has the keys of a pane."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._static = Static(Content("loading"), markup=False)
        self._shown = Content("")

    def compose(self) -> ComposeResult:
        """Hold the text."""
        yield self._static

    def say(self, notice: EmptyNotice) -> None:
        """Show a notice in the middle of the page, and nothing else."""
        lines = notice.lines(self.size.width or WIDEST)
        self.show(
            Content("\n").join(plain(line, "" if role == "text" else role) for line, role in lines), "-notice"
        )

    def show(self, shown: Content, looks: str = "") -> None:
        """Show a text; where the reader is in it stays."""
        self.set_class(looks == "-notice", "-notice")
        if not shown.is_same(self._shown):
            # To lay out the screen again takes longer than to draw the text, which other values leave as high as it is.
            lines, before = shown.plain.split("\n"), self._shown.plain.split("\n")
            width = self._static.content_size.width
            as_high = len(lines) == len(before) and all(
                line == old or (text.cells(line) <= width and text.cells(old) <= width)
                for line, old in zip(lines, before, strict=True)
            )
            self._shown = shown
            self._static.update(shown, layout=not as_high)

    @property
    def plain(self) -> str:
        """What is shown, without colours."""
        return self._shown.plain


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
