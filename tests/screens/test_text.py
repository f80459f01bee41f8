from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from screens.jobs import columns
from screens.style import status, text
from screens.style.glyphs import ASCII, UNICODE
from tests.screens import seeding
from workbench.job import Intent, Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store


@pytest.mark.parametrize(
    ("seconds", "said", "short"),
    [
        (0, "0 s", "0s"),
        (59.9, "59 s", "59s"),
        (187, "3 m 07 s", "3m"),
        (7500, "2 h 05 m", "2h"),
        (273_600, "3 d 04 h", "3d"),
        (-5, "0 s", "0s"),
        (86_400 * 800, "800 d 00 h", "2y"),
    ],
)
def test_spans(seconds: float, said: str, short: str) -> None:
    assert text.duration(seconds) == said
    assert text.short_duration(seconds) == short


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "nan"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (0.0, "0"), (12.0, "12"),
        (12_345.0, "12,345"), (0.12345, "0.1235"), (1.2e-5, "1.2e-05"), (1e9, "1e+09"), (-0.5, "-0.5"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, said: str) -> None:
    assert text.number(value) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (200 << 20, "200 MiB")],
)
def test_sizes(count: int, said: str) -> None:
    assert text.size(count) == said


@given(words=st.text())
def test_whatever_is_harmless_is_printable_and_of_the_same_length(words: str) -> None:
    safe = text.harmless(words)

    assert safe.isprintable() and len(safe) == len(words)
    assert text.harmless(safe) == safe


@given(words=st.text(st.characters(exclude_categories=["C"])), width=st.integers(0, 12))
def test_a_shortened_text_fits_and_says_that_it_was_cut(words: str, width: int) -> None:
    short = text.shorten(words, width)

    assert text.cells(short) <= width
    assert short == words or width == 0 or short.endswith(UNICODE.more)


def test_times_are_local_and_say_the_date_of_another_day() -> None:
    assert text.clock_time(seeding.NOW_US, now_us=seeding.NOW_US) == "15:04:05"
    assert text.clock_time(seeding.NOW_US - 86_400_000_000, now_us=seeding.NOW_US) == "2026-01-01 15:04"
    assert text.clock_milliseconds(seeding.NOW_US + 7_000) == "15:04:05.007"
    assert text.since_start(3_723_400_000) == "+01:02:03.4"
    assert text.since_start(-1_000_000) == "-00:00:01.0"


@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_every_state_has_a_shape_of_its_own_of_one_cell(signs: object) -> None:
    assert isinstance(signs, type(UNICODE))
    shapes = list(signs.states.values())

    assert set(signs.states) == set(State)
    assert len(set(shapes)) == len(shapes)
    assert all(text.cells(shape) == 1 for shape in shapes)


def test_why_says_all_that_is_known(home: Home) -> None:
    from dataclasses import replace

    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1), *seeding.RUN_UP)
    now = seeding.NOW_US
    row = replace(
        row,
        reason=Reason("out of memory", "C203"),
        intent=Intent.HALT,
        seen_us=now - 42_000_000,
        next_try_us=now + 5_000_000,
    )

    said = status.why(row, now)

    for part in (
        "halting: waits for the place to confirm",
        "C203 out of memory",
        "last seen 42 s ago",
        "tries again in 5 s",
    ):
        assert part in said
    assert status.is_open(row) and status.is_problem(row)
    assert status.unseen_seconds(replace(row, seen_us=now - 1_000_000), now) is None


@given(width=st.integers(1, 400))
def test_columns_fit_the_table_or_are_the_few_that_must_be_there(width: int) -> None:
    laid = columns.layout(width)
    used = sum(size for _, size in laid) + columns.GAP * (len(laid) - 1)

    assert [column.title for column, _ in laid][:3] == ["state", "name", "id"]
    assert all(size > 0 for _, size in laid)
    assert width < 60 or used <= width
