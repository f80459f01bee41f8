"""Roll-ups and charts against what a plain look at all points gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from workbench.metrics.chart_buckets import Axis, buckets
from workbench.metrics.columns import SeriesPoints
from workbench.metrics.rollup import SPAN, levels_of, roll_up
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import Bucket

Row = tuple[int | None, int, float | None]
"""step, time, value"""


@contextmanager
def filled(batches: Sequence[Sequence[Row]]) -> Iterator[tuple[Store, int]]:
    with (
        tempfile.TemporaryDirectory(prefix="fab-") as folder,
        Store.open(Home(Path(folder) / "home")) as store,
    ):
        store.execute(
            "INSERT INTO series (id, job_id, learner, name, kind) VALUES (1, 'j', 1, 'loss', 'value')"
        )
        before = 0
        for batch in batches:
            if not batch:
                continue
            steps, times, values = ([row[n] for row in batch] for n in range(3))
            with store.atomic():
                store.executemany(
                    "INSERT INTO points VALUES (1, ?, 1, ?, ?, ?)",
                    [(before + n, *row) for n, row in enumerate(batch, 1)],
                )
                roll_up(store, 1, before, SeriesPoints(steps, times, values, []))  # type: ignore[arg-type] # by construction
                before += len(batch)
                store.execute("UPDATE series SET points = ? WHERE id = 1", (before,))
        yield store, before


def by_hand(rows: Sequence[tuple[int, Row]]) -> Bucket:
    """Make one bucket of numbered points."""
    numbers = [row[2] for _, row in rows if row[2] is not None]
    return Bucket(
        first_seq=rows[0][0],
        count=len(rows),
        first_step=rows[0][1][0],
        last_step=rows[-1][1][0],
        first_time_us=rows[0][1][1],
        last_time_us=rows[-1][1][1],
        minimum=min(numbers, default=None),
        maximum=max(numbers, default=None),
        first=rows[0][1][2],
        last=rows[-1][1][2],
        nans=sum(row[2] is None for _, row in rows),
    )


values = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-3, 3).map(float))
unordered = st.tuples(st.one_of(st.none(), st.integers(-50, 50)), st.integers(0, 99), values)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(unordered, max_size=80), max_size=8))
def test_every_level_holds_what_its_points_give(batches: list[list[Row]]) -> None:
    rows = list(enumerate([row for batch in batches for row in batch], 1))
    with filled(batches) as (store, total):
        for level in range(1, levels_of(total) + 1 if total else 1):
            span = SPAN**level
            found = store.rows(
                "SELECT n, first_step, last_step, first_time, last_time, min, max, first, last, nans, steps, "
                "min_step, max_step, min_time, max_time FROM rollups WHERE level = ? ORDER BY bucket",
                (level,),
            )
            expected = [by_hand(rows[start : start + span]) for start in range(0, total, span)]
            assert [Bucket(number * span + 1, *row[:10]) for number, row in enumerate(found)] == expected
            for number, row in enumerate(found):
                part = [row for _, row in rows[number * span : (number + 1) * span]]
                steps = [step for step, _, _ in part if step is not None]
                assert row[10:13] == (len(steps), min(steps, default=None), max(steps, default=None))
                assert row[13:] == (min(part, key=lambda r: r[1])[1], max(part, key=lambda r: r[1])[1])


def check_cover(found: Sequence[Bucket], rows: Sequence[tuple[int, Row]], wanted: int) -> None:
    """The buckets hold exactly these points, each what its points give, and are not too many."""
    position = 0
    for bucket in found:
        part = rows[position : position + bucket.count]
        assert bucket == by_hand(part)
        position += bucket.count
    assert position == len(rows)
    gaps = sum(after[0] != before[0] + 1 for before, after in pairwise(rows))
    assert len(found) <= max(2, wanted) + gaps


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(unordered, max_size=200), max_size=6), st.integers(1, 30))
def test_a_chart_of_all_covers_every_point_once(batches: list[list[Row]], width: int) -> None:
    rows = list(enumerate([row for batch in batches for row in batch], 1))
    with filled(batches) as (store, total):
        found = buckets(store, 1, width=width)

        check_cover(found, rows, 2 * width)
        if total >= 2 * width:
            assert len(found) >= width


@st.composite
def growing(draw: st.DrawFn) -> list[Row]:
    """Points whose steps grow, but for a few resumes that go back, and whose clock once jumps."""
    rows: list[Row] = []
    step, time_us = draw(st.integers(0, 10)), 1000
    for _ in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 400))):
            rows.append((step, time_us, float(step % 7)))
            step += 2
            time_us += 10
        step = max(0, step - draw(st.integers(0, 300)))
        time_us += draw(st.integers(-500, 500))
    return rows


@settings(max_examples=examples(80), deadline=None)
@given(
    growing(), st.integers(1, 20), st.sampled_from(["step", "time"]),
    st.one_of(st.none(), st.integers(-10, 4000)), st.one_of(st.none(), st.integers(-10, 4000)),
)  # fmt: skip
def test_a_window_covers_exactly_its_points(
    rows: list[Row], width: int, by: Axis, low: int | None, high: int | None
) -> None:
    offset = 0 if by == "step" else 1000
    x_from = None if low is None else low + offset
    x_to = None if high is None else high + offset

    def inside(row: Row) -> bool:
        x = row[0] if by == "step" else row[1]
        return x is not None and (x_from is None or x >= x_from) and (x_to is None or x <= x_to)

    with filled([rows]) as (store, _):
        found = buckets(store, 1, width=width, x_from=x_from, x_to=x_to, by=by)

        check_cover(found, [(n, row) for n, row in enumerate(rows, 1) if inside(row)], 2 * width)


def test_points_without_steps_are_in_no_window_of_steps() -> None:
    rows: list[Row] = [(None if n % 3 == 0 else n, n, 1.0) for n in range(500)]
    with filled([rows]) as (store, _):
        found = buckets(store, 1, width=5, x_from=100, x_to=199)
        assert sum(bucket.count for bucket in found) >= sum(
            1 for step, _, _ in rows if step and 100 <= step <= 199
        )
        assert (
            sum(bucket.count for bucket in buckets(store, 1, width=5, x_from=100, x_to=199, by="time")) == 100
        )


def test_wild_steps_cost_no_more_than_the_width() -> None:
    rows: list[Row] = [(n * 7919 % 20_000, n, float(n)) for n in range(20_000)]
    with filled([rows]) as (store, _):
        read: list[str] = []
        store.connection.set_trace_callback(read.append)
        found = buckets(store, 1, width=10, x_from=5000, x_to=6000)
        store.connection.set_trace_callback(None)

        assert len(read) < 500
        assert 0 < len(found) <= 20_000 / 16


def test_a_short_series_costs_one_row_and_each_sixteenfold_one_level() -> None:
    assert [levels_of(points) for points in (1, 16, 17, 256, 257, 4096, 4097)] == [1, 1, 2, 2, 3, 3, 4]
    with filled([[(1, 1, 1.0)] * 9]) as (store, _):
        assert store.rows("SELECT count(*) FROM rollups") == [(1,)]


def test_a_series_that_is_not_there_has_no_chart() -> None:
    with filled([]) as (store, _):
        assert buckets(store, 1, width=50) == []
        assert buckets(store, 99, width=50) == []


@pytest.mark.parametrize("edge", [(10**30, None), (None, -(10**30)), (5, 4)])
def test_a_window_with_nothing_in_it_is_empty(edge: tuple[int | None, int | None]) -> None:
    with filled([[(n, n, 1.0) for n in range(300)]]) as (store, _):
        assert buckets(store, 1, width=5, x_from=edge[0], x_to=edge[1]) == []
