"""Finds backends by the names under which they are installed; ours are installed the same way."""

from __future__ import annotations

from typing import Final

from backends.interface import Backend, BackendOptions
from workbench.errors import BackendError, UnknownName
from workbench.plugins import load_plugin, plugins

GROUP: Final = "fabric.backends"


def backend_types() -> list[str]:
    """Name every installed type of backend, without importing any."""
    return sorted(plugins(GROUP))


def load_backend(options: BackendOptions) -> Backend:
    """Make the backend that the options describe; nothing is reached yet.

    Raises:
        UnknownName: no backend of that type is installed; names those that are.
        BackendError: it is installed and broken.
    """
    found = plugins(GROUP).get(options.type)
    if found is None:
        raise UnknownName(
            f"There is no backend of type {options.type!r}.",
            hint=f"Installed are: {', '.join(backend_types()) or 'none'}.",
        )
    return _load(options.type, found)(options)


def _load(name: str, value: str) -> type[Backend]:
    try:
        loaded = load_plugin(value)
    except Exception as error:  # a plug-in may fail in any way, and must not take fabric down
        raise BackendError(
            f"The backend {name!r} ({value}) cannot be loaded: {error}.",
            hint="Reinstall or remove the package that brings it.",
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
        raise BackendError(f"The backend {name!r} ({value}) is no backends.interface.Backend.")
    return loaded
