"""Finds backends by the names under which they are installed; ours are installed the same way."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from backends.interface import Backend, BackendOptions
from workbench.errors import BackendError, UnknownName

GROUP: Final = "fabric.backends"


def backend_types() -> list[str]:
    """Name every installed type of backend, without importing any."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load_backend(options: BackendOptions) -> Backend:
    """Make the backend that the options describe; nothing is reached yet.

    Raises:
        UnknownName: no backend of that type is installed; names those that are.
        BackendError: it is installed and broken.
    """
    found = [entry for entry in entry_points(group=GROUP) if entry.name == options.type]
    if not found:
        raise UnknownName(
            f"There is no backend of type {options.type!r}.",
            hint=f"Installed are: {', '.join(backend_types()) or 'none'}.",
        )
    return _load(found[0])(options)


def _load(entry: EntryPoint) -> type[Backend]:
    try:
        loaded = entry.load()
    except Exception as error:  # a plug-in may fail in any way, and must not take fabric down
        raise BackendError(
            f"The backend {entry.name!r} ({entry.value}) cannot be loaded: {error}.",
            hint="Reinstall or remove the package that brings it.",
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
        raise BackendError(f"The backend {entry.name!r} ({entry.value}) is no backends.interface.Backend.")
    return loaded
