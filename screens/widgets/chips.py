"""The terms of a filter, each with a sign to take it away; not there while nothing is filtered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from screens.core.app_protocol import JumpTarget
from screens.style import text
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle
from workbench import formats


class Chips(CachedStyle):
    """A line of terms; a click on one takes it away."""

    terms: reactive[tuple[str, ...]] = reactive(())

    class Removed(Message):
        """A term was clicked."""

        def __init__(self, term: str) -> None:
            super().__init__()
            self.term = term

    def on_mount(self) -> None:
        """Start hidden."""
        self.display = bool(self.terms)

    def watch_terms(self, terms: tuple[str, ...]) -> None:
        """Be there only when there is a filter."""
        self.display = bool(terms)

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name every term: jumping to one takes it away."""
        at = 1
        for term in self.terms:
            yield JumpTarget(at, self.region.y, partial(self.post_message, self.Removed(term)))
            at += text.cells(f" {formats.printable(term)} x ") + 1

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        base, paint = self.base, paint_of(self)
        segments = [Segment(" ", base)]
        for term in self.terms:
            segments += [
                Segment(f" {formats.printable(term)} x ", base + paint.style("accent", "reverse")),
                Segment(" ", base),
            ]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def on_click(self, event: events.Click) -> None:
        """Take away the term that was clicked."""
        at = 1
        for term in self.terms:
            width = text.cells(f" {formats.printable(term)} x ")
            if at <= event.x < at + width:
                self.post_message(self.Removed(term))
                return
            at += width + 1
