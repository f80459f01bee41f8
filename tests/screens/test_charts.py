from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from screens.charts import axis as axes
from screens.charts import plot
from screens.charts.axis import Axis
from screens.charts.canvas import Canvas
from screens.charts.curve import Curve, colours, curve, smoothed
from screens.charts.layout import lay_out
from screens.charts.plot import ChartView
from screens.style.glyphs import glyphs
from screens.style.themes import CURVE_COLOURS
from workbench.store.db.rows import Bucket

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


def line(*values: float, label: str = "loss", colour: int = 1) -> Curve:
    steps = [float(step) for step in range(len(values))]
    gaps = [step for step, value in zip(steps, values, strict=True) if math.isnan(value)]
    return Curve(label, colour, steps, values, values, values, gaps)


def picture(*curves: Curve, view: ChartView | None = None, width: int = 24, height: int = 7) -> list[str]:
    view = view or ChartView()
    rows = plot.draw(curves, view, plot.x_axis(curves, view), width, height)
    return ["".join(text for text, _ in row).rstrip() for row in rows]


def test_a_dot_of_braille_is_where_it_was_drawn() -> None:
    canvas = Canvas(2, 1)
    canvas.run(0, 0, 0, 1)
    canvas.run(3, 3, 3, 2)

    assert canvas.rows_of_text() == [[("⠁", 1), ("⢀", 2)]]


def test_a_steep_line_has_no_holes() -> None:
    canvas = Canvas(1, 3)
    canvas.line(0, 0, 1, 11, 1)

    assert all(text.strip() for row in canvas.rows_of_text() for text, _ in row)


def test_what_lies_outside_the_canvas_is_left_out() -> None:
    canvas = Canvas(2, 2)
    canvas.line(-5, -50, 20, 80, 1)
    canvas.run(9, 0, 1, 1)
    canvas.run(0, 9, 12, 1)

    assert len(canvas.rows_of_text()) == 2


def test_ascii_has_two_dots_a_cell() -> None:
    canvas = Canvas(3, 1, unicode=False)
    canvas.run(0, 0, 0, 1)
    canvas.run(1, 1, 1, 1)
    canvas.run(2, 0, 1, 1)

    assert canvas.rows_of_text() == [[("'.|", 1)]]


@given(low=FINITE, high=FINITE, wanted=st.integers(1, 12))
def test_ticks_are_few_ascending_and_inside(low: float, high: float, wanted: int) -> None:
    axis = axes.around([low, high])
    ticks = axis.ticks(wanted)

    assert len(ticks) <= wanted + 2
    assert ticks == sorted(ticks)
    margin = (axis.high - axis.low) * 1e-6 + 1e-300
    assert all(axis.low - margin <= tick <= axis.high + margin for tick in ticks)


@given(values=st.lists(st.floats(), max_size=6), logarithmic=st.booleans(), dots=st.integers(1, 300))
def test_an_axis_places_whatever_it_is_given(values: list[float], logarithmic: bool, dots: int) -> None:
    axis = axes.around(values, logarithmic=logarithmic)

    for value in values:
        if abs(value) < 1e300 and (value > 0 or not logarithmic):
            place = axis.dot(value, dots)
            assert place is None or -1 <= place <= dots


def test_a_logarithmic_axis_is_labelled_by_powers_of_ten() -> None:
    assert Axis(0.001, 10.0, True).ticks(6) == pytest.approx([0.001, 0.01, 0.1, 1.0, 10.0])
    assert Axis(0.001, 10.0, True).dot(0.0, 10) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.05, "0.05"),
        (20_000.0, "20k"),
        (1.5e6, "1.5M"),
        (1e-5, "1e-05"),
        (-3.0, "-3"),
        (4e15, "4e+15"),
    ],
)
def test_ticks_are_said_in_few_cells(value: float, shown: str) -> None:
    assert axes.label(value) == shown


def test_the_first_value_is_in_the_top_row_and_the_last_in_the_bottom_row() -> None:
    rows = picture(line(4, 3, 2, 1, 0))

    assert rows[0].startswith("4 ") and rows[-2].startswith("0 ")
    assert rows[0].split()[-1] and len(rows[-2]) > len(rows[0])


def test_what_is_not_a_number_breaks_the_line_and_is_marked_on_the_axis() -> None:
    rows = picture(line(1, 1, 1, math.nan, 1, 1, 1), width=40)

    assert glyphs().gap in rows[-1]
    drawn = next(row for row in rows if "⠉" in row or "⠒" in row or "⣀" in row or "⠤" in row)
    assert "  " in drawn.strip().split(" ", 1)[1]


def test_infinities_do_not_poison_the_axis() -> None:
    rows = picture(line(1, math.inf, 2, -math.inf, 3))

    assert any(row.startswith("3") for row in rows) and any(row.startswith("1") for row in rows)


