"""Numbers, steps and times as records hold them."""

from __future__ import annotations

import datetime
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.learner.collectors.values import as_step, as_time_us, number, parse_time, step_of, typed


@given(st.one_of(st.floats(), st.integers(), st.booleans()))
def test_every_number_can_be_stored_and_comes_back(value: float) -> None:
    stored = json.loads(json.dumps(number(value), allow_nan=False))

    if value != value:
        assert stored is None
    elif isinstance(value, float) and math.isinf(value):
        assert float(stored) == value
    else:
        assert math.isclose(float(stored), float(value)) if abs(value) < 1e300 else stored
    assert not (isinstance(stored, int) and abs(stored) > 2**53)


@given(
    st.one_of(st.none(), st.integers(0, 4), st.text(max_size=9)), st.one_of(st.text(), st.floats(), st.none())
)
def test_typed_values_are_read_or_refused(kind: Any, value: Any) -> None:
    try:
        found = typed(kind, value)
    except ValueError:
        return
    assert isinstance(found, (int, float, str))


@pytest.mark.parametrize(
    ("etimes", "step"),
    [
        ({"epoch": 1, "iteration": 9}, 9),
        ({"tick": 3, "epoch": 2}, 2),
        ({"global_step": 4.0, "epoch": 2}, 4),
        ({"iteration": 0.5, "epoch": 2}, 2),
        ({"iteration": None, "tick": 1}, 1),
        ({"lr": 1}, None),
        ({"step": 2**63}, None),
        ({"step": -(2**63)}, -(2**63)),
        ({"epoch": 0.5}, 0.5),
    ],
)
def test_the_step_is_the_best_whole_number_or_else_a_fraction(
    etimes: dict[str, Any], step: float | None
) -> None:
    assert step_of(etimes) == step


@given(st.floats() | st.integers() | st.none() | st.text(max_size=3))
def test_a_step_fits_64_bits_or_there_is_none(value: Any) -> None:
    step = as_step(value)

    assert step is None or (step == value and -(2**63) <= step < 2**63)


@given(st.floats())
def test_no_wall_time_is_out_of_this_world(seconds: float) -> None:
    assert 0 <= as_time_us(seconds, 5) < 2**63


NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        "2018-05-01T12:00:00.25Z",
        "2018-05-01T14:00:00.250+02:00",
        "2018-05-01 06:30:00,250000-0530",
        "1525176000.25",
        "1525176000250",
        1525176000.25,
        1525176000250,
    ],
)
def test_times_are_read_in_every_spelling(text: Any) -> None:
    assert parse_time(text, NOW_US) == 1_525_176_000_250_000


def test_a_time_may_have_no_seconds() -> None:
    assert parse_time("2026-10-25T02:30Z", NOW_US) == 1_792_895_400_000_000


def test_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_time("2018-05-01T21:00:00", NOW_US) == 1_525_176_000_000_000
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_glog_stamp_has_the_year_in_which_it_was_printed() -> None:
    printed = datetime.datetime(2024, 1, 1, 0, 0, 5).timestamp()

    assert parse_time("I0101 00:00:04.5", int(printed * 1e6)) == int((printed - 0.5) * 1e6)
    last_year = datetime.datetime(2023, 12, 31, 23, 59, 59, 250_000).timestamp()
    assert parse_time("W1231 23:59:59.25", int(printed * 1e6)) == int(last_year * 1e6)


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_what_is_no_time_is_now(text: Any) -> None:
    assert 0 <= parse_time(text, NOW_US) < 2**63


@pytest.mark.parametrize("text", ["", "soon", "2018-13-01T00:00:00Z", "I1340 00:00:00.1", "nan", "-5", True])
def test_what_only_looks_like_a_time_is_now(text: Any) -> None:
    assert parse_time(text, NOW_US) == NOW_US
