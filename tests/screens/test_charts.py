from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.style import Style

from screens.charts import axis as axes
from screens.charts import plot
from screens.charts.axis import Axis
from screens.charts.canvas import Canvas
from screens.charts.curve import OTHER, Curve, colours, curve, smoothed
from screens.charts.data import ChartData
from screens.charts.layout import lay_out
from screens.charts.plot import ChartView
from screens.charts.tile import tile
from screens.style.glyphs import glyphs
from screens.style.themes import CURVE_COLOURS, Paint
from workbench import formats
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
def test_ticks_are_labelled_in_few_cells(value: float, shown: str) -> None:
    assert axes.label(value) == shown


def test_the_first_value_is_in_the_top_row_and_the_last_in_the_bottom_row() -> None:
    rows = picture(line(4, 3, 2, 1, 0))

    assert rows[0].startswith("4 ") and rows[-2].startswith("0 ")
    assert "⠑" in rows[0][:6] and "⠑" in rows[-2][-6:]


def test_what_is_not_a_number_breaks_the_line_and_is_marked_on_the_axis() -> None:
    rows = picture(line(1, 1, 1, math.nan, 1, 1, 1), width=40)

    assert glyphs().gap in rows[-1]
    drawn = next(row for row in rows if "⠉" in row or "⠒" in row or "⣀" in row or "⠤" in row)
    assert glyphs().grid * 3 in drawn.strip("⣀┈┼")  # the grid is seen where the curve is not


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


@pytest.mark.parametrize("size", [(80, 22), (120, 38), (200, 58)])
@pytest.mark.parametrize(
    "names",
    [["loss"], ["train/loss", "val/loss"], ["lr", "train/loss", "val/loss"], ["a", "b", "c", "d", "e"]],
)
def test_charts_fill_their_pane(names: list[str], size: tuple[int, int]) -> None:
    width, height = size
    plan = lay_out(names, [], width, height)
    rows = [block for block in plan.blocks if block.names]

    assert all(block.cell_width * len(block.names) > width - len(block.names) for block in rows)
    if len(rows) * 8 + len(plan.blocks) - len(rows) <= height:
        assert height - len(rows) < plan.height <= height


@given(low=st.floats(0, 1e6), span=st.floats(1e-3, 1e6), wanted=st.integers(2, 12))
@example(low=1.5625, span=0.875, wanted=2)
def test_ticks_are_at_round_steps_without_the_noise_of_floating_point(
    low: float, span: float, wanted: int
) -> None:
    ticks = Axis(low, low + span).ticks(wanted)
    steps = {f"{after - before:.5e}"[0] for before, after in itertools.pairwise(ticks)}

    assert ticks and steps <= {"1", "2", "5", "9", "4"}  # 9.99999 and 4.99999 are 10 and 5
    assert all(len(repr(tick)) <= 20 for tick in ticks)


def test_three_tenths_are_written_as_that() -> None:
    axis = Axis(0.0, 0.35)

    assert axis.labels(axis.ticks(4)) == ["0.0", "0.1", "0.2", "0.3"]
    assert axis.ticks(4)[-1] == 0.3


@given(low=st.floats(-1e7, 1e7), span=st.floats(1e-3, 1e8), seconds=st.booleans(), width=st.integers(4, 220))
def test_labels_never_touch_each_other_and_never_look_the_same(
    low: float, span: float, seconds: bool, width: int
) -> None:
    low = abs(low) if seconds else low
    one = Curve("loss", 1, [low, low + span], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    view = ChartView(axis=plot.TIME if seconds else "epoch")
    bottom = picture(one, view=view, width=width)[-1]
    x = plot.x_axis([one], view)
    ticks = x.ticks(8)

    assert len(bottom) <= width
    assert len(set(x.labels(ticks))) == len(ticks)
    assert not re.search(r"[0-9kMG]{12,}", bottom)


@pytest.mark.parametrize(
    ("last", "shown"),
    [(50.0, "20 s"), (240.0, "2 min"), (3600.0, "30 min"), (20_000.0, "2 h"), (600_000.0, "2 d")],
)
def test_time_is_labelled_in_steps_of_a_clock(last: float, shown: str) -> None:
    one = Curve("loss", 1, [0.0, last], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])

    assert shown in picture(one, view=ChartView(axis=plot.TIME), width=100)[-1]


