"""What all windows over a screen have in common: each can be left, and is left once."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A window whose answer is its first: keys that were typed ahead find it gone."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the window. Textual would close whichever screen is on top, or fail where there is none."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
