"""Names in Determined's experiment files that our own manifests would refuse: of hyperparameters, labels, variables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.quick.manifest.support import fault_of, faults_of, loaded, spec_of
from workbench.manifest import convert
from workbench.search.config import SearchConfig
from workbench.spec import JobSpec

RANDOM = "entrypoint: a\nsearcher: {name: random, metric: loss, max_trials: 3}\n"
GRID = "entrypoint: a\nsearcher: {name: grid, metric: loss}\n"
SINGLE = "entrypoint: a\nsearcher: {name: single, metric: loss}\n"
INT = {"type": "int", "minval": 1, "maxval": 8, "count": 8}
NAMES = ("1st", "N", "a.b.c", "choice", "count", "lr (max)", "n", "uniform", "x=1", "öl", "日本")
"""In the order in which they are drawn."""


def experiment(searcher: str, hyperparameters: dict[str, Any], more: str = "") -> JobSpec:
    return loaded(f"{searcher}hyperparameters: {json.dumps(hyperparameters)}\n{more}").spec


def search_of(searcher: str, hyperparameters: dict[str, Any]) -> SearchConfig:
    found = experiment(searcher, hyperparameters).search
    assert found is not None
    return SearchConfig.from_json(found)


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_search_takes_any_names_and_draws_by_them_what_it_draws_by_others(is_nested: bool) -> None:
    def drawn(names: tuple[str, ...]) -> list[tuple[list[int], int]]:
        params: dict[str, Any] = dict.fromkeys(names, INT)
        config = search_of(RANDOM, {"net": params} if is_nested else params)
        found = [(each.hparams["net"] if is_nested else each.hparams, each.seed) for each in
                 config.first_trials(3, 42)]  # fmt: skip
        assert all(sorted(hparams) == sorted(names) for hparams, _ in found)
        return [([hparams[name] for name in names], seed) for hparams, seed in found]

    usual = tuple(f"p{number:02}" for number in range(len(NAMES)))
    assert drawn(NAMES) == drawn(usual)


@pytest.mark.parametrize("name", ["int", "uniform", "loguniform", "choice", "count", "a.b"])
@pytest.mark.parametrize("value", [0.1, [1, 2], None, {}, "text", {"choice": [3]}, INT])
def test_a_nested_hyperparameter_may_be_called_as_a_distribution_is(name: str, value: Any) -> None:
    config = search_of(
        GRID, {"net": {name: value, "x": {"type": "int", "minval": 1, "maxval": 2, "count": 2}}}
    )

    points = config.space().points()

    values = range(1, 9) if value is INT else [value]
    assert points == [{"net": {name: each, "x": x}} for each in values for x in (1, 2)]
    assert config.space().size() == len(points)


def test_a_grid_below_the_name_of_a_distribution_is_counted_before_it_is_made() -> None:
    large = {"type": "double", "minval": 0, "maxval": 1, "count": 50_000}

    (fault,) = faults_of(f"{GRID}hyperparameters: {json.dumps({'int': {'choice': large, 'a.b': large}})}\n")

    assert "its grid has 2,500,000,000 points" in fault.problem


def test_hyperparameters_that_differ_in_what_a_variable_has_not_are_two() -> None:
    names = {"N": 1, "n": 2, "a-b": 3, "a_b": 4, "a.b": 5}

    assert search_of(RANDOM, {**names, "x": INT}).first_trials(1, 1)[0].hparams.items() >= names.items()
    alone = experiment(SINGLE, names)
    assert json.loads(alone.env["DET_HPARAMS"]) == names
    assert alone.params["N"] == 1 and alone.params["n"] == 2


def test_a_hyperparameter_called_type_is_none_that_is_drawn() -> None:
    spec = experiment(SINGLE, {"type": "resnet", "lr": 0.1})

    assert spec.search is None
    assert json.loads(spec.env["DET_HPARAMS"]) == {"type": "resnet", "lr": 0.1}


def test_a_search_with_any_names_is_converted_and_read_again_as_it_is() -> None:
    hyperparameters = {**dict.fromkeys(NAMES, INT), "net": {"int": 1, "x": INT}}
    text = f"name: e\n{RANDOM}hyperparameters: {json.dumps(hyperparameters)}\n"
    search = loaded(text).spec.search

    assert loaded(convert(text, "e.yaml").text).spec.search == search
    # As a search that is forked or continued is read.
    assert loaded(text, sets=[f"search={json.dumps(search)}"]).spec.search == search


def test_a_label_that_a_job_cannot_have_becomes_one_that_it_can_and_is_named() -> None:
    labels = [
        "fine",
        "1.5/a_b-c",
        "lr=0.1",
        "#1",
        "best!",
        "team:vision",
        "_x",
        "öl",
        "日本",
        "x" * 64,
        "lr 0.1",
        "!",
    ]
    found = loaded(f"{SINGLE}labels: {json.dumps(labels, ensure_ascii=False)}\n")

    assert list(found.spec.labels) == [
        "fine", "1.5/a_b-c", "lr-0.1", "1", "best-", "team-vision", "x", "label-öl", "label-日本", "x" * 63, "label"
    ]  # fmt: skip
    (warning,) = found.warnings
    assert warning.key == "labels"
    for change in (
        "'lr=0.1' becomes lr-0.1",
        "'#1' becomes 1",
        "'öl' becomes label-öl",
        "'lr 0.1' becomes lr-0.1",
    ):
        assert change in warning.problem
    assert "fine" not in warning.problem and "63" in warning.hint


@pytest.mark.parametrize(
    ("labels", "shared"),
    [
        (["lr=0.1", "lr:0.1", "a"], "lr-0.1"),
        (["x" * 64, "x" * 65], "x" * 63),
        (["lr=0.1", "lr-0.1"], "lr-0.1"),
        (["lr=0.1", "lr=0.2", "lr=0.1"], ""),
    ],
)
def test_labels_that_become_one_are_named(labels: list[str], shared: str) -> None:
    (warning,) = loaded(f"{SINGLE}labels: {json.dumps(labels)}\n").warnings

    assert warning.problem.endswith(f"; several become one label, {shared}") == bool(shared)
    assert ("one label" in warning.problem) == bool(shared)


def test_labels_that_a_job_can_have_are_kept_without_a_word_and_blank_ones_are_none() -> None:
    found = loaded(f"{SINGLE}labels: [a, b.c, '  ', '']\n")

    assert (found.spec.labels, found.warnings) == ({"a": "true", "b.c": "true"}, ())


def test_a_label_that_a_manifest_cannot_have_is_refused_with_what_it_may_be() -> None:
    fault = fault_of("labels: {lr=0.1: x}\n")

    assert "the name 'lr=0.1' cannot be used; write a letter or a digit, then letters, digits" in fault


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            f"{SINGLE}environment: {{environment_variables: ['a.b=secret']}}",
            "environment.environment_variables: the name 'a.b' cannot be used",
        ),
        (
            f"{SINGLE}environment: {{environment_variables: {{cpu: ['1a=secret']}}}}",
            "environment.environment_variables.cpu: the name '1a' cannot be used",
        ),
        (RANDOM.replace("3", "100001"), "searcher.max_trials: found the number 100001; write a whole number"),
        (
            "entrypoint: a\nsearcher: {name: async_halving, metric: l, max_trials: 2, num_rungs: 65,"
            " time_metric: e, max_time: 9}",
            "searcher.num_rungs: found the number 65; write a whole number from 1 to 64",
        ),
    ],
)
def test_what_is_more_than_a_manifest_takes_is_named_by_the_key_of_the_file(lines: str, problem: str) -> None:
    (fault,) = faults_of(f"{lines}\nhyperparameters: {{x: {json.dumps(INT)}}}\n")

    assert problem in str(fault)
    assert "secret" not in str(fault)


def test_more_trials_at_once_than_there_may_be_are_as_many_as_there_may_be() -> None:
    text = RANDOM.replace("max_trials: 3", "max_trials: 3, max_concurrent_trials: 1000000")

    assert search_of(text, {"x": INT}).max_concurrent == 100_000


def test_names_of_our_own_manifests_keep_their_rule() -> None:
    for params in (
        "{a.b: {int: [1, 2]}}",
        "{x: {uniform: 0.1, y: {int: [1, 2]}}}",
        "{N: 1, n: {int: [1, 2]}}",
    ):
        assert fault_of(f"search: {{method: random, max_trials: 2, params: {params}}}\n")
    assert spec_of("params: {a-b: 1}\n").params == {"a-b": 1}


@pytest.mark.parametrize(
    "config", ["", "{}", '{"unmanaged": true}', '{"searcher": {"name": "single"}, "unmanaged": true}']
)
@pytest.mark.parametrize("value", ["0.1", "'0, 1'"])
def test_a_manifest_with_an_experiment_that_no_file_describes_keeps_our_rules(
    config: str, value: str
) -> None:
    env = f"env: {{DET_EXPERIMENT_CONFIG: {json.dumps(config)}}}\n"
    search = "search: {method: random, max_trials: 2, params: %s}\n"

    assert "write the lowest and the highest value" in fault_of(
        env + search % f"{{lr: {{uniform: {value}}}}}"
    )
    assert "the same variable FABRIC_PARAM_N" in fault_of(env + search % "{N: 1, n: {int: [1, 2]}}")
    assert "the same variable FABRIC_PARAM_N" in fault_of(env + "params: {N: 1, n: 2}\n")
    assert "the name 'a.b' cannot be used" in fault_of(env + search % "{a.b: {int: [1, 2]}}")


@pytest.mark.parametrize("name", ["x\x1b[31my", "\u202eevil", "a\x85b", "a\u2066b"])
@pytest.mark.parametrize("searcher", [SINGLE, RANDOM])
def test_a_name_that_would_drive_a_terminal_is_refused_by_its_key(name: str, searcher: str) -> None:
    expected = f"the name {name!r} cannot be used; write a name without control and direction characters"
    for hyperparameters, path in (
        ({name: 1, "x": INT}, "hyperparameters"),
        ({"net": {name: INT}, "x": INT}, "hyperparameters.net"),
        ({name: {"type": "int"}, "x": INT}, "hyperparameters"),
    ):
        faults = faults_of(f"{searcher}hyperparameters: {json.dumps(hyperparameters)}\n")
        assert [str(fault) for fault in faults if f" {path}: {expected}" in str(fault)]
        assert all(str(fault).isprintable() for fault in faults)
    search = json.dumps({"method": "random", "max_trials": 2, "params": {name: {"int": [1, 2]}}})
    faults = faults_of(f"{RANDOM}hyperparameters: {{x: 1}}\n", f"search={search}")
    assert expected in "\n".join(map(str, faults))


@pytest.mark.parametrize("name", ["a", "a\u200db", "a\u00a0b"])
def test_a_number_that_is_infinite_is_refused_once_whatever_it_is_called(name: str) -> None:
    tried = "{type: double, minval: 0, maxval: .inf, count: 2}"

    (fault,) = faults_of(f"{GRID}hyperparameters: {{{json.dumps(name)}: {tried}}}\n")

    assert "maxval: found the number .inf" in str(fault)