def test_the_x_axis_says_what_it_is_and_steps_are_whole() -> None:
    rows = [
        "".join(text for text, _ in row)
        for row in plot.draw(
            (line(1, 2, 3),),
            ChartView(),
            plot.x_axis((line(1, 2, 3),), ChartView(), "step"),
            90,
            9,
            name="step",
        )
    ]

    assert rows[-1].split() == ["step", "0", "1", "2"]


def test_the_grid_stands_behind_the_curve_at_the_labels_of_both_axes() -> None:
    rows = picture(line(*range(101)), width=60, height=12)
    ruled = [row for row in rows[:-1] if row[:6].strip()]
    bare = [row for row in rows[:-1] if not row[:6].strip()]

    assert ruled and all(glyphs().grid in row for row in ruled)
    assert bare and all(glyphs().grid not in row for row in bare)
    assert any(row[rows[-1].index("40") + 1] == glyphs().grid_cross for row in ruled)


def test_charts_beside_each_other_begin_at_the_same_column() -> None:
    flat, deep = picture(line(0, 5), width=60), picture(line(0.001, 0.002), width=60)
    begins = {
        min(row.index(glyphs().grid_cross) for row in rows if glyphs().grid_cross in row)
        for rows in (flat, deep)
    }

    assert begins == {plot.MARGIN}


def test_without_colours_curves_are_distinguished_by_signs() -> None:
    low, high = line(*[1.0] * 60, label="a"), line(*[2.0] * 60, label="b", colour=2)
    view = ChartView()
    rows = plot.draw((low, high), view, plot.x_axis((low, high), view), 60, 9, marked=True)
    top, bottom = ("".join(text for text, _ in rows[place]) for place in (0, 7))

    assert plot.sign_of(2) in top and plot.sign_of(1) not in top
    assert plot.sign_of(1) in bottom and plot.sign_of(2) not in bottom


def test_one_point_alone_is_seen() -> None:
    assert any(plot.sign_of(1) in row for row in picture(line(3.0)))


def test_values_that_differ_by_noise_are_one_value() -> None:
    noise = axes.around([0.3, 0.1 + 0.2])

    assert noise.high - noise.low > 0.01


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1 + 0.2, "0.3"),
        (0.00012345, "0.0001234"),
        (12, "12"),
        (1234.5, "1234"),
        (12_345.0, "12,345"),
        (123_456.0, "123.5k"),
        (36_500_000, "36.5M"),
        (999_999.9, "1M"),
        (-2.5e9, "-2.5G"),
        (1e20, "1e+20"),
        (math.inf, "inf"),
        (None, "nan"),
    ],
)
def test_numbers_are_written_in_one_way(value: float | None, shown: str) -> None:
    assert formats.compact_number(value) == shown


def test_four_charts_on_a_large_screen_stand_two_by_two() -> None:
    plan = lay_out(["t/accuracy", "t/grad-norm", "t/loss", "t/lr"], [], 198, 56)

    assert plan.columns == 2
    assert plan.height == 56


def _legend(jobs: int, width: int, height: int, *, coloured: bool = True) -> list[str]:
    curves = tuple(
        Curve(
            f"lr=0.{number:02}",
            number + 1 if number < CURVE_COLOURS else OTHER,
            [0.0, 1.0],
            *[[1.0, 2.0]] * 3,
        )
        for number in range(jobs)
    )
    data = ChartData("loss", curves, 2.0, 1.0, 2.0, 2 * jobs)
    strips = tile(data, ChartView(), (width, height), Paint({}, coloured=coloured), Style())
    return [strip.text.rstrip() for strip in strips if "lr=" in strip.text]


@pytest.mark.parametrize(("jobs", "width", "height"), [(2, 60, 10), (12, 98, 28), (40, 60, 12), (40, 20, 8)])
def test_a_legend_names_as_many_as_fit_and_counts_the_rest(jobs: int, width: int, height: int) -> None:
    lines = _legend(jobs, width, height)
    named = sum(text.count("lr=") for text in lines)

    assert all(len(text) <= width for text in lines) and len(lines) <= max(1, height // 8)
    assert named == jobs or f"+{jobs - named}" in lines[-1]


def test_a_legend_shows_the_signs_of_curves_without_colours() -> None:
    (shown,) = _legend(2, 60, 10, coloured=False)

    assert plot.sign_of(1) in shown and plot.sign_of(2) in shown
