"""A widget gets the size of what it shows, whenever the screen is laid out meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from textual.app import App, ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from screens.app.app import forget_boxes_on_refresh


@pytest.fixture(autouse=True)
def _textual_as_before() -> Iterator[None]:
    before = Widget.refresh
    forget_boxes_on_refresh()
    yield
    Widget.refresh = before  # type: ignore[method-assign]


class Line(App[None]):
    """One text as wide as it is."""

    CSS = "Static { width: auto; }"

    def compose(self) -> ComposeResult:
        yield Static("", id="text")


def test_a_second_text_has_its_own_width_after_a_layout_between_the_two() -> None:
    async def widths() -> list[int]:
        found = []
        app = Line()
        async with app.run_test() as pilot:
            shown = app.query_one("#text", Static)
            for first, second in (("", "what is wrong"), ("longer than before", "short")):
                shown.update(first)
                app.screen._clear_arrangement_cache()  # as a change of a widget beside it does
                app.screen._refresh_layout()
                shown.update(second)
                await pilot.pause()
                found.append(shown.region.width)
        return found

    assert asyncio.run(widths()) == [13, 5]
