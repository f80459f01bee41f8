"""A job's settings by their dotted keys, and where the value of each came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.store.db.rows import JobDetail


def job_settings(detail: JobDetail) -> dict[str, Any]:
    """Return every setting of a job, in the order of its dotted keys; elements of lists have their number as key."""
    from workbench.spec import spec_to_json

    return dict(sorted(flatten(spec_to_json(detail.spec), lists=True).items()))


def origin_of(origins: Mapping[str, str], key: str) -> str:
    """Return where a setting came from, ``default`` where nothing is recorded.

    A manifest's key has no unit in its name, and may stand for all settings below it.
    """
    without_unit = key.removesuffix("_seconds").removesuffix("_bytes")
    names = [key, without_unit, f"resources.{without_unit}"]
    names += [".".join(key.split(".")[:parts]) for parts in range(key.count("."), 0, -1)]
    return next((origins[name] for name in names if name in origins), "default")


def flatten(value: Any, *, lists: bool = False, prefix: str = "") -> dict[str, Any]:
    """Return each value of a document by its dotted key; ``lists`` takes lists apart, too. Empty ones stay whole."""
    if isinstance(value, Mapping) and value:
        pairs = [(str(key), item) for key, item in value.items()]
    elif lists and isinstance(value, list) and value:
        pairs = [(str(number), item) for number, item in enumerate(value)]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in pairs:
        flat |= flatten(item, lists=lists, prefix=f"{prefix}.{key}" if prefix else key)
    return flat
