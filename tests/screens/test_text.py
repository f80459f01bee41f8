from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from screens.jobs import columns
from screens.style import status, text
from screens.style.glyphs import ASCII, UNICODE
from tests.screens import seeding
from workbench import formats
from workbench.job import Intent, Reason, State
from workbench.paths import Home
from workbench.services.inspect.job_times import unseen_seconds
from workbench.store.db.database import Store


@given(words=st.text(st.characters(exclude_categories=["C"])), width=st.integers(0, 12))
def test_a_shortened_text_fits_and_says_that_it_was_cut(words: str, width: int) -> None:
    short = text.shorten(words, width)

    assert text.cells(short) <= width
    assert short == words or width == 0 or short.endswith(UNICODE.more)


def test_times_are_local_and_say_the_date_of_another_day() -> None:
    assert formats.clock_time(seeding.NOW_US, now_us=seeding.NOW_US) == "15:04:05"
    assert formats.clock_time(seeding.NOW_US - 86_400_000_000, now_us=seeding.NOW_US) == "2026-01-01 15:04"
    assert formats.clock_milliseconds(seeding.NOW_US + 7_000) == "15:04:05.007"
    assert formats.since_start(3_723_400_000) == "+01:02:03.4"
    assert formats.since_start(-1_000_000) == "-00:00:01.0"


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

    why = status.why(row, now)

    for part in (
        "halting: waits for the backend to confirm",
        "C203 out of memory",
        "last seen 42 s ago",
        "tries again in 5.0 s",
    ):
        assert part in why
    assert status.is_open(row) and status.is_problem(row)
    assert unseen_seconds(replace(row, seen_us=now - 1_000_000), now) is None


@given(width=st.integers(1, 400))
def test_columns_fit_the_table_or_are_the_few_that_must_be_there(width: int) -> None:
    laid = columns.layout(width)
    used = sum(size for _, size in laid) + columns.GAP * (len(laid) - 1)

    assert [column.name for column, _ in laid][:2] == ["state", "name"]
    assert all(size > 0 for _, size in laid)
    assert width < 60 or used <= width
