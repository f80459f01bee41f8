"""Lengths of time on the command line: ``90``, ``90s``, ``45m``, ``1h30m``, ``2d``."""

from __future__ import annotations

from workbench.errors import UsageError


def seconds_of(text: str, option: str) -> float:
    """Return a length of time in seconds.

    Raises:
        UsageError: it is none.
    """
    from workbench.manifest.keys.units import duration_seconds

    try:
        return duration_seconds(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
