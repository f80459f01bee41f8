"""Limits of the code that is taken without asking: ``[code]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SIZE: Final = "max_size"
FILES: Final = "max_files"
SECONDS: Final = "max_seconds"
KEYS: Final = (SIZE, FILES, SECONDS)


def fault_of(table: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first key of ``[code]`` whose value cannot be, and what is wrong with it; empty when nothing is."""
    from workbench.manifest.keys.units import size_bytes

    size = table.get(SIZE, "1GB")
    if not isinstance(size, str):
        return SIZE, 'must be a size in quotes, such as "1GB"'
    try:
        size_bytes(size)
    except ValueError as error:
        return SIZE, f"cannot be: {error}"
    for name in (FILES, SECONDS):
        if name in table and (type(table[name]) is not int or table[name] < 1):
            return name, "must be a number from 1"
    return "", ""


def limits(table: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return how many bytes, files and seconds are taken without asking; None where it is not set."""
    from workbench.manifest.keys.units import size_bytes

    return size_bytes(table[SIZE]) if SIZE in table else None, table.get(FILES), table.get(SECONDS)
