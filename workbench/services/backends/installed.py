"""What is installed: the kinds of backends and the runners, the built-in ones and those of other packages."""

from __future__ import annotations


def backend_types() -> list[str]:
    """Return the types of all installed backends; none is imported."""
    from backends import registry

    return registry.backend_types()


def runner_names() -> list[str]:
    """Return the names of all installed runners; none is imported."""
    from runners import registry

    return registry.runner_names()


def has_shell(runner: str) -> bool:
    """Say whether a shell can be opened in jobs of a runner; it is imported for that.

    Raises:
        UnknownName: no runner of that name is installed.
        RunnerError: it cannot be imported.
    """
    from runners.registry import load_runner

    return load_runner(runner).capabilities.shell
