"""Finds backends by the names under which they are installed; ours are installed the same way."""

from __future__ import annotations

from typing import Final

from backends.contract.host import Backend, BackendOptions
from workbench.errors import BackendError, UnknownName
from workbench.plugins import load_class, plugins

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
    loaded: type[Backend] = load_class("backend", options.type, found, Backend, BackendError)
    return loaded(options)
