"""Fabric's version, here because asking the installed distribution for it costs a command 20 ms of start."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
"""The same as in ``pyproject.toml``; a test compares them."""