@pytest.mark.parametrize("curves", [(), (line(),), (line(math.nan),), (line(5.0),), (line(0.0, 0.0),)])
@pytest.mark.parametrize(
    "view", [ChartView(), ChartView(logarithmic=True), ChartView(smoothing=0.9), ChartView(x_low=3, x_high=4)]
)
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (80, 20)])
def test_there_is_always_something_to_draw(
    curves: tuple[Curve, ...], view: ChartView, size: tuple[int, int]
) -> None:
    x = plot.x_axis(curves, view)

    assert len(plot.draw(curves, view, x, *size)) == size[1]


@given(
    values=st.lists(st.floats(width=32), min_size=1, max_size=60),
    logarithmic=st.booleans(),
    smoothing=st.sampled_from((0.0, 0.6, 0.97)),
)
def test_any_values_can_be_drawn(values: list[float], logarithmic: bool, smoothing: float) -> None:
    rows = picture(line(*values), view=ChartView(logarithmic=logarithmic, smoothing=smoothing))

    assert len(rows) == 7 and all(len(row) <= 24 for row in rows)


def test_smoothing_starts_at_the_first_value_and_keeps_holes() -> None:
    assert smoothed([4.0, 4.0, 4.0], 0.9) == pytest.approx([4.0, 4.0, 4.0])
    result = smoothed([1.0, math.nan, 3.0], 0.6)
    assert result[0] == 1.0 and math.isnan(result[1]) and 1.0 < result[2] < 3.0
    assert smoothed([1.0, 2.0], 0.0) == [1.0, 2.0]


def test_with_smoothing_what_was_measured_is_behind_in_its_own_dim_colour() -> None:
    one = line(1, 3, 1, 3, 1, 3)
    view = ChartView(smoothing=0.9)
    used = {colour for row in plot.draw((one,), view, plot.x_axis((one,), view), 40, 8) for _, colour in row}

    assert {1, 1 + plot.DIM} <= used


def test_colours_are_stable_and_collide_only_when_they_run_out() -> None:
    few = colours(["a", "b", "c"])
    assert colours(["c", "b", "a"]) == few
    assert len(set(few.values())) == 3
    many = colours([f"run-{n}" for n in range(20)])
    assert set(many.values()) == set(range(1, CURVE_COLOURS + 1))


def bucket(seq: int, step: int | None, value: float | None, *, nans: int = 0) -> Bucket:
    return Bucket(seq, 1, step, step, seq * 1_000_000, seq * 1_000_000, value, value, value, value, nans)


def test_curves_are_placed_by_step_or_by_time_and_never_by_both() -> None:
    found = [bucket(1, 10, 1.0), bucket(2, None, 2.0), bucket(3, 30, None, nans=1)]

    by_step = curve("loss", 1, found[:1] + found[2:])
    assert list(by_step.x) == [10.0, 30.0] and list(by_step.gaps) == [30.0]
    assert list(curve("loss", 1, found).x) == [10.0, 30.0], "a point without a step has no place among steps"
    assert list(curve("loss", 1, found, start_us=1_000_000).x) == [0.0, 1.0, 2.0]


def test_an_attempt_that_goes_back_to_an_earlier_step_is_sorted_in() -> None:
    resumed = curve("loss", 1, [bucket(1, 1, 1.0), bucket(2, 5, 2.0), bucket(3, 3, 9.0)])

    assert list(resumed.x) == [1.0, 3.0, 5.0] and list(resumed.value) == [1.0, 9.0, 2.0]


def test_the_nearest_point_is_found() -> None:
    one = line(5, 6, 7)

    assert [one.nearest(x) for x in (-9.0, 0.4, 0.6, 99.0)] == [0, 0, 1, 2]
    assert line().nearest(0.0) is None


def test_charts_are_laid_out_by_group_with_pinned_ones_first() -> None:
    names = ["lr", "train/acc", "train/loss", "val/loss"]

    plan = lay_out(names, ["val/loss"], 100, 40)

    assert plan.columns == 2
    assert plan.order == ["val/loss", "lr", "train/acc", "train/loss"]
    assert [block.heading for block in plan.blocks if block.heading] == ["pinned", "metrics", "train"]
    assert plan.block_of("train/loss") is plan.block_of("train/acc")
    assert plan.in_view(0, 1) == [] and plan.in_view(0, plan.height) == plan.order


@given(
    names=st.lists(st.text(max_size=8), unique=True, max_size=40),
    width=st.integers(1, 300),
    height=st.integers(1, 100),
    columns=st.integers(0, 9),
)
def test_every_chart_has_one_place(names: list[str], width: int, height: int, columns: int) -> None:
    ordered = sorted(names, key=lambda name: name.rpartition("/")[0])
    plan = lay_out(ordered, names[:2], width, height, columns=columns)

    assert sorted(plan.order) == sorted(names)
    assert all(b.top + b.height == a.top for b, a in zip(plan.blocks, plan.blocks[1:], strict=False))
