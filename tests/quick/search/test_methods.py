"""Search methods against the values of Determined's own tests, and what holds for every search."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quick.search.simulation import SPACE, Played, play, replayed
from workbench.search.asha import (
    AdaptiveAsha,
    AshaPromotion,
    AshaStopping,
    Rung,
    bracket_concurrency,
    bracket_rungs,
    bracket_trials,
    rung_units,
)
from workbench.search.config import SearchConfig
from workbench.search.method import (
    WORST,
    AskedSearch,
    Create,
    GridSearch,
    Measure,
    MetricMissing,
    Operation,
    RandomSearch,
    RunTo,
    SearchContext,
    SearchMethod,
    Shutdown,
    StopTrial,
    TrialEnd,
)
from workbench.search.pbt import PopulationSearch
from workbench.search.searcher import Searcher
from workbench.search.space import Categorical, Constant, Integer, LogUniform, Space, Uniform
from workbench.search.stream import RandomStream

LOSS = Measure("loss", True, "batches")
GAIN = Measure("loss", False, "batches")


def stopping(trials: int, concurrent: int, *, rungs: int = 3, measure: Measure = LOSS) -> AshaStopping:
    return AshaStopping(
        rung_count=rungs,
        divisor=3,
        max_time=900,
        max_trials=trials,
        max_concurrent=concurrent,
        measure=measure,
    )


def promotion(trials: int, concurrent: int, *, max_time: int = 9000) -> AshaPromotion:
    return AshaPromotion(
        rung_count=3,
        divisor=3,
        max_time=max_time,
        max_trials=trials,
        max_concurrent=concurrent,
        measure=LOSS,
    )


def adaptive(
    mode: str, trials: int, *, divisor: float = 4, max_time: int = 900, concurrent: int = 5
) -> AdaptiveAsha:
    return AdaptiveAsha(
        mode=mode,
        divisor=divisor,
        max_rungs=5,
        max_time=max_time,
        max_trials=trials,
        max_concurrent=concurrent,
        measure=LOSS,
    )


def population(size: int, rounds: int, truncate: float, *, measure: Measure = GAIN) -> PopulationSearch:
    return PopulationSearch(
        population=size,
        rounds=rounds,
        round_time=200,
        truncate=truncate,
        resample=0.0,
        perturb=0.0,
        measure=measure,
    )


@pytest.mark.parametrize(
    ("count", "max_time", "divisor", "units"),
    [
        (3, 9, 3, [1, 3, 9]),
        (4, 10, 2, [1, 2, 5, 10]),
        (3, 900, 3, [100, 300, 900]),
        (3, 2, 10, [1, 1, 2]),
        (1, 50, 4, [50]),
    ],
)
def test_rungs_lie_at_these_units(count: int, max_time: int, divisor: float, units: list[int]) -> None:
    assert rung_units(count, divisor, max_time) == units


def test_a_value_is_inserted_before_its_equals() -> None:
    rung = Rung(1, [0.0, 1.5, 2.1], ["a", "b", "c"])

    assert rung.insert_before("d", 1.2) == 1
    assert Rung(1).insert_before("a", 3.0) == 0
    assert Rung(1, [1.0, 1.0], ["a", "b"]).insert_before("c", 1.0) == 0
    assert Rung(1, [1.0, 1.0], ["a", "b"]).insert_behind("c", 1.0) == 2


def _open(method: SearchMethod, seed: int = 1) -> tuple[Searcher, list[str]]:
    searcher = Searcher(method, SPACE, seed)
    return searcher, [each.trial for each in searcher.begin() if isinstance(each, Create)]


def test_a_trial_stops_where_it_is_not_among_the_best_of_its_rung() -> None:
    searcher, (first, second, third) = _open(stopping(3, 3))

    assert searcher.report(first, {"loss": 0.5, "batches": 100}) == []
    assert searcher.report(second, {"loss": 0.4, "batches": 100}) == []
    assert searcher.report(third, {"loss": 0.6, "batches": 100}) == [StopTrial(third)]


def test_larger_values_are_better_where_that_is_the_goal() -> None:
    searcher, (first, second, third) = _open(stopping(3, 3, measure=GAIN))

    assert searcher.report(first, {"loss": 0.5, "batches": 100}) == []
    assert searcher.report(second, {"loss": 0.6, "batches": 100}) == []
    assert searcher.report(third, {"loss": 0.4, "batches": 100}) == [StopTrial(third)]


def test_one_report_passes_several_rungs() -> None:
    searcher, (first,) = _open(stopping(1, 1))

    assert searcher.report(first, {"loss": 0.5, "batches": 899}) == []
    assert searcher.report(first, {"loss": 0.5, "batches": 900}) == [StopTrial(first)]


def test_of_ever_worse_trials_only_the_first_gets_to_the_top() -> None:
    played = play(stopping(10, 3), lambda number, units: float(number))

    assert played.counts == {100: 9, 900: 1}
    assert played.most_at_once == 3


def test_reports_before_a_rung_and_after_a_stop_change_nothing() -> None:
    searcher, (first, second) = _open(stopping(2, 2))

    assert searcher.report(first, {"loss": 0.1, "batches": 99}) == []
    assert searcher.report(first, {"loss": 0.1, "batches": 100}) == []
    assert searcher.report(second, {"loss": 0.2, "batches": 100}) == [StopTrial(second)]
    assert searcher.report(second, {"loss": 0.0, "batches": 900}) == []


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_the_rungs_are_the_units_to_which_trials_are_sent(variant: str) -> None:
    config = SearchConfig(
        method="asha",
        variant=variant,
        max_time=9,
        divisor=3,
        max_trials=9,
        metric="loss",
        time_metric="epoch",
    )

    assert config.make_method().rungs() == [1, 3, 9]


@pytest.mark.parametrize("metrics", [{"batches": 100}, {"loss": 1.0}, {"loss": "low", "batches": 100}])
def test_a_missing_metric_is_an_error(metrics: dict[str, object]) -> None:
    searcher, (first,) = _open(stopping(1, 1))

    with pytest.raises(MetricMissing, match=r"loss|batches"):
        searcher.report(first, metrics)


def test_what_is_no_number_counts_as_the_worst() -> None:
    assert LOSS.value({"loss": float("nan")}) == WORST
    assert GAIN.value({"loss": float("nan")}) == WORST
    assert LOSS.value({"loss": None}) == WORST


def test_a_trial_with_bad_parameters_is_replaced_and_does_not_count() -> None:
    searcher, (first,) = _open(stopping(1, 1))
    searcher.report(first, {"loss": 0.1, "batches": 100})

    (created,) = searcher.end(first, TrialEnd.INVALID)

    assert isinstance(created, Create)
    assert searcher.report(created.trial, {"loss": 5.0, "batches": 100}) == []


def test_a_failure_is_the_worst_of_its_rung_and_is_replaced_while_there_are_trials() -> None:
    searcher, (first,) = _open(stopping(2, 1))

    operations = searcher.end(first, TrialEnd.FAILED)

    assert [type(each) for each in operations] == [Create]


def test_a_search_whose_trials_all_failed_has_failed() -> None:
    played = play(stopping(4, 2), lambda number, units: 1.0, ends=lambda number, units: TrialEnd.FAILED)

    assert played.shutdown is not None and played.shutdown.failed
    assert len(played.units) == 4


def test_promotion_adds_rungs_up_and_tells_each_trial_the_next_length() -> None:
    method = promotion(12, 12)
    searcher, trials = _open(method)
    targets = []
    for trial in trials:
        found = searcher.report(trial, {"loss": 0.5})
        targets += [each.units for each in found if isinstance(each, RunTo)]

    assert [rung.units for rung in method._rungs] == [1000, 4000, 13000]
    assert targets == [3000] * 4


def test_promotion_trains_twelve_trials_this_far() -> None:
    played = play(promotion(12, 12), lambda number, units: float(number))

    assert played.counts == {1000: 8, 3000: 3, 9000: 1}
    assert played.shutdown is not None


def test_promotion_promotes_a_waiting_trial_when_there_are_enough_to_compare() -> None:
    searcher, trials = _open(promotion(3, 3))
    assert searcher.report(trials[0], {"loss": 0.1}) == []
    assert searcher.report(trials[1], {"loss": 0.2}) == []

    found = searcher.report(trials[2], {"loss": 0.3})

    assert RunTo(trials[0], 3000) in found


@pytest.mark.parametrize(
    ("trials", "divisor", "rungs", "shares"),
    [
        (20, 3, [3, 2, 1], [12, 5, 3]),
        (50, 3, [4, 3], [35, 15]),
        (50, 4, [3, 2], [37, 13]),
        (100, 4, [4, 3, 2], [70, 22, 8]),
    ],
)
def test_brackets_share_the_trials(trials: int, divisor: float, rungs: list[int], shares: list[int]) -> None:
    assert bracket_trials(trials, divisor, rungs) == shares


@pytest.mark.parametrize(
    ("concurrent", "divisor", "trials", "shares"),
    [
        (0, 3, [9, 3, 1], [3, 3, 3]),
        (11, 3, [9, 3, 1], [4, 4, 3]),
        (0, 4, [40, 10], [10, 10]),
        (2, 3, [9, 3, 1], [1, 1, 1]),
    ],
)
def test_brackets_share_what_runs_at_once(
    concurrent: int, divisor: float, trials: list[int], shares: list[int]
) -> None:
    assert bracket_concurrency(concurrent, divisor, trials) == shares


@pytest.mark.parametrize(("number", "divisor", "rungs"), [(243, 3, 5), (1000, 10, 3), (9, 3, 3), (1, 4, 1)])
def test_quotients_of_logarithms_are_cut_as_floats_are(number: int, divisor: float, rungs: int) -> None:
    found = bracket_rungs("aggressive", max_rungs=20, divisor=divisor, max_time=10**9, max_trials=number)

    assert found == [rungs]


@pytest.mark.parametrize(
    ("mode", "rungs"),
    [("aggressive", [5]), ("standard", [5, 4, 3]), ("conservative", [5, 4, 3, 2, 1])],
)
def test_modes_have_these_brackets(mode: str, rungs: list[int]) -> None:
    assert bracket_rungs(mode, max_rungs=5, divisor=4, max_time=6400, max_trials=512) == rungs


@pytest.mark.parametrize(
    ("mode", "max_time", "trials", "divisor", "max_rungs", "counts"),
    [
        ("standard", 100, 10, 4, 5, {25: 6, 100: 4}),
        ("standard", 900, 10, 3, 10, {100: 5, 300: 3, 900: 2}),
        ("conservative", 100, 10, 2, 5, {12: 3, 25: 3, 50: 0, 100: 4}),
        ("conservative", 1000, 10, 3, 5, {111: 5, 333: 2, 1000: 3}),
        ("standard", 937, 16, 4, 5, {58: 9, 234: 5, 937: 2}),
        ("standard", 1000, 100, 4, 5, {15: 53, 62: 30, 250: 13, 1000: 4}),
        ("standard", 6400, 512, 4, 5, {25: 273, 100: 152, 400: 66, 1600: 17, 6400: 4}),
        ("aggressive", 6400, 512, 4, 5, {25: 384, 100: 96, 400: 24, 1600: 6, 6400: 2}),
        ("conservative", 6400, 512, 4, 5, {25: 262, 100: 147, 400: 64, 1600: 26, 6400: 13}),
    ],
)
def test_an_outlook_counts_trials_by_how_far_they_get(
    mode: str, max_time: int, trials: int, divisor: float, max_rungs: int, counts: dict[int, int]
) -> None:
    config = SearchConfig(
        method="adaptive_asha",
        mode=mode,
        max_time=max_time,
        max_trials=trials,
        divisor=divisor,
        max_rungs=max_rungs,
        metric="loss",
        time_metric="batches",
    )

    assert config.make_method().outlook(0) == counts


def test_brackets_begin_one_after_the_other_from_one_stream() -> None:
    method = AdaptiveAsha(
        mode="standard",
        divisor=4,
        max_rungs=5,
        max_time=100,
        max_trials=10,
        max_concurrent=16,
        measure=Measure("x", True, "batches"),
    )

    created = Searcher(method, Space({"increment_by": Integer(1, 8)}), 42).begin()

    assert [each.hparams["increment_by"] for each in created[:3] if isinstance(each, Create)] == [7, 5, 3]


def test_a_population_of_two_replaces_the_worse_one() -> None:
    assert play(population(2, 2, 0.5), lambda number, units: float(number)).counts == {200: 2, 400: 1}


def test_without_truncation_a_population_lives_on() -> None:
    played = play(population(3, 4, 0.0), lambda number, units: float(number))

    assert played.counts == {800: 3}


@pytest.mark.parametrize(("smaller", "counts"), [(False, {200: 4, 400: 14}), (True, {200: 16, 1600: 2})])
def test_a_population_keeps_its_best(smaller: bool, counts: dict[int, int]) -> None:
    method = population(4, 8, 0.5, measure=Measure("loss", smaller))

    assert play(method, lambda number, units: float(number)).counts == counts


def test_a_failed_member_is_the_worst_of_every_round() -> None:
    method = population(2, 4, 0.5, measure=LOSS)
    values = {1: 0.5, 2: 0.6, 3: 0.1, 4: 0.2, 5: 0.3}

    played = play(
        method,
        lambda number, units: values[number],
        ends=lambda number, units: TrialEnd.FAILED if (number, units) == (1, 400) else None,
    )

    assert list(played.units.values()) == [200, 200, 600, 200, 200]


EXPLORED = Space(
    {
        "cat": Categorical((0, 1, 2, 3)),
        "const": Constant("val"),
        "double": Uniform(0, 100),
        "int": Integer(0, 100),
        "log": LogUniform(-4, -2),
    }
)
HPARAMS = {"cat": 3, "const": "val", "double": 50.0, "int": 50, "log": 0.001}


@pytest.mark.parametrize("seed", range(20))
def test_exploration_moves_numbers_only_and_within_their_bounds(seed: int) -> None:
    method = PopulationSearch(
        population=10, rounds=10, round_time=1, truncate=0, resample=0, perturb=0.5, measure=LOSS
    )

    found = method.explored(SearchContext(EXPLORED, RandomStream(seed)), HPARAMS)

    assert found["cat"] == 3 and found["const"] == "val"
    assert found["double"] in (25.0, 75.0) and found["int"] in (25, 75)
    assert 1e-4 <= found["log"] <= 1e-2 and found["log"] != 0.001


def test_exploration_draws_twice_for_what_it_does_not_move() -> None:
    method = PopulationSearch(
        population=10, rounds=10, round_time=1, truncate=0, resample=0, perturb=0.5, measure=LOSS
    )
    stream, other = RandomStream(6), RandomStream(6)

    method.explored(SearchContext(EXPLORED, stream), HPARAMS)

    for _ in range(10):
        other.unit()
    assert stream.unit() == other.unit()


@pytest.mark.parametrize(("up", "expected"), [(True, 4), (False, 2)])
def test_whole_numbers_move_away_from_where_they_were(up: bool, expected: int) -> None:
    assert Integer(1, 9).moved(3, 1.1 if up else 0.9, up=up) == expected


def test_random_begins_one_for_each_that_ended() -> None:
    played = play(RandomSearch(7, 3), lambda number, units: 1.0)

    assert len(played.units) == 7
    assert played.most_at_once == 3


def test_random_replaces_a_trial_with_bad_parameters() -> None:
    played = play(
        RandomSearch(5, 2),
        lambda number, units: 1.0,
        ends=lambda number, units: TrialEnd.INVALID if number == 2 else None,
    )

    assert len(played.units) == 6


def test_grid_tries_each_point_once_and_the_last_one_first() -> None:
    space = Space({"a": Categorical((1, 2)), "b": Categorical((3, 4))})

    played = play(GridSearch(space, 1), lambda number, units: 1.0, space=space)
    tried = [each.hparams for each in itertools.chain(*played.operations) if isinstance(each, Create)]

    assert tried == list(reversed(space.points()))


def created(operations: Iterable[Operation]) -> list[str]:
    return [each.trial for each in operations if isinstance(each, Create)]


def test_a_search_that_goes_on_runs_what_failed_again_and_no_more_at_once_than_it_may() -> None:
    searcher = Searcher(RandomSearch(4, 2), SPACE, 1)
    first, second = created(searcher.begin())
    (third,) = created(searcher.end(first, TrialEnd.FAILED))
    (fourth,) = created(searcher.end(second))
    assert searcher.end(third, TrialEnd.CANCELLED) == []
    assert searcher.end(fourth, TrialEnd.FAILED) == [Shutdown()]

    going_on = (first, third, fourth)
    ends = {second: TrialEnd.COMPLETED}

    assert searcher.reopen(going_on, ends, max_trials=6, max_concurrent=2) == []
    assert not searcher.is_over
    assert searcher.end(first) == []
    (fifth,) = created(searcher.end(third))
    (sixth,) = created(searcher.end(fourth))
    assert searcher.end(fifth) == []
    assert searcher.end(sixth) == [Shutdown()]


def test_a_search_that_goes_on_draws_what_a_longer_one_would_have_drawn() -> None:
    longer = play(RandomSearch(9, 2), lambda number, units: 1.0)
    searcher = Searcher(RandomSearch(4, 2), SPACE, 7)
    drawn = searcher.begin()
    for number in range(4):
        drawn += searcher.end(searcher.trials[number])
    assert searcher.is_over

    drawn += searcher.reopen(
        (), dict.fromkeys(searcher.trials, TrialEnd.COMPLETED), max_trials=9, max_concurrent=0
    )

    assert [each for each in drawn if isinstance(each, Create)] == [
        each for each in itertools.chain(*longer.operations) if isinstance(each, Create)
    ]


def test_ends_that_a_killed_search_was_not_given_are_taken_when_it_goes_on() -> None:
    space = Space({"a": Categorical((1, 2, 3, 4, 5))})
    searcher = Searcher(GridSearch(space, 3), space, 1)
    first, second, third = created(searcher.begin())

    ends = {first: TrialEnd.COMPLETED, second: TrialEnd.INVALID}
    fourth, fifth = created(searcher.reopen((third,), ends, max_trials=1, max_concurrent=3))

    assert searcher.end(third) == searcher.end(fourth) == []
    assert searcher.end(fifth) == [Shutdown()]


def test_a_search_that_goes_on_with_nothing_to_do_is_over() -> None:
    searcher = Searcher(RandomSearch(1), SPACE, 1)
    (only,) = created(searcher.begin())
    searcher.end(only, TrialEnd.CANCELLED)

    found = searcher.reopen((), {only: TrialEnd.CANCELLED}, max_trials=1, max_concurrent=0)

    assert found == [Shutdown(cancelled=True)]


METHODS: dict[str, Callable[[int, int], SearchMethod]] = {
    "random": lambda trials, concurrent: RandomSearch(trials, concurrent),
    "stopping": stopping,
    "promotion": lambda trials, concurrent: promotion(trials, concurrent, max_time=900),
    "aggressive": lambda trials, concurrent: adaptive("aggressive", trials, concurrent=concurrent),
    "standard": lambda trials, concurrent: adaptive("standard", trials, concurrent=concurrent),
    "conservative": lambda trials, concurrent: adaptive("conservative", trials, concurrent=concurrent),
}


def _played(name: str, trials: int, concurrent: int, seed: int, failing: float) -> Played:
    chance = random.Random(seed)
    return play(
        METHODS[name](trials, concurrent),
        lambda number, units: chance.random(),
        seed=seed,
        pick=chance.choice,
        ends=lambda number, units: TrialEnd.FAILED if chance.random() < failing else None,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(METHODS)),
    st.integers(1, 40),
    st.integers(1, 8),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_every_search_ends_tries_no_trial_twice_and_replays(
    name: str, trials: int, concurrent: int, seed: int, failing: float
) -> None:
    played = _played(name, trials, concurrent, seed, failing)
    created = [each for each in itertools.chain(*played.operations) if isinstance(each, Create)]

    assert played.shutdown is not None
    assert len({each.trial for each in created}) == len(created)
    assert len(created) <= max(trials, 5)  # each of five brackets has one at least
    assert replayed(METHODS[name](trials, concurrent), played, seed=seed) == played.operations


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 2**31))
def test_a_higher_rung_never_holds_more_trials_than_the_one_below(
    trials: int, concurrent: int, seed: int
) -> None:
    method = stopping(trials, concurrent)
    chance = random.Random(seed)
    play(method, lambda number, units: chance.random(), pick=chance.choice, seed=seed)
    sizes = [len(rung.values) for rung in method._rungs]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == trials
    assert all(rung.values == sorted(rung.values) for rung in method._rungs)


@given(st.integers(1, 2000), st.floats(1.5, 10), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_no_trial_is_lost_among_brackets(trials: int, divisor: float, rungs: list[int]) -> None:
    shares = bracket_trials(trials, divisor, sorted(rungs, reverse=True))

    assert sum(shares) >= trials and min(shares) >= 1


@pytest.mark.parametrize("method", ["random", "grid", "asha", "adaptive_asha", "pbt"])
def test_an_outlook_counts_every_trial(method: str) -> None:
    config = SearchConfig.from_json(
        {
            "method": method,
            "metric": "loss",
            "time_metric": "batches",
            "max_time": 64,
            "max_trials": 20,
            "population": 4,
            "rounds": 3,
            "round_time": 10,
            "truncate": 0.5,
            "params": {"a": {"int": [0, 9], "count": 4}, "b": {"choice": [1, 2, 3, 4, 5]}},
        }
    )
    total = 8 if method == "pbt" else 20

    assert sum(config.make_method().outlook(3).values()) == total


ASKED = Measure("loss", True, "")


def asked(trials: int = 3, concurrent: int = 2) -> Searcher:
    searcher = Searcher(AskedSearch(trials, concurrent, ASKED), SPACE, 7)
    assert searcher.begin() == []
    return searcher


def answered(searcher: Searcher, x: int) -> Create:
    searcher.ask()
    (created,) = searcher.answer({"x": x})
    assert isinstance(created, Create) and created.hparams == {"x": x}
    return created


def test_what_is_asked_begins_as_many_as_may_run_at_once() -> None:
    searcher = asked()

    assert searcher.wanted == 2
    searcher.ask()
    assert (searcher.wanted, searcher.is_asking) == (1, True)
    searcher.answer({"x": 1})
    second = answered(searcher, 2)
    assert (searcher.wanted, searcher.is_asking) == (0, False)
    assert searcher.end(second.trial) == []
    assert searcher.wanted == 1
    third = answered(searcher, 3)
    assert searcher.end(third.trial) == [] and searcher.wanted == 0
    assert searcher.end(searcher.trials[0]) == [Shutdown()]
    assert (searcher.wanted, searcher.is_over, searcher.progress()) == (0, True, 1.0)


def test_a_search_whose_answer_is_awaited_is_not_over() -> None:
    searcher = asked()
    first = answered(searcher, 1)
    searcher.ask()

    assert searcher.end(first.trial) == []
    assert searcher.answer(None) == [Shutdown()]


def test_no_more_samples_end_a_search_with_its_last_trial() -> None:
    searcher = asked()
    first = answered(searcher, 1)
    searcher.ask()

    assert searcher.answer(None) == []
    assert searcher.wanted == 0
    assert searcher.end(first.trial, TrialEnd.FAILED) == [Shutdown(failed=True)]


def test_an_invalid_sample_is_asked_for_again() -> None:
    searcher = asked(1, 1)
    first = answered(searcher, 1)

    assert searcher.end(first.trial, TrialEnd.INVALID) == []
    assert searcher.wanted == 1
    second = answered(searcher, 2)
    assert searcher.end(second.trial) == [Shutdown()]


def test_a_trial_is_stopped_from_outside_once() -> None:
    searcher = asked()
    first = answered(searcher, 1)

    assert searcher.stop(first.trial) == [StopTrial(first.trial)]
    assert searcher.stop(first.trial) == []
    searcher.end(first.trial, TrialEnd.FAILED)
    assert searcher.stop(first.trial) == []
    with pytest.raises(KeyError):
        searcher.stop("another")


def test_a_report_without_what_is_gone_by_is_refused_also_where_others_decide() -> None:
    searcher = Searcher(AskedSearch(1, 1, LOSS), SPACE, 7)
    searcher.begin()
    first = answered(searcher, 1)

    assert searcher.report(first.trial, {"loss": 1.0, "batches": 2}) == []
    with pytest.raises(MetricMissing, match="time metric 'batches'"):
        searcher.report(first.trial, {"loss": 1.0})


def test_a_random_search_with_invalid_trials_runs_no_more_at_once_than_it_may() -> None:
    played = play(
        RandomSearch(4, 2),
        lambda number, units: 1.0,
        ends=lambda number, units: TrialEnd.INVALID if number < 4 else None,
    )

    assert (played.most_at_once, len(played.units)) == (2, 7)


@pytest.mark.parametrize("name", ["random", "grid"])
def test_trials_that_are_created_ahead_are_the_same_in_the_same_order(name: str) -> None:
    space = Space({"x": Integer(1, 1000, count=40)})

    def created(max_concurrent: int) -> list[Create]:
        method = RandomSearch(40, max_concurrent) if name == "random" else GridSearch(space, max_concurrent)
        searcher, found, ended = Searcher(method, space, 7), list[Operation](), 0
        found += searcher.begin()
        while trials := [one for one in found[ended:] if isinstance(one, Create)]:
            ended += 1
            how = {0: TrialEnd.INVALID, 1: TrialEnd.FAILED, 2: TrialEnd.CANCELLED}.get(ended % 5)
            found += searcher.end(trials[0].trial, how or TrialEnd.COMPLETED)
        return [one for one in found if isinstance(one, Create)]

    one_by_one = created(1)
    assert len(one_by_one) == (49 if name == "random" else 40)
    assert created(10) == created(101) == one_by_one


def test_another_trial_takes_the_turn_of_one_that_ends_below_the_top_rung() -> None:
    searcher = Searcher(stopping(3, 1), Space({}), 7)
    (first,) = searcher.begin()
    assert isinstance(first, Create)
    assert searcher.report(first.trial, {"loss": 1.0, "batches": 50}) == []

    (second,) = searcher.end(first.trial)
    assert isinstance(second, Create)
    stop, third = searcher.report(second.trial, {"loss": 2.0, "batches": 900})
    assert (stop, isinstance(third, Create)) == (StopTrial(second.trial), True)
    assert searcher.end(second.trial) == []
    assert isinstance(third, Create)
    assert searcher.end(third.trial) == [Shutdown()]


def test_a_search_that_an_older_fabric_began_replaces_no_trial_that_ends_early() -> None:
    keys = {"method": "asha", "metric": "loss", "time_metric": "batches", "max_time": 900, "max_trials": 3}
    config = SearchConfig.from_json({**keys, "max_concurrent": 1})
    searcher = Searcher(config.make_method(replaces_early_ends=False), Space({}), 7)
    (first,) = searcher.begin()
    assert isinstance(first, Create)

    assert searcher.end(first.trial) == [Shutdown()]
