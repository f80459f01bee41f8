from __future__ import annotations

from typing import Any

import pytest

from tests.quick.manifest.support import SMALL, fault_of, faults_of, loaded, spec_of, warnings_of
from workbench.manifest.builder.params import trial_spec, with_params
from workbench.search.config import SearchConfig
from workbench.search.space import Categorical, Constant, Integer, LogUniform, Space, Uniform
from workbench.spec import spec_from_json, spec_to_json

ASHA = "method: asha, metric: loss, time_metric: epoch, max_time: 9, max_trials: 5"


def searched(params: str, more: str = "method: random, max_trials: 3") -> str:
    return f"search: {{{more}, params: {{{params}}}}}\n"


def space_of(params: str) -> Space:
    document = spec_of(searched(params)).search
    assert document is not None
    return SearchConfig.from_json(document).space()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{loguniform: [1e-4, 1e-2]}", LogUniform(-4.0, -2.0)),
        ("{uniform: [0, 0.5], count: 3}", Uniform(0.0, 0.5, 3)),
        ("{int: [1, 8]}", Integer(1, 8)),
        ("{choice: [adam, 1, true, [1, 2]]}", Categorical(("adam", 1, True, [1, 2]))),
        ("{c: {int: [1, 2]}, d: 7}", Space({"c": Integer(1, 2), "d": Constant(7)})),
        ("adam", Constant("adam")),
        ("{}", Space({})),
    ],
)
def test_what_may_be_tried_is_read(written: str, expected: Any) -> None:
    assert space_of(f"a: {written}").parts == {"a": expected}


def test_a_map_is_a_distribution_below_search_only() -> None:
    assert "write a number, a text, true or false" in fault_of("params: {lr: {uniform: [0, 1]}}\n")


def test_a_search_is_kept_with_the_job() -> None:
    spec = spec_of(searched("lr: {loguniform: [1e-4, 1e-2]}", f"{ASHA}, goal: maximize"))

    assert spec_from_json(spec_to_json(spec)).search == spec.search
    assert spec.search is not None and not SearchConfig.from_json(spec.search).smaller_is_better


def test_references_to_searched_parameters_wait_for_a_trial() -> None:
    text = "name: a\nframework: {command: 'x ${params.lr} ${params.o.k} ${params.n}'}\nparams: {n: 3}\n"

    spec = loaded(text + searched("lr: {uniform: [0, 1]}, o: {k: {int: [1, 2]}}")).spec

    assert spec.framework.command == "x ${params.lr} ${params.o.k} 3"
    assert with_params(spec.framework.command, {"lr": 0.25, "o": {"k": 2}}) == "x 0.25 2 3"


@pytest.mark.parametrize(
    ("keys", "goal"),
    [
        ("metric: accuracy", "maximize"),
        ("metric: val/acc", "maximize"),
        ("metric: accuracy, goal: minimize", "minimize"),
        ("metric: val_loss", "minimize"),
        ("metric: x", "minimize"),
    ],
)
def test_what_is_better_is_as_the_name_of_the_metric_says_unless_it_is_written(keys: str, goal: str) -> None:
    """Without a goal a search is minimized, as those that are stored."""
    spec = spec_of(searched("lr: {uniform: [0, 1]}", f"method: random, max_trials: 3, {keys}"))

    assert spec.search is not None
    assert spec.search.get("goal") == goal
    assert SearchConfig.from_json(spec.search).goal == goal


def test_the_best_checkpoints_are_those_by_the_goal_of_the_search() -> None:
    text = searched("lr: {uniform: [0, 1]}", "method: random, max_trials: 3, metric: accuracy")

    spec = spec_of(text + "checkpoints: {keep_best: 2, metric: accuracy}\n")

    assert not spec.checkpoints.smaller_is_better


def test_a_trial_is_known_to_report_what_its_search_compares() -> None:
    spec = spec_of(searched("lr: {uniform: [0, 1]}", ASHA.replace("loss", "val/loss")))

    trial = trial_spec(spec, {"lr": 0.5}, number=1, seed=1, max_trials=9)

    assert trial.search is None and trial.evaluation_metrics is not None
    assert trial.evaluation_metrics.names == ("val/loss", "epoch")
    assert spec_from_json(spec_to_json(trial)) == trial


def test_what_is_set_on_the_command_line_goes_into_the_search() -> None:
    spec = spec_of(
        searched("lr: {uniform: [0, 1]}"),
        "search.max_trials=9",
        "search.params.lr={int: [1, 4]}",
        "search.params.new={choice: [1, 2]}",
    )

    assert spec.search == {
        "method": "random",
        "max_trials": 9,
        "params": {"lr": {"int": [1, 4]}, "new": {"choice": [1, 2]}},
    }


