from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.core_schema import resolve, written
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode, ScalarNode


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+7", 7),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("tRue", "tRue"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nUll", "nUll"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ("-.inf", -math.inf),
        ("inf", "inf"),
        ("e5", "e5"),
        ("-", "-"),
    ],
)
def test_plain_scalars_are_read_by_yaml_1_2(text: str, value: object) -> None:
    found = resolve(text)

    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_read() -> None:
    found = resolve(".nan")

    assert isinstance(found, float)
    assert math.isnan(found)


def test_a_number_too_long_to_read_stays_a_text() -> None:
    digits = "9" * 5000

    assert resolve(digits) == digits


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_a_written_text_is_read_back_the_same(text: str) -> None:
    findings = Findings()

    root = compose(f"key: {written(text)}\n", "m.yml", findings)

    assert isinstance(root, MapNode)
    value = root.entries["key"].node
    assert isinstance(value, ScalarNode)
    assert value.value == text
    assert findings.faults == []


@pytest.mark.parametrize("text", ["python train.py --lr 0.1", "a/b:c", "x=1", "./run.sh"])
def test_harmless_texts_are_written_bare(text: str) -> None:
    assert written(text) == text


@pytest.mark.parametrize(
    "text", ["1.10", "yes: no", "true", "", "a #b", "- x", "{a}", "*x", "&x", "!x", "'", "null"]
)
def test_texts_that_mean_something_else_are_quoted(text: str) -> None:
    assert written(text).startswith('"')
