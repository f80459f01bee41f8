"""Lays a user's patch over an object: mappings are merged, named lists by name, anything else is replaced. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def patched(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with a patch laid over it; null removes a key."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = patched(result[key], value)
        elif _is_named(value) and _is_named(result.get(key)):
            result[key] = _merged(result[key], value)
        else:
            result[key] = value
    return result


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, Mapping) and "name" in one for one in value)
    )


def _merged(
    items: Sequence[Mapping[str, Any]], patches: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    by_name = {str(one["name"]): one for one in items}
    for patch in patches:
        name = str(patch["name"])
        by_name[name] = patched(by_name[name], patch) if name in by_name else patch
    return list(by_name.values())
