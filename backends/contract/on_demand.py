"""The setting ``on_demand`` of a backend: the user's commands that start and stop its machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workbench.errors import ConfigError
from workbench.values import dataclass

_KEYS: Final = ("start", "stop", "idle_minutes")


@dataclass(frozen=True, slots=True)
class OnDemandSettings:
    """The value of ``on_demand``: shell commands, and the idle time after which ``stop`` is run."""

    start: str
    stop: str
    idle_seconds: float


def read_demand(setting: Any) -> OnDemandSettings | None:
    """Parse the setting ``on_demand``; None if it is empty.

    Raises:
        ConfigError: a key is unknown, or ``idle_minutes`` is not a positive number.
    """
    if not setting:
        return None
    hint = 'on_demand = { start = "CMD", stop = "CMD", idle_minutes = 30 }'
    if not isinstance(setting, Mapping) or set(setting) - set(_KEYS):
        raise ConfigError("on_demand has start, stop and idle_minutes, and nothing else", hint=hint)
    try:
        minutes = float(setting.get("idle_minutes", 30))
    except (TypeError, ValueError):
        minutes = 0.0
    if minutes <= 0:
        raise ConfigError("idle_minutes of on_demand must be a number above 0", hint=hint)
    return OnDemandSettings(str(setting.get("start", "")), str(setting.get("stop", "")), 60.0 * minutes)
