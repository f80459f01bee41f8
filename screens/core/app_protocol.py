"""From a widget to the app that it belongs to, as what that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from textual.widget import Widget

    from screens.app.app import FabricApp


def fabric_app(widget: Widget) -> FabricApp:
    """Return the app."""
    return cast("FabricApp", widget.app)
