"""How much code is taken without asking: ``[code]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SIZE: Final = "max_size"
FILES: Final = "max_files"
SECONDS: Final = "max_seconds"
KEYS: Final = (SIZE, FILES, SECONDS)


def fault_of(said: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first key of ``[code]`` whose value cannot be, and what is wrong with it; empty when nothing is."""
    from workbench.manifest.keys.units import size_bytes

    size = said.get(SIZE, "1GB")
    if not isinstance(size, str):
        return SIZE, 'must be a size in quotes, such as "1GB"'
    try:
        size_bytes(size)
    except ValueError as error:
        return SIZE, f"cannot be: {error}"
    for name in (FILES, SECONDS):
        if name in said and (type(said[name]) is not int or said[name] < 1):
            return name, "must be a number from 1"
    return "", ""


def limits(said: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return how many bytes, files and seconds are taken without asking; None where nothing is said."""
    from workbench.manifest.keys.units import size_bytes

    return size_bytes(said[SIZE]) if SIZE in said else None, said.get(FILES), said.get(SECONDS)
