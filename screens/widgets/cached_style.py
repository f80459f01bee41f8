"""What widgets that draw line by line share: their own style, worked out once a drawing and not once a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.color import Color
from textual.css.styles import StylesBase
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from screens.style import text
from screens.style.notices import EmptyNotice
from screens.style.themes import paint_of


class KeysChanged(Message):
    """Other keys than before do something: a page has got what they are for, or lost it."""


_LINES_KEPT_MAX: Final = 256
"""Of so many lines a widget keeps what Textual made of them."""


class PlainLines(StylesCache):
    """Keeps what becomes of each line of a widget that has neither border nor effects, wherever the line stands.

    Textual 8.2.8 keeps it by the row of the screen, and works out the rules of the style for each row again: a list
    that is scrolled by one line costs as much as one that is new.
    """

    def __init__(self, widget: CachedStyle) -> None:
        super().__init__()
        self._widget = widget
        self._has_begun = False
        self._is_plain = False
        self._finished: dict[int, tuple[Strip, Strip]] = {}
        """By the identity of a line: the line itself, which keeps the identity its own, and what became of it."""
        self._finished_for: object = None

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        """Draw some lines of the widget: those that have changed since."""
        self._has_begun = False
        return super().render_widget(widget, crop)

    def render_line(
        self,
        styles: StylesBase,
        y: int,
        size: Size,
        content_size: Size,
        padding: Spacing,
        base_background: Color,
        background: Color,
        render_content_line: Callable[[int], Strip],
        *effects: Any,  # which a plain widget has none of
        **named_effects: Any,
    ) -> Strip:
        """Draw one line."""
        if not self._has_begun:
            self._has_begun = True
            self._is_plain = _is_plain(self._widget)
            self._widget.begin_drawing()
        if not self._is_plain or y >= content_size.height:
            return super().render_line(
                styles, y, size, content_size, padding, base_background, background, render_content_line,
                *effects, **named_effects,
            )  # fmt: skip
        content = render_content_line(y)
        look = size.width, content_size.width, padding, base_background, background
        if look != self._finished_for or len(self._finished) >= _LINES_KEPT_MAX:
            self._finished_for = look
            self._finished.clear()
        known = self._finished.get(id(content))
        if known is not None:
            return known[1]
        blank = Style(bgcolor=(base_background + background).rich_color)
        line = content.adjust_cell_length(content_size.width, blank)
        if padding.left or padding.right:
            line = Strip.join([Strip.blank(padding.left, blank), line, Strip.blank(padding.right, blank)])
        self._finished[id(content)] = content, line
        return line


def _is_plain(widget: Widget) -> bool:
    """Say whether nothing is to be drawn around or over the lines of a widget, but for blanks at both sides."""
    styles = widget.styles
    return (
        styles.gutter == styles.padding  # so there is no border
        and not styles.padding.top
        and not styles.padding.bottom
        and not any(edge for edge, _ in styles.outline)
        and not styles.tint.a
        and not styles.has_rule("hatch")
        and styles.text_opacity == 1.0
        and widget.opacity == 1.0
    )


class CachedStyle(Widget):
    """A widget that draws itself in ``render_line``."""

    _offered_with: bool = False

    base = Style()
    """The widget's own colours, as of the drawing that is under way, or the last one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # Textual's own
        super().__init__(*arguments, **options)
        self._styles_cache = PlainLines(self)

    @property
    def room(self) -> int:
        """Columns to draw in: the widget's width without a scroll bar."""
        return self.scrollable_content_region.width

    def begin_drawing(self) -> None:
        """Work out what all lines share; it is called when the first of those is drawn that have changed."""
        self.base = self.rich_style  # Textual works it out through all ancestors: 0.2 ms each time

    def text_strip(self, parts: Sequence[text.Part], width: int) -> Strip:
        """Draw texts, each with its role and attributes, behind each other; what does not fit is cut off."""
        paint, base = paint_of(self), self.base
        segments = [
            Segment(shown, base + paint.style(role, attributes))
            for shown, role, attributes in text.fit(parts, width)
        ]
        return Strip(segments).adjust_cell_length(width, self.base)

    def offer_keys(self, *, has_content: bool) -> None:
        """Have the key bar offer what can be done with a page that has something to show now, or nothing any more."""
        if has_content != self._offered_with:
            self._offered_with = has_content
            self.post_message(KeysChanged())

    def notice_strip(self, notice: EmptyNotice, y: int, size: tuple[int, int]) -> Strip:
        """Draw a line of a page of so many columns and lines that has but a notice, in its middle."""
        width, height = size
        lines = notice.lines(width)
        index = y - max(0, (height - len(lines)) // 2)
        if not 0 <= index < len(lines):
            return Strip.blank(width, self.base)
        shown, role = lines[index]
        blank = " " * max(0, (width - text.cells(shown)) // 2)
        return self.text_strip([(blank, "text", ""), (shown, role, "")], width)


class MadeLines(CachedStyle):
    """Makes all its lines at once, since their numbers depend on each other, and again only after a change."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._changes = 0
        self._made_for: object = None
        self._made: list[Strip] = []

    def make_lines(self) -> list[Strip]:
        """Make all lines."""
        raise NotImplementedError

    def begin_drawing(self) -> None:
        """Make the lines, if what they show has changed."""
        super().begin_drawing()
        self.made_lines()

    def made_lines(self) -> list[Strip]:
        """Return all lines, made again where they are out of date; those that look as before are the same objects."""
        made_of = self._made_of()
        if made_of != self._made_for:
            self._made_for = made_of
            before, made = self._made, self.make_lines()
            same = [old if old == new else new for old, new in zip(before, made, strict=False)]
            self._made = [*same, *made[len(same) :]]
        return self._made

    def _made_of(self) -> object:
        return self.size, self.base, id(paint_of(self)), self._changes

    def redraw(self) -> None:
        """Make the lines again: what they show has changed."""
        self._changes += 1
        self.refresh()

    def redraw_changed(self) -> None:
        """Make the lines again now, and draw those alone that have become others: most of the time none has."""
        if self._made_of() != self._made_for:
            self.redraw()  # it is to be drawn anyway
            return
        before = self._made
        self._changes += 1
        made = self.made_lines()
        if len(made) != len(before):
            self.refresh()
            return
        top = self.content_region.y - self.region.y
        for y, (old, new) in enumerate(zip(before, made, strict=True), top):
            if new is not old:
                self.refresh(Region(0, y, self.outer_size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Draw a line."""
        return self._made[y] if y < len(self._made) else Strip.blank(self.size.width, self.base)
