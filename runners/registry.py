"""Finds runners by the names of their entry points; the built-in ones are installed the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workbench.errors import FabricError, RunnerError, UnknownName
from workbench.plugins import load_class, plugins

if TYPE_CHECKING:
    from backends.contract.host import Backend
    from runners.interface import Capabilities, Runner

GROUP: Final = "fabric.runners"


def runner_names() -> list[str]:
    """Return the names of all installed runners; none is imported."""
    return sorted(plugins(GROUP))


def load_runner(name: str) -> type[Runner]:
    """Return a runner's class.

    Raises:
        UnknownName: no runner of that name is installed; the hint lists the others.
        RunnerError: it is installed and cannot be imported.
    """
    from runners.interface import Runner

    value = plugins(GROUP).get(name)
    if value is None:
        raise UnknownName(
            f"There is no runner {name!r}.", hint=f"Installed are: {', '.join(runner_names()) or 'none'}."
        )
    loaded: type[Runner] = load_class("runner", name, value, Runner, RunnerError)
    return loaded


def capabilities_of(name: str) -> Capabilities | None:
    """Return what a runner can do; None where it is not installed, or cannot be imported."""
    try:
        return load_runner(name).capabilities
    except FabricError:
        return None


def runners_at(backend: Backend) -> list[str]:
    """Return the runners for a backend: those that it prefers, in its order, then all others by name.

    The others are the installed ones that need what the backend opens. They are imported for that; one that cannot be
    imported is not among them.
    """
    preferred = list(backend.runners())
    others = (name for name in runner_names() if name not in preferred)
    return [
        *preferred,
        *(name for name in others if (can := capabilities_of(name)) and can.needs == backend.opens),
    ]
