"""Finds installed plug-ins by their entry points, in a tenth of the time that ``importlib.metadata`` takes.

That module imports mail and archive libraries; every command and the controller would pay for it when they
look up a name. Here the ``entry_points.txt`` of each installed distribution is read as the text that it is.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from workbench.errors import FabricError, lacks


def plugins(group: str) -> Mapping[str, str]:
    """Return ``module:attribute`` by name of everything that is installed under a group of entry points.

    Nothing is imported. Of two distributions that give one name, the first one on the path counts.

    Raises:
        OSError, MemoryError: this process has too little memory or too few file descriptors to look; the next
            call looks anew. Folders and files that cannot be read for another reason are left out.
    """
    folders = tuple(sys.path)
    return _from_metadata(group) if _has_archive(folders) else _installed(folders).get(group, {})


def load_plugin(value: str) -> Any:  # what it is, is for the caller to check
    """Import what ``module:attribute`` names; whatever the import raises passes through."""
    module, _, attribute = value.partition(":")
    found: Any = importlib.import_module(module.strip())
    for name in attribute.strip().split("."):
        found = getattr(found, name)
    return found


def load_class(kind: str, name: str, value: str, base: type, error: type[FabricError]) -> Any:
    """Import a plug-in and return it where it is a class of ours: Any, since ``type[T]`` takes no abstract class.

    Args:
        kind: What it is called in a sentence: ``backend``, ``runner``.
        name: Under which it is installed.
        value: ``module:attribute``.
        base: What it must be a subclass of.
        error: What to raise where it is broken or something else; what was raised passes through where this
            process had too little memory, or too few file descriptors, to import it.
    """
    try:
        loaded = load_plugin(value)
    except Exception as broken:  # a plug-in may fail in any way, and must not take fabric down
        if lacks(broken):
            raise  # there is nothing wrong with the plug-in
        raise error(
            f"The {kind} {name!r} ({value}) cannot be loaded: {broken}.",
            hint="Reinstall or remove the package that it comes with.",
        ) from broken
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise error(f"The {kind} {name!r} ({value}) is no {base.__module__}.{base.__qualname__}.")
    return loaded


def _from_metadata(group: str) -> dict[str, str]:
    # A zip archive on the path holds its distributions in a way of its own.
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=group)}


@cache
def _has_archive(folders: tuple[str, ...]) -> bool:
    """Say whether one of them is a file; what a runner can do is asked for each job in each turn of the controller."""
    return any(os.path.isfile(folder) for folder in folders)  # noqa: PTH113 - a text, and quick


@cache
def _installed(folders: tuple[str, ...]) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {}
    for folder in folders:
        try:
            names = sorted(entry.name for entry in os.scandir(folder or "."))
        except OSError as error:
            if lacks(error):
                raise  # without it here the plug-ins would be missing for as long as this process lives
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                _read(os.path.join(folder, name, "entry_points.txt"), groups)  # noqa: PTH118 - a text, and quick
    return groups


def _read(file: str, groups: dict[str, dict[str, str]]) -> None:
    try:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 - a text, and quick
            lines = stream.read().splitlines()
    except (OSError, ValueError) as error:
        if lacks(error):
            raise
        return
    group: dict[str, str] = {}
    for line in lines:
        text = line.partition("#")[0].strip()
        if text.startswith("[") and text.endswith("]"):
            group = groups.setdefault(text[1:-1].strip(), {})
        elif "=" in text:
            name, _, value = text.partition("=")
            group.setdefault(name.strip(), value.partition("[")[0].strip())
