"""What the screens remember from one start to the next: flat JSON, taken as harmless whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from screens.workers.writer import Write
from workbench.store.db.database import Store
from workbench.store.queries.ui_state import set_state

MEMORY_KEY: Final = "screens"
"""The name of these values in the store."""
HISTORY: Final = 50
"""So many commands and filters are remembered."""


class Memory:
    """Remembered values by name; one of the wrong kind counts as not there."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.changed = False
        """Whether something is to be written down."""
        self.is_loaded = False
        """Whether these are the store's values; before that, what is kept would take their place."""

    def load(self, values: Mapping[str, Any]) -> None:
        """Take what the store holds."""
        self._values = dict(values)
        self.is_loaded = True

    def put(self, name: str, value: Any) -> None:  # whatever JSON holds
        """Remember a value."""
        if self._values.get(name) != value:
            self._values[name] = value
            self.changed = True

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        value = self._values.get(name)
        return value if isinstance(value, str) else default

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a yes or no."""
        value = self._values.get(name)
        return value if isinstance(value, bool) else default

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a number."""
        value = self._values.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return named values."""
        value = self._values.get(name)
        return value if isinstance(value, dict) else {}

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        value = self._values.get(name)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []

    def add_to_history(self, name: str, line: str) -> None:
        """Remember a line that was typed, the newest last, each once."""
        lines = [known for known in self.texts(name) if known != line]
        self.put(name, [*lines, line][-HISTORY:])

    def save(self) -> Write:
        """Return the write that keeps all of it."""
        values = dict(self._values)
        self.changed = False

        def write(store: Store) -> str:
            set_state(store, MEMORY_KEY, values)
            return ""

        return write
