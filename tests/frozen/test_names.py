"""What others import stays importable by the same names: training code, plug-ins, scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.cli.conftest import Fabric
from tests.frozen import goldens
from tests.frozen.asked import public_names


def lost(frozen: Any, now: Any, where: str = "") -> Iterator[str]:
    """Give what is not as it was frozen; more may be there."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        for key, value in frozen.items():
            yield from lost(value, now.get(key), f"{where} > {key}")
    elif frozen != now:
        yield f"{where}: was {frozen}, is {now}"


def test_public_names_are_what_they_were(fabric: Fabric) -> None:
    assert list(lost(goldens.read(goldens.NAMES), public_names(fabric))) == []


def test_a_name_that_is_lost_or_is_something_else_is_noticed() -> None:
    frozen = {"a": {"kind": "function", "parameters": ["x"]}, "b": {"kind": "class", "members": {"c": 1}}}
    now = {"a": {"kind": "function", "parameters": ["y"]}, "b": {"kind": "class", "members": {"d": 1}}}

    assert list(lost(frozen, now)) == [
        " > a > parameters: was ['x'], is ['y']",
        " > b > members > c: was 1, is None",
    ]
