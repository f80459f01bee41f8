"""The configuration: read by almost every command, changed by ``fabric config`` and ``fabric backend``.

``load`` joins ``config.toml``, ``fabric.toml`` and profiles, ``model`` reads one file, ``edit`` changes one;
``stores``, ``code``, ``secrets`` and ``templates`` read the parts that few commands need. Other packages import the
names below, and those four modules. It imports ``workbench.manifest`` (the table of keys), ``workbench.paths`` and
``workbench.errors``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.config.load import (
    PROFILE_VARIABLE,
    backend,
    host_of,
    load_config,
    members_of,
    profile,
    profile_in_force,
    project_file,
    resolve_option,
)
from workbench.config.model import LOCAL, RUN_OPTIONS, SCHEMES, type_of_address
from workbench.config.types import Config

__all__ = [
    "LOCAL",
    "PROFILE_VARIABLE",
    "RUN_OPTIONS",
    "SCHEMES",
    "Config",
    "add_backend",
    "backend",
    "host_of",
    "load_config",
    "members_of",
    "profile",
    "profile_in_force",
    "project_file",
    "remove_backend",
    "resolve_option",
    "type_of_address",
]


def add_backend(
    name: str, type: str = "", address: str = "", options: Mapping[str, Any] | None = None
) -> None:
    """Add a named backend to the file; see :func:`workbench.config.edit.add_backend`."""
    # Changing is rare, and what it needs is not cheap to load.
    from workbench.config import edit

    edit.add_backend(name, type, address, options)


def remove_backend(name: str) -> None:
    """Take a named backend out of the file; see :func:`workbench.config.edit.remove_backend`."""
    from workbench.config import edit

    edit.remove_backend(name)
