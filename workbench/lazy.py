"""Names that a package offers and loads when they are first used: a command pays for what it does and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def offered(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's ``__getattr__``.

    Args:
        package: Its ``__name__``.
        homes: The module below it that each name lives in.
    """

    def get(name: str) -> Any:  # what it returns depends on the name
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get
