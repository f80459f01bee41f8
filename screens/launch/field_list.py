"""The lines of a form: name and value of each, which of them were changed, and which are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from screens.core import actions
from screens.launch.draft import Field
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from screens.widgets.cursor_list import CursorList
from workbench import formats

NAME_WIDTH: Final = 22


class FieldList(CursorList):
    """A form of which one line is under the cursor; it is filled in by who owns it."""

    PANE: ClassVar = "launch"
    BINDINGS: ClassVar = actions.bindings("launch")

    class Moved(Message):
        """Another line is under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fields: Sequence[Field] = ()
        self._values: Mapping[str, str] = {}
        self._changes: Mapping[str, str] = {}
        self._faults: Mapping[str, str] = {}

    @property
    def field(self) -> Field | None:
        """The line under the cursor."""
        return self.fields[self._at] if self._at < len(self.fields) else None

    def show(
        self,
        fields: Sequence[Field],
        values: Mapping[str, str],
        changes: Mapping[str, str],
        faults: Mapping[str, str],
    ) -> None:
        """Take other lines; the cursor stays on the key that it is on."""
        key = self.field.key if self.field else ""
        self.fields, self._values, self._changes, self._faults = fields, values, changes, faults
        self._at = next((i for i, one in enumerate(fields) if one.key == key), 0)
        self.virtual_size = Size(self.room, len(fields))
        self.refresh()

    def go_to(self, key: str) -> None:
        """Put the cursor on a key."""
        self._move(next((i for i, one in enumerate(self.fields) if one.key == key), self._at))

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw a line."""
        at, width, base = self.scroll_offset.y + y, self.room, self.base
        if at >= len(self.fields):
            return Strip.blank(width, base)
        one = self.fields[at]
        paint = paint_of(self)
        wrong, changed = one.key in self._faults, one.key in self._changes
        sign = "!" if wrong else glyphs().mark if changed else " "
        name = text.shorten(one.key, NAME_WIDTH - 1)
        shown, role = self._value(one)
        room = max(0, width - NAME_WIDTH - 2)
        segments = [
            Segment(sign, base + paint.style("error" if wrong else "accent", "bold")),
            Segment(
                name.ljust(NAME_WIDTH), base + paint.style("error" if wrong else "key" if changed else "dim")
            ),
            Segment(text.shorten(formats.printable(shown), room), base + paint.style(role)),
        ]
        strip = Strip(segments).adjust_cell_length(width, base)
        return overlay(strip, self._cursor()) if at == self._at else strip

    def _cursor(self) -> Style:
        return paint_of(self).cursor(focused=self.has_focus)

    def _value(self, one: Field) -> tuple[str, str]:
        """Return what stands in a line, and how: as changed, as the manifest says, or the default."""
        if one.key in self._changes:
            value = self._changes[one.key]
            return (value, "text") if value else (one.default, "dim")
        if one.key in self._values:
            return self._values[one.key], "text"
        return one.default, "dim"

    # Moving

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.fields)

    def _move(self, at: int) -> None:
        super()._move(at)
        self.post_message(self.Moved())

    def on_resize(self, event: events.Resize) -> None:
        """Keep the cursor in view."""
        del event
        self.virtual_size = Size(self.room, len(self.fields))
        self._move(self._at)