@pytest.mark.parametrize(
    ("params", "sentence", "hint"),
    [
        ("a: {loguniform: [0, 1]}", "the bound 0 has no logarithm; bounds are values above 0", ""),
        ("a: {loguniform: [-5, -1]}", "the bound -5 has no logarithm", "bounds are not exponents"),
        ("a: {loguniform: [1, x]}", "its bounds are not numbers", ""),
        ("a: {uniform: [1]}", "write the lowest and the highest value", ""),
        ("a: {uniform: [1, 1]}", "the lowest value, 1, is not below the highest, 1", ""),
        ("a: {uniform: [0, .inf]}", "its bounds are not finite", ""),
        ("a: {int: [0.5, 2]}", "its bounds are not whole numbers", ""),
        ("a: {choice: []}", "write a list of values", ""),
        ("a: {choice: [1], count: 2}", "does not belong to choice", ""),
        ("a: {int: [1, 2], cuont: 2}", "does not belong to int", "did you mean count?"),
        ("a: {unifrom: [1, 2]}", "is not a distribution", "did you mean uniform?"),
        ("a: [1, 2]", "a list is not something that can be tried", "{choice: [...]}"),
        ("a.b: 1", "cannot be used; write letters, digits, underscores and dashes", ""),
    ],
)
def test_what_cannot_be_tried_is_a_fault(params: str, sentence: str, hint: str) -> None:
    (fault,) = faults_of(SMALL + searched(params))

    assert sentence in fault.problem and hint in fault.hint


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("method: radnom", "did you mean random?"),
        ("method: random, max_trails: 3, max_trials: 1", "did you mean max_trials?"),
        ("method: random", "search.max_trials: is missing; random needs it"),
        ("method: asha, metric: a, time_metric: b, max_trials: 2", "search.max_time: is missing"),
        ("method: asha, time_metric: b, max_time: 2, max_trials: 2", "write metric: val_loss"),
        ("method: pbt, metric: a, time_metric: b, population: 2, rounds: 2", "search.round_time"),
        ("method: random, max_trials: 0", "a whole number from 1"),
        ("method: random, max_trials: 1, goal: small", "one of minimize, maximize"),
        ("method: grid", "add count: to its uniform"),
        ("method: optuna, max_trials: 3", "search.metric: is missing; optuna needs it"),
        ("method: optuna, max_trials: 3, metric: a, sampler: tpee", "did you mean tpe?"),
        ("method: optuna, max_trials: 3, metric: a, pruner: mean", "one of none, median, hyperband"),
        ("method: python, max_trials: 3, metric: a", "write searcher: search.py:Searcher"),
        ("method: python, max_trials: 3, metric: a, searcher: search.py", "MODULE:CLASS or FILE.py:CLASS"),
    ],
)
def test_a_search_that_cannot_be_made_is_a_fault(more: str, sentence: str) -> None:
    assert sentence in fault_of(searched("a: {uniform: [0, 1]}", more))


def test_a_grid_that_is_too_large_is_a_fault() -> None:
    params = "a: {int: [1, 100000], count: 50000}, b: {n: {uniform: [0, 1], count: 50000}}"

    assert "its grid has 2,500,000,000 points" in fault_of(searched(params, "method: grid"))


def test_a_parameter_stands_in_one_place() -> None:
    assert "keep one" in fault_of("params: {a: 1}\n" + searched("a: {int: [1, 2]}"))


def test_a_key_of_another_method_is_a_warning() -> None:
    (warning,) = warnings_of(searched("a: 1", "method: random, max_trials: 2, divisor: 3"))

    assert "has no effect with method random; it is for asha and adaptive_asha" in warning


def test_each_parameter_has_a_variable_of_its_own() -> None:
    assert "FABRIC_PARAM_A_B" in fault_of("params: {a-b: 1}\n" + searched("a: {b: {int: [1, 2]}}"))


@pytest.mark.parametrize("metric", ["loss", "val/loss"])
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_the_goal_says_which_checkpoints_are_the_best(metric: str, goal: str) -> None:
    text = searched("lr: {uniform: [0, 1]}", f"{ASHA}, goal: {goal}")

    found = spec_of(text + f"checkpoints: {{keep_best: 1, metric: {metric}}}\n").checkpoints

    assert found.smaller_is_better == (goal == "minimize")


def test_another_metric_of_checkpoints_has_a_direction_of_its_own() -> None:
    text = searched("lr: {uniform: [0, 1]}", f"{ASHA}, goal: maximize")

    assert spec_of(text + "checkpoints: {keep_best: 1, metric: time}\n").checkpoints.smaller_is_better


@pytest.mark.parametrize(("goal", "written"), [("maximize", "true"), ("minimize", "false")])
def test_the_best_checkpoints_are_not_the_worst_for_the_goal(goal: str, written: str) -> None:
    text = searched("lr: {uniform: [0, 1]}", f"{ASHA}, goal: {goal}")
    keys = f"checkpoints: {{keep_best: 1, metric: loss, smaller_is_better: {written}}}\n"

    assert f"smaller_is_better: contradicts search.goal, which is {goal}" in fault_of(text + keys)
