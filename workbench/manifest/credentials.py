"""Passwords and tokens that stand in a manifest, as FfDL's do: taken out of all that is kept or shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from workbench.manifest.model import JobSpec
from workbench.manifest.nodes import Map, Node, Scalar, leaves

REFERENCE: Final = "secret:"
"""What a credential is in a job's spec, followed by its path."""

_NAMES: Final = frozenset({"password", "access_token", "secret_access_key", "token"})


def spans(root: Node | None) -> set[tuple[int, int]]:
    """Return where credentials stand in the text that a tree was composed of."""
    if not isinstance(root, Map):
        return set()
    return {
        node.span
        for path, node in leaves(root)
        if isinstance(node, Scalar) and path.rpartition(".")[2] in _NAMES and not node.is_null
    }


def overwritten(text: str, found: Iterable[tuple[int, int]]) -> str:
    """Return a text whose credentials are stars; it reads as a manifest still."""
    for start, end in sorted(found, reverse=True):
        text = text[:start] + '"********"' + text[end:]
    return text


def taken_out(spec: JobSpec) -> tuple[JobSpec, dict[str, str]]:
    """Return a job in which credentials are references, and the values that they stand for."""
    kept: dict[str, str] = {}
    stores = []
    for number, store in enumerate(spec.data_stores):
        connection = dict(store.connection)
        if password := connection.get("password"):
            path = f"data_stores.{number}.connection.password"
            kept[path] = password
            connection["password"] = REFERENCE + path
        stores.append(replace(store, connection=connection))
    framework = spec.framework
    if token := framework.image_location.get("access_token"):
        path = "framework.image_location.access_token"
        kept[path] = token
        location = {**framework.image_location, "access_token": REFERENCE + path}
        framework = replace(framework, image_location=location)
    return replace(spec, data_stores=tuple(stores), framework=framework), kept
