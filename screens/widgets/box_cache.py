"""Keeps Textual from giving a widget the size of what it showed before."""

from __future__ import annotations

from typing import Any, Final

from textual.widget import Widget

_refresh: Final = Widget.refresh


def forget_boxes_on_refresh() -> None:
    """Have each refresh that asks for a layout forget the sizes that were worked out before it.

    Textual 8.2.8 keeps a widget's size by the number of its layouts, and counts further refreshes only when the widget
    has been idle since. Where something else lays the screen out in between, the size of the first content is kept
    for the second one: a complaint that follows an empty text has no width and is never seen.
    """
    Widget.refresh = _refresh_and_count  # type: ignore[method-assign, assignment]


def _refresh_and_count(widget: Widget, *regions: Any, layout: bool = False, **options: Any) -> Widget:
    if layout and widget._layout_required:
        widget._layout_updates += 1
    return _refresh(widget, *regions, layout=layout, **options)
