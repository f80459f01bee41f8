"""In every window of a chart, what is drawn is what the table says for the same steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from screens.charts.curve import Curve
from screens.charts.data import ChartData
from screens.charts.plot import ChartView, x_axis
from screens.charts.queries import Charted, charts_page
from tests.quick.metrics.writing import Records
from workbench.metrics import ingest
from workbench.metrics.queries import series
from workbench.metrics.table import table
from workbench.paths import Home
from workbench.store.db.database import Store

JOB = "training-222222222"
START_US = 1_000_000
WIDTHS = (3, 20, 80)


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


class Written(NamedTuple):
    """Values of one attempt of one learner, each a report of its own."""

    values: Sequence[float]
    steps: Sequence[float | None]
    epochs: Sequence[float] = ()
    attempt: int = 1
    learner: int = 1
    times: Sequence[int] = ()


def wave(count: int, offset: float = 0.0) -> list[float]:
    """Values whose extremes lie anywhere."""
    return [round(math.sin(n * 1.7 + offset) * 100 + n / 10, 3) for n in range(count)]


def with_holes(count: int, *holes: float) -> list[float]:
    """Values of which some are none."""
    return [holes[n % len(holes)] if n % 7 in (3, 4) else value for n, value in enumerate(wave(count))]


SHAPES: dict[str, list[Written]] = {
    "one point": [Written([5.0], [7])],
    "few": [Written(wave(9), range(1, 10))],
    "many": [Written(wave(3000), range(0, 30_000, 10))],
    "fractions": [Written(wave(700), [n / 8 for n in range(700)])],
    "gaps": [Written(wave(400), [n if n < 150 else n + 5000 for n in range(400)])],
    "negative": [Written(wave(300), range(-150, 150))],
    "the same step again": [Written(wave(400), [n // 2 for n in range(400)])],
    "nan": [Written(with_holes(500, math.nan), range(500))],
    "nan and infinities": [Written(with_holes(500, math.nan, math.inf, -math.inf), range(500))],
    "infinities alone": [Written([math.inf, -math.inf] * 40, range(80))],
    "no steps": [Written(wave(600), [None] * 600)],
    "no steps, epochs": [Written(wave(600), [None] * 600, [n / 10 for n in range(600)])],
    "some steps": [Written(wave(600), [None if n % 5 == 0 else n for n in range(600)])],
    "epochs that begin anew": [
        Written(wave(500), [n % 100 for n in range(500)], [n // 100 for n in range(500)])
    ],
    "back and forth": [Written(wave(800), [n + (9 if n % 2 else 0) for n in range(800)])],
    "resumed": [
        Written(wave(500), range(500)),
        Written(wave(500, 1.0), range(500, 1000), attempt=2),
    ],
    "superseded": [
        Written(wave(500), range(500)),
        Written(wave(500, 1.0), range(300, 800), attempt=2),
        Written(wave(90, 2.0), range(400, 490), attempt=3),
    ],
    "superseded, epochs that begin anew": [
        Written(wave(300), [n % 50 for n in range(300)], [n // 50 for n in range(300)]),
        Written(wave(200, 1.0), [n % 50 for n in range(200)], [4 + n // 50 for n in range(200)], attempt=2),
    ],
    "two learners": [
        Written(wave(300), range(300)),
        Written(wave(700, 2.0), range(100, 800), learner=2),
    ],
    "two learners, superseded": [
        Written(wave(300), range(300)),
        Written(wave(300, 1.0), range(200, 500), attempt=2),
        Written(wave(250, 2.0), range(250), learner=2),
        Written(wave(100, 3.0), range(200, 300), attempt=2, learner=2),
    ],
    "times that go back again and again": [
        Written(
            wave(3000),
            range(3000),
            times=[2_000_000 + n * 1000 + (50_000_000 if n % 2 else 0) for n in range(3000)],
        )
    ],
}


def write(store: Store, tmp_path: Path, written: Sequence[Written]) -> None:
    for at, one in enumerate(written):
        records = Records(tmp_path / f"records-{at}.jsonl")
        begin = one.attempt * 100_000_000 + one.learner * 137
        times = one.times or [begin + 1000 * n for n in range(len(one.values))]
        values = [None if math.isnan(v) else v if math.isfinite(v) else str(v) for v in one.values]
        more: dict[str, Any] = {"etimes": {"epoch": list(one.epochs)}} if one.epochs else {}
        records.points({"loss": values}, steps=list(one.steps), times=list(times), **more)
        while ingest(store, JOB, one.attempt, one.learner, records.file):
            pass


class TableValue(NamedTuple):
    """A value as the table has it."""

    x: float
    value: float


def values_of(store: Store, learner: int, axis: str) -> list[TableValue]:
    """Return what the table says, in its order, over the x of a chart."""
    found = []
    rows = [row for row in table(store, JOB, learner=learner).rows if "loss" in row.values]
    if axis == "number":  # the order of the points is that of their reports
        rows.sort(key=lambda row: (row.attempt, row.time_us))
    for number, row in enumerate(rows, 1):
        x = {
            "step": row.step,
            "number": number,
            "epoch": row.values.get("epoch"),
            "time": (row.time_us - START_US) / 1e6,
        }[axis]
        assert x is not None
        found.append(TableValue(float(x), row.values["loss"]))
    return sorted(found, key=lambda one: one.x)


def chart(store: Store, view: ChartView, width: int) -> ChartData:
    return charts_page((Charted(JOB, "job", START_US),), None, width, view, ("value",))(store).charts["loss"]


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def numbers(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def check_curve(curve: Curve, inside: Sequence[TableValue], width: int) -> None:
    """Compare the points of a curve with those that the table has in the window."""
    drawn = [TableValue(x, value) for x, value in zip(curve.x, curve.value, strict=True)]
    every = {repr(one) for one in inside}
    assert all(a.x <= b.x for a, b in pairwise(drawn))
    assert {repr(one) for one in drawn} <= every
    assert len(drawn) <= max(len(inside), 2 * width + 20)
    if len(inside) <= 2 * width:
        assert [repr(one) for one in drawn] == [repr(one) for one in inside]
    assert [repr(one) for one in drawn[-1:]] == [repr(one) for one in inside[-1:]]
    values = numbers([one.value for one in inside])
    assert min(numbers(curve.low), default=None) == min(values, default=None)
    assert max(numbers(curve.high), default=None) == max(values, default=None)
    holes = [one.x for one in inside if math.isnan(one.value)]
    assert bool(curve.gaps) == bool(holes)
    assert all(inside[0].x <= x <= inside[-1].x for x in curve.gaps)


def windows(xs: Sequence[float], axis: str) -> Iterator[tuple[float, float]]:
    """Yield windows as zooming and moving make them, and with their edges on points and between them."""
    low, high = xs[0], xs[-1]
    span = high - low or 1.0
    for share in (1.0, 0.5, 0.25, 0.03):
        for at in (0.0, 0.3, 0.55, 1.0):
            middle = low + at * span
            yield exact(middle - span * share / 2, axis), exact(middle + span * share / 2, axis)
    for first in (0, len(xs) // 3, len(xs) - 1):
        behind = xs[first] + 1e-6 if axis == "time" else math.nextafter(xs[first], math.inf)
        for last in (first, min(len(xs) - 1, first + 11), len(xs) - 1):
            yield xs[first], xs[last]
            yield exact(behind, axis), exact(max(xs[last], xs[first] + span / 9), axis)
    yield exact(high + span, axis), exact(high + 2 * span, axis)


def exact(x: float, axis: str) -> float:
    """Return an edge of a window; times are whole microseconds."""
    return round(x, 6) if axis == "time" else x


def each_shape_over_each_axis() -> Iterator[Any]:
    """Yield all pairs; of the gate are those of each shape and one axis, in turn."""
    axes = ("step", "time", "epoch")
    for number, shape in enumerate(SHAPES):
        for at, over in enumerate(axes):
            others = pytest.mark.soak("all pairs; the gate draws each shape over one of the axes")
            yield pytest.param(shape, over, marks=() if at == number % len(axes) else others)


@pytest.mark.parametrize(
    "every",
    [
        pytest.param(len(WIDTHS), id="at one width"),
        pytest.param(
            1, id="at each width", marks=pytest.mark.soak("the gate draws each window at one of the widths")
        ),
    ],
)
@pytest.mark.parametrize(("shape", "over"), [*each_shape_over_each_axis()])
def test_a_chart_says_what_the_table_says_in_every_window(
    store: Store, tmp_path: Path, shape: str, over: str, every: int
) -> None:
    write(store, tmp_path, SHAPES[shape])
    whole = ChartView(axis=over)
    learners = [row.learner for row in series(store, JOB, kinds=("value",))]
    axis = chart(store, whole, 80).axis
    lists = [values_of(store, learner, axis) for learner in learners]
    looked_at = list(windows(sorted(one.x for column in lists for one in column), axis))
    for at, width in enumerate(WIDTHS):
        check(chart(store, whole, width), lists, width)
        for low, high in looked_at[(at + list(SHAPES).index(shape)) % every :: every]:
            view = ChartView(axis=over, x_low=low, x_high=high)
            inside = [[one for one in column if low <= one.x <= high] for column in lists]
            data = chart(store, view, width)
            assert data.axis == axis
            check(data, inside, width)
            axis_drawn = x_axis(data.curves, view, data.axis)
            assert (axis_drawn.low, axis_drawn.high) == (low, high)


def check(data: ChartData, inside: Sequence[Sequence[TableValue]], width: int) -> None:
    assert len(data.curves) == len(inside)
    for curve, column in zip(data.curves, inside, strict=True):
        check_curve(curve, column, width)
    values = finite([one.value for column in inside for one in column])
    assert (data.least, data.most) == (min(values, default=None), max(values, default=None))
    assert data.points == sum(map(len, inside))


def test_the_title_has_the_last_value_of_the_window(store: Store, tmp_path: Path) -> None:
    write(store, tmp_path, SHAPES["many"])
    values = wave(3000)

    assert chart(store, ChartView(), 80).last == values[-1]
    assert chart(store, ChartView(x_low=5000.0, x_high=9995.0), 80).last == values[999]
    assert chart(store, ChartView(x_low=90_000.0, x_high=99_000.0), 80).last is None
