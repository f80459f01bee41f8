from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.config import Config, resolve_option
from workbench.errors import UsageError

CONFIG = Config(defaults={"detach": True, "on_interrupt": "halt"}, file=Path("config.toml"))


@pytest.mark.parametrize(
    ("name", "flag", "environ", "expected"),
    [
        ("detach", False, {"FABRIC_DETACH": "1"}, (False, "flag --detach")),
        ("on_interrupt", "kill", {}, ("kill", "flag --on-interrupt")),
        ("on_interrupt", None, {"FABRIC_ON_INTERRUPT": "detach"}, ("detach", "FABRIC_ON_INTERRUPT")),
        ("detach", None, {"FABRIC_DETACH": "0"}, (False, "FABRIC_DETACH")),
        ("detach", None, {"FABRIC_DETACH": ""}, (True, "config.toml")),
        ("on_interrupt", None, {}, ("halt", "config.toml")),
        ("quiet", None, {}, (None, "default")),
    ],
)
def test_the_strongest_that_says_something_counts(
    name: str, flag: Any, environ: dict[str, str], expected: tuple[Any, str]
) -> None:
    assert resolve_option(name, flag, CONFIG, environ=environ) == expected


def test_a_variable_that_is_no_truth_value_is_refused() -> None:
    with pytest.raises(UsageError, match="FABRIC_DETACH is 'maybe'"):
        resolve_option("detach", None, CONFIG, environ={"FABRIC_DETACH": "maybe"})
