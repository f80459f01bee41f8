"""Options of a command that no manifest holds, by flag, ``FABRIC_*``, ``config.toml``, default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from workbench.config.model import RUN_OPTIONS, Config
from workbench.errors import UsageError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def resolve_option(
    name: str, flag: Any, config: Config, *, default: Any = None, environ: Mapping[str, str] | None = None
) -> tuple[Any, str]:
    """Return an option's value and where it came from.

    Args:
        name: one of :data:`~workbench.config.model.RUN_OPTIONS`.
        flag: what the command line said; None when it said nothing.
        config: the configuration.
        default: the value when nothing says any.
        environ: where ``FABRIC_<NAME>`` is looked for; the process's environment if None.

    Raises:
        UsageError: the variable's value cannot be one of this option.
    """
    if flag is not None:
        return flag, f"flag --{name.replace('_', '-')}"
    variable = f"FABRIC_{name.upper()}"
    if text := (os.environ if environ is None else environ).get(variable, ""):
        return _read(name, variable, text), variable
    if name in config.defaults:
        return config.defaults[name], config.origins.get(f"defaults.{name}", "config.toml")
    return default, "default"


def _read(name: str, variable: str, text: str) -> bool | str:
    if RUN_OPTIONS[name] is not bool:
        return text
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise UsageError(f"{variable} is {text!r}; write 1 or 0")
    return word in _TRUE
