"""Finds runners by the names of their entry points; the built-in ones are installed the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workbench.errors import RunnerError, UnknownName
from workbench.plugins import load_class, plugins

if TYPE_CHECKING:
    from runners.interface import Runner

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
