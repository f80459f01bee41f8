"""Which hyper-parameters of a search decide how good a trial is, from trials that are made so that one does."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from workbench.services.inspect.search_importance import parameter_importance

NAMES = ("noise", "kind", "lr")


def drawn(count: int, seed: int = 1) -> tuple[list[dict[str, Any]], list[float]]:
    """Return samples, and values that fall to a learning rate in the middle of the range: the rest is noise."""
    stream = random.Random(seed)
    samples: list[dict[str, Any]] = [
        {"noise": stream.random(), "kind": stream.choice(("adam", "sgd")), "lr": 10 ** stream.uniform(-4, 0)}
        for _ in range(count)
    ]
    return samples, [abs(math.log10(each["lr"]) + 2) + 0.05 * stream.random() for each in samples]


@pytest.mark.parametrize("count", [20, 60, 400])
def test_the_parameter_that_decides_comes_first_though_its_best_value_lies_in_the_middle(count: int) -> None:
    samples, values = drawn(count)

    first, *rest = parameter_importance(samples, values, NAMES).parameters

    assert first.name == "lr"
    assert first.share > 0.6
    assert all(each.share < first.share / 2 for each in rest)


def test_noise_explains_nothing_of_many_trials() -> None:
    samples, values = drawn(1000)

    shares = {each.name: each.share for each in parameter_importance(samples, values, NAMES).parameters}

    assert shares["noise"] < 0.03 > shares["kind"]


def test_a_choice_that_decides_comes_first_whether_of_texts_switches_or_few_numbers() -> None:
    stream = random.Random(3)
    samples: list[dict[str, Any]] = [
        {"kind": "ab"[at % 2], "on": at % 2 == 0, "size": (16, 64)[at % 2]} for at in range(30)
    ]
    samples = [{**each, "noise": stream.random()} for each in samples]
    values = [at % 2 + 0.1 * stream.random() for at in range(30)]

    found = parameter_importance(samples, values, ("noise", "kind", "on", "size")).parameters

    # Of ranks in two groups that do not overlap a quarter lies within the groups.
    assert [(each.name, round(each.share, 1)) for each in found[:3]] == [
        ("kind", 0.7),
        ("on", 0.7),
        ("size", 0.7),
    ]
    assert found[3].share < 0.3


def test_one_trial_that_diverged_does_not_decide() -> None:
    samples, values = drawn(60)
    before = parameter_importance(samples, values, NAMES)
    worst = values.index(max(values))

    values[worst] = 1e30

    assert parameter_importance(samples, values, NAMES) == before


def test_trials_without_a_value_do_not_count_and_ten_with_one_are_needed() -> None:
    samples, values = drawn(14)
    some: list[float | None] = [*values[:9], None, math.nan, math.inf, None, None]

    assert parameter_importance(samples, some, NAMES).parameters == ()
    assert parameter_importance(samples, some, NAMES).trials == 9
    assert len(parameter_importance(samples, [*values[:10], *some[10:]], NAMES).parameters) == 3


def test_what_cannot_be_compared_has_no_share() -> None:
    samples = [{"id": f"trial {at}", "same": 1, "either": at if at % 2 else None} for at in range(20)]

    by_each = parameter_importance(samples, [float(at) for at in range(20)], ("id", "same")).parameters
    all_equal = parameter_importance(samples, [1.0] * 20, ("either",)).parameters

    assert [each.share for each in (*by_each, *all_equal)] == [0.0, 0.0, 0.0]


def test_a_parameter_that_some_trials_lack_is_compared_by_whether_they_have_it() -> None:
    samples = [{"depth": at} if at < 10 else {} for at in range(20)]

    (only,) = parameter_importance(samples, [0.0 + (at >= 10) for at in range(20)], ("depth",)).parameters

    assert only.share == 1.0


@pytest.mark.parametrize("trials", [10, 12, 15, 20])
@pytest.mark.parametrize("kinds", [2, 4, 6, 8, 12])
def test_a_text_of_many_values_rarely_seems_to_decide_by_chance(trials: int, kinds: int) -> None:
    stream = random.Random(trials * kinds)
    decisive = 0
    for _ in range(400):
        samples = [{"kind": f"kind {stream.randrange(kinds)}"} for _ in range(trials)]
        values = [stream.random() for _ in range(trials)]
        decisive += parameter_importance(samples, values, ("kind",)).parameters[0].share > 0.5

    assert decisive < 0.05 * 400


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 10**400, None])
def test_one_number_that_has_no_part_in_an_order_leaves_the_others_numbers(odd: Any) -> None:
    samples: list[dict[str, Any]] = [{"lr": at} for at in range(40)]
    values = [float(at) for at in range(40)]

    (only,) = parameter_importance([*samples, {"lr": odd}], [*values, 0.0], ("lr",)).parameters

    assert only.share > 0.9
