"""What the screens remember between two starts: JSON values by key."""

from __future__ import annotations

import json
from typing import Any

from workbench.store.db.database import Store
from workbench.store.db.rows import dump


def get_state(store: Store, key: str, default: Any = None) -> Any:  # whatever JSON holds
    """Return what is remembered under a key, or ``default``; garbage counts as nothing."""
    found = store.row("SELECT value FROM ui_state WHERE key = ?", (key,))
    if found is None:
        return default
    try:
        return json.loads(found[0])
    except ValueError:
        return default


def set_state(store: Store, key: str, value: Any) -> None:  # whatever JSON holds
    """Remember a JSON value under a key; None forgets it."""
    with store.atomic():
        if value is None:
            store.execute("DELETE FROM ui_state WHERE key = ?", (key,))
        else:
            store.execute("INSERT OR REPLACE INTO ui_state VALUES (?, ?)", (key, dump(value)))
