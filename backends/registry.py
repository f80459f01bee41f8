"""Finds types of backends by the names of their entry points; the built-in ones are installed the same way."""

from __future__ import annotations

from typing import Final

from backends.contract.host import Backend, BackendOptions
from workbench.errors import BackendError, UnknownName
from workbench.plugins import load_class, plugins

GROUP: Final = "fabric.backends"


def backend_types() -> list[str]:
    """Return the names of all installed types of backends; none is imported."""
    return sorted(plugins(GROUP))


def load_backend(options: BackendOptions) -> Backend:
    """Make the backend that the options describe; it does not connect yet.

    Raises:
        UnknownName: no backend of that type is installed; the hint lists the others.
        BackendError: it is installed and cannot be imported.
    """
    found = plugins(GROUP).get(options.type)
    if found is None:
        raise UnknownName(
            f"There is no backend of type {options.type!r}.",
            hint=f"Installed are: {', '.join(backend_types()) or 'none'}.",
        )
    loaded: type[Backend] = load_class("backend", options.type, found, Backend, BackendError)
    return loaded(options)
