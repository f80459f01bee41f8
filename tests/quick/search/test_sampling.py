"""Random numbers and sampling: the values that numpy's generator gives."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.search.method import SearchContext
from workbench.search.space import Categorical, Constant, Integer, LogUniform, Space, Uniform
from workbench.search.stream import RandomStream


def test_words_are_those_of_numpy() -> None:
    stream = RandomStream(42)

    assert [stream.bits() for _ in range(4)] == [1608637542, 3421126067, 4083286876, 787846414]


def test_units_are_those_of_numpy() -> None:
    stream = RandomStream(42)

    assert [stream.unit() for _ in range(2)] == [0.3745401188473625, 0.9507143064099162]


def test_zero_draws_nothing() -> None:
    stream, other = RandomStream(1), RandomStream(1)

    assert stream.up_to(0) == 0
    assert stream.bits() == other.bits()


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**63))
def test_a_bounded_number_keeps_its_bound(seed: int, limit: int) -> None:
    assert 0 <= RandomStream(seed).up_to(limit) <= limit


def test_a_large_limit_takes_two_words_the_high_one_first() -> None:
    stream, other = RandomStream(3), RandomStream(3)

    high, low = other.bits(), other.bits()

    assert stream.up_to(2**64 - 1) == high << 32 | low


def test_bytes_are_words_from_their_lowest_on() -> None:
    stream, other = RandomStream(9), RandomStream(9)

    assert stream.take_bytes(6) == other.bits().to_bytes(4, "little") + other.bits().to_bytes(4, "little")[:2]


def test_trials_draw_their_parameters_then_their_id_then_their_seed() -> None:
    context = SearchContext(Space({"increment_by": Integer(1, 8)}), RandomStream(42))

    created = [context.create() for _ in range(3)]

    assert [each.hparams["increment_by"] for each in created] == [7, 5, 3]
    assert [each.seed for each in created] == [1201263687, 429389014, 613608295]
    assert created[0].trial == "b33deacb-5c03-42f3-8e95-f52e6af463bb"
    assert uuid.UUID(created[1].trial).version == 4


def test_parameters_are_drawn_in_the_order_of_their_names_nested_ones_too() -> None:
    space = Space({"b": Uniform(0, 1), "a": Space({"d": Uniform(0, 1), "c": Uniform(0, 1)})})
    stream = RandomStream(5)

    drawn = space.sample(RandomStream(5))

    assert [drawn["a"]["c"], drawn["a"]["d"], drawn["b"]] == [stream.unit() for _ in range(3)]


def test_a_constant_draws_nothing_and_a_choice_one_number() -> None:
    stream, other = RandomStream(5), RandomStream(5)

    assert Constant("a").sample(stream) == "a"
    assert Categorical((1, 2, 3)).sample(stream) == (1, 2, 3)[other.whole(0, 3)]


@given(st.integers(0, 2**32 - 1))
def test_samples_keep_their_bounds(seed: int) -> None:
    stream = RandomStream(seed)

    assert 3 <= Integer(3, 5).sample(stream) <= 5
    assert 0.1 <= Uniform(0.1, 0.2).sample(stream) < 0.2
    assert 1e-4 <= LogUniform(-4, -2).sample(stream) <= 1e-2


def test_a_logarithmic_sample_is_a_power() -> None:
    exponent = RandomStream(8).uniform(-4, -2)

    assert LogUniform(-4, -2).sample(RandomStream(8)) == pytest.approx(10**exponent, rel=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "count", "points"),
    [
        (0, 5, 3, [0, 3, 5]),
        (-4, -2, 5, [-4, -3, -2]),
        (0, 20, 3, [0, 10, 20]),
        (0, 5, 1, [3]),
        (-5, 0, 1, [-3]),
        (-5, 0, 3, [-5, -3, 0]),
        (7, 7, 4, [7]),
    ],
)
def test_whole_points_round_half_away_from_zero(low: int, high: int, count: int, points: list[int]) -> None:
    assert Integer(low, high, count).points() == points


def test_points_of_numbers_lie_evenly() -> None:
    assert Uniform(0, 1, 3).points() == [0.0, 0.5, 1.0]
    assert Uniform(0, 1, 1).points() == [0.5]
    assert LogUniform(-3, -1, count=3).points() == pytest.approx([1e-3, 1e-2, 1e-1], rel=1e-12)
    assert LogUniform(-3, -1, count=1).points() == pytest.approx([1e-2], rel=1e-12)


def test_a_point_of_a_grid_is_made_without_the_others() -> None:
    deep = Space({"d": Uniform(0, 1, 3), "c": Constant(5)})
    space = Space({"b": Categorical(("x", "y")), "e": deep, "a": Integer(1, 4, 2)})

    found = [space.point(index) for index in range(space.size())]

    assert found == space.points()
    assert [list(each) for each in found] == [list(each) for each in space.points()]


def test_a_grid_changes_its_last_name_first() -> None:
    space = Space({"b": Categorical(("x", "y")), "a": Integer(1, 2, 2)})

    assert space.points() == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_a_grid_has_the_product_of_its_counts() -> None:
    space = Space({"a": Integer(0, 20, 3), "b": Space({"c": Integer(0, 10, 3)})})

    assert space.size() == len(space.points()) == 9


def test_an_empty_nested_map_stays() -> None:
    space = Space({"a": Space({}), "b": Categorical((1, 2))})

    assert space.points() == [{"a": {}, "b": 1}, {"a": {}, "b": 2}]
    assert space.sample(RandomStream(0))["a"] == {}


def test_a_grid_needs_counts() -> None:
    with pytest.raises(ValueError, match="a grid needs count"):
        Space({"a": Uniform(0, 1)}).size()


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_points_of_whole_numbers_are_in_order_and_none_comes_twice(low: int, width: int, count: int) -> None:
    points = Integer(low, low + width, count).points()

    assert points == sorted(set(points))
    assert len(points) == min(count, width + 1)
    assert all(low <= each <= low + width for each in points)
    assert not any(math.isnan(each) for each in points)
