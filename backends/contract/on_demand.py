"""What a backend's setting ``on_demand`` says: the user's own commands that start and stop a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from workbench.errors import ConfigError

_KEYS: Final = ("start", "stop", "idle_minutes")


@dataclass(frozen=True, slots=True)
class OnDemandSettings:
    """What a backend's ``on_demand`` says."""

    start: str
    stop: str
    idle_seconds: float


def read_demand(told: Any) -> OnDemandSettings | None:
    """Read a backend's setting ``on_demand``; None where there is none.

    Raises:
        ConfigError: it is not what it should be.
    """
    if not told:
        return None
    hint = 'on_demand = { start = "CMD", stop = "CMD", idle_minutes = 30 }'
    if not isinstance(told, Mapping) or set(told) - set(_KEYS):
        raise ConfigError("on_demand has start, stop and idle_minutes, and nothing else", hint=hint)
    try:
        minutes = float(told.get("idle_minutes", 30))
    except (TypeError, ValueError):
        minutes = 0.0
    if minutes <= 0:
        raise ConfigError("idle_minutes of on_demand must be a number above 0", hint=hint)
    return OnDemandSettings(str(told.get("start", "")), str(told.get("stop", "")), 60.0 * minutes)
