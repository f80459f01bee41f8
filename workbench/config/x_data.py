"""How large the copies of stores' data may grow at a place: ``[data]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from workbench.config.model import Config

CACHE: Final = "cache"
CACHE_AT: Final = "cache_at"
KEYS: Final = (CACHE, CACHE_AT)


def fault_of(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first key of ``[data]`` whose value cannot be, and what is wrong with it; empty when nothing is."""
    if (problem := _fault_of_size(data.get(CACHE))) and CACHE in data:
        return CACHE, problem
    places = data.get(CACHE_AT, {})
    if not isinstance(places, dict):
        return CACHE_AT, "must be a table of sizes by backend; write [data.cache_at]"
    for name, said in places.items():
        if problem := _fault_of_size(said):
            return f"{CACHE_AT}.{name}", problem
    return "", ""


def cache_bytes(backend: str, config: Config) -> int:
    """Return how large copies may grow at a place, in bytes; 0 where nothing is said: half of its disk."""
    from workbench.manifest.keys.units import size_bytes

    said = config.data.get(CACHE_AT, {}).get(backend) or config.data.get(CACHE)
    return size_bytes(said) if said else 0


def _fault_of_size(said: Any) -> str:
    from workbench.manifest.keys.units import size_bytes

    if not isinstance(said, str):
        return 'must be a size in quotes, such as "200GB"'
    try:
        size_bytes(said)
    except ValueError as error:
        return f"cannot be: {error}"
    return ""
