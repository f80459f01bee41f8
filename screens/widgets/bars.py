"""The line on top of a screen, which says where one is, and the one at its foot: what can be done."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.reactive import reactive
from textual.strip import Strip

from screens.core import actions
from screens.core.app_protocol import Part, fabric_app
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle


class Heading(CachedStyle):
    """Breadcrumbs to the left, news to the right; what does not fit is cut from the crumbs."""

    crumbs: reactive[tuple[str, ...]] = reactive(("jobs",))
    news: reactive[tuple[Part, ...]] = reactive(())

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        paint, base, width = paint_of(self), self.base, self.size.width
        news = [part for part in self.news if part[0]]
        right = sum(text.cells(shown) + 2 for shown, _ in news)
        left = text.shorten(f" {glyphs().crumb} ".join(("fabric", *self.crumbs)), max(0, width - right - 2))
        blank = " " * max(1, width - right - text.cells(left) - 1)
        segments = [
            Segment(" ", base),
            Segment(left, base + paint.style("key", "bold")),
            Segment(blank, base),
        ]
        for shown, role in news:
            segments += [Segment(shown, base + paint.style(role)), Segment("  ", base)]
        return Strip(segments).adjust_cell_length(width, base)


class KeyBar(CachedStyle):
    """The keys of the focused pane, the most useful first, as many as fit; a click does what the key does."""

    pane: reactive[str] = reactive("runs")
    readonly: reactive[bool] = reactive(False)
    impossible: reactive[frozenset[str]] = reactive(frozenset())
    """Actions of the pane, by id, that would do nothing now: they are not shown."""

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        paint, base, width = paint_of(self), self.base, self.size.width
        segments = [Segment(" ", base)]
        shown = [
            a
            for a in actions.footer(self.pane)
            if not (a.changes and self.readonly) and a.id not in self.impossible
        ]
        for action in self._fitting(shown, width - 2):
            meta = Style.from_meta({"@click": f"app.perform('{action.id}')"})
            key = self._key(action)
            segments += [
                Segment(key, base + paint.style("key", "bold") + meta),
                Segment(f" {action.title}", base + paint.style("text") + meta),
                Segment("  ", base),
            ]
        return Strip(segments).adjust_cell_length(width, base)

    def _fitting(self, shown: Sequence[actions.Action], room: int) -> list[actions.Action]:
        """Return those that fit; help, which comes late in the order, is always among them."""
        kept = [action for action in shown if action.id == "app.help"]
        room -= sum(self._cells(action) for action in kept)
        for action in shown:
            if action not in kept and self._cells(action) <= room:
                kept.append(action)
                room -= self._cells(action)
        return sorted(kept, key=lambda action: action.footer)

    def _key(self, action: actions.Action) -> str:
        return actions.key_name(fabric_app(self).key_map.keys(action)[0])

    def _cells(self, action: actions.Action) -> int:
        return len(self._key(action)) + 1 + len(action.title) + 2
