from __future__ import annotations

import pytest

from tests.quick.manifest.support import fault_of, faults_of, loaded, spec_of
from workbench.manifest import param_text, param_variable
from workbench.manifest.builder.params import param_variables, params_by_name, search_name, with_params

PARAMS = "params: {lr: 1e-5, name: a b, flag: true, gpus: 2}\n"


def test_a_parameter_stands_for_its_text_in_any_value() -> None:
    text = (
        "name: run ${params.lr}\n" + PARAMS + "gpus: ${params.gpus}\nenv: {LR: '${params.lr}'}\n"
        "setup: echo ${params.name}\nlabels: {lr: '${params.lr}'}\n"
        "framework:\n  version: image:${params.gpus}\n  command: train ${params.lr} --f=${params.flag} ${OTHER}\n"
    )

    spec = loaded(text).spec

    assert spec.framework.command == "train 1e-5 --f=true ${OTHER}"
    assert (spec.name, spec.gpus, spec.env, spec.setup) == ("run 1e-5", 2, {"LR": "1e-5"}, "echo a b")
    assert (spec.image, spec.labels) == ("image:2", {"lr": "1e-5"})
    assert spec.params == {"lr": 1e-5, "name": "a b", "flag": True, "gpus": 2}


def test_a_parameter_set_on_the_command_line_is_the_one_that_stands() -> None:
    spec = spec_of(PARAMS, "params.lr=0.5", "framework.command=train ${params.lr}")

    assert spec.framework.command == "train 0.5"


def test_parameters_do_not_stand_for_each_other() -> None:
    assert spec_of("params: {a: '${params.b}', b: 1}\n").params["a"] == "${params.b}"


def test_an_unknown_parameter_names_the_nearest() -> None:
    fault = fault_of("params: {learning_rate: 1}\nsetup: echo ${params.learning_rat}\n")

    assert "did you mean ${params.learning_rate}?" in fault
    assert fault.startswith("m.yml:5:8: setup:")


def test_a_number_made_of_a_parameter_is_checked() -> None:
    (fault,) = faults_of("name: a\nframework: {command: x}\nparams: {g: half}\ngpus: ${params.g}\n")

    assert fault.key == "gpus"
    assert "found the text 'half'" in fault.problem


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (0.1, "0.1"), (1e-5, "1e-05"), (3, "3"), ("a b", "a b")],
)
def test_variables_hold_parameters_as_text(value: bool | float | str, text: str) -> None:
    assert param_text(value) == text


def test_variables_are_named_after_parameters() -> None:
    assert param_variable("weight-decay") == "FABRIC_PARAM_WEIGHT_DECAY"


def test_names_that_can_be_no_variable_have_none_and_the_first_of_two_has_theirs() -> None:
    params = {
        "a.b.c": 1,
        "1st": 2,
        "lr (max)": 3,
        "öl": 4,
        "N": 5,
        "n": 6,
        "net": {"x=1": 7, "a b": 8, "d.e": True},
    }

    assert param_variables(params) == {
        "FABRIC_PARAM_A_B_C": "1",
        "FABRIC_PARAM_1ST": "2",
        "FABRIC_PARAM_N": "5",
        "FABRIC_PARAM_NET_D_E": "true",
    }


def test_of_two_that_are_called_alike_all_have_the_first() -> None:
    for params, first in (({"a.b": 1, "a": {"b": 2}}, 1), ({"a": {"b": 2}, "a.b": 1}, 2)):
        assert param_variables(params) == {"FABRIC_PARAM_A_B": str(first)}
        assert with_params("--b=${params.a.b}", params) == f"--b={first}"
        assert params_by_name(params) == {"a.b": first}


def test_a_search_is_called_what_its_trials_names_begin_with() -> None:
    for name, own in (
        ("run-${params.lr}", "run"),
        ("lr=${params.lr} of ${params.n}", "lr"),
        ("a-b", "a-b"),
        ("${params.lr}-x", "${params.lr}-x"),
    ):
        assert search_name(name) == own
