from __future__ import annotations

import pytest

from tests.quick.manifest.support import fault_of, spec_of, warnings_of
from workbench.learner.collectors.regex.groups import MACROS as LIBRARY
from workbench.learner.collectors.registry import BUILT_IN, SYNONYMS
from workbench.manifest.builder.metrics import MACROS
from workbench.manifest.keys.metric_keys import COLLECTORS
from workbench.spec import EvaluationMetrics, TypedValue

GLOG = r"""
evaluation_metrics:
  type: regex_extractor
  line_lookahead: 3
  in: $JOB_STATE_DIR/logs/training-log.txt
  groups:
    test:
      regex: '%{GLOG_STAMP:stamp}.*Iteration %{INT:iteration}, Testing.*\n.*accuracy = %{FLOAT:accuracy}'
      meta: {time: $stamp, subid: worker}
      scalars:
        accuracy: {type: FLOAT, value: $accuracy}
      etimes:
        iteration: {type: INT, value: $iteration}
        kind: {type: STRING, value: literal}
"""


def metrics(extra: str) -> EvaluationMetrics:
    found = spec_of(extra).evaluation_metrics
    assert found is not None
    return found


def test_expressions_are_read_whole() -> None:
    found = metrics(GLOG)

    assert warnings_of(GLOG) == []
    assert (found.type, found.line_lookahead) == ("regex_extractor", 3)
    assert found.source == "$JOB_STATE_DIR/logs/training-log.txt"
    group = found.groups["test"]
    assert group.regex.startswith("%{GLOG_STAMP:stamp}")
    assert r"\n" in group.regex
    assert (group.time, group.subid) == ("$stamp", "worker")
    assert group.scalars == {"accuracy": TypedValue("FLOAT", "$accuracy")}
    assert group.etimes["kind"] == TypedValue("STRING", "literal")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("{}", "plain"),
        ("{type: }", "plain"),
        ("{type: none}", "plain"),
        ("{type: nil}", "plain"),
        ("{type: null}", "plain"),
        ("{type: logger}", "plain"),
        ('{type: ""}', "plain"),
        ("{type: tensorboard}", "tensorboard"),
        ("{type: tensorboard_extractor}", "tensorboard"),
        ("{type: emetrics_file}", "emetrics_file"),
        ("{type: file}", "emetrics_file"),
        ("{type: optivist}", "emetrics_file"),
    ],
)
def test_every_synonym_is_its_collector(written: str, name: str) -> None:
    assert metrics(f"evaluation_metrics: {written}\n").type == name


def test_names_and_macros_are_those_of_the_collectors() -> None:
    assert set(COLLECTORS) == set(BUILT_IN)
    assert {synonym: name for name, others in COLLECTORS.items() for synonym in others} == SYNONYMS
    assert set(MACROS) == set(LIBRARY)


@pytest.mark.parametrize("key", ["eventTypes", "event_types", "eventtypes"])
def test_event_types_in_every_spelling(key: str) -> None:
    assert metrics(f"evaluation_metrics: {{type: tensorboard, {key}: [scalars]}}\n").event_types == (
        "scalars",
    )


@pytest.mark.parametrize("key", ["line_lookahead", "linelookahead"])
def test_line_lookahead_in_every_spelling(key: str) -> None:
    group = "groups: {g: {regex: a}}"

    assert metrics(f"evaluation_metrics: {{type: regex_extractor, {key}: 9, {group}}}\n").line_lookahead == 9
    assert metrics(f"evaluation_metrics: {{type: regex_extractor, {key}: 0, {group}}}\n").line_lookahead == 4


@pytest.mark.parametrize("key", ["scalars", "values"])
def test_scalars_in_every_spelling(key: str) -> None:
    group = f"groups: {{g: {{regex: '%{{FLOAT:x}}', {key}: {{x: {{type: FLOAT, value: $x}}}}}}}}"

    found = metrics(f"evaluation_metrics: {{type: regex_extractor, {group}}}\n")

    assert found.groups["g"].scalars == {"x": TypedValue("FLOAT", "$x")}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{type: tensorbord}", "did you mean tensorboard?"),
        ("{type: my/image:1}", "or an installed collector's name"),
        ("{type: regex_extractor, groups: {g: {}}}", "regex: is missing"),
        ("{type: regex_extractor, groups: {g: {regex: '(a'}}}", "not a regular expression"),
        ("{type: regex_extractor, groups: {g: {regex: '%{FLOT:x}'}}}", "did you mean FLOAT?"),
        ("{type: regex_extractor, groups: {g: {regex: '%{INT:x} %{INT:x}'}}}", "not a regular expression"),
        ("{type: regex_extractor, groups: {g: {regex: a, scalars: {x: $x}}}}", "{type: FLOAT, value: $name}"),
        (
            "{type: regex_extractor, groups: {g: {regex: a, scalars: {x: {type: REAL, value: '1'}}}}}",
            "JSONSTRING",
        ),
        ("{type: regex_extractor, groups: {g: {regex: a, scalars: {x: {value: '1'}}}}}", "type: is missing"),
        ("{type: regex_extractor, line_lookahead: -1, groups: {g: {regex: a}}}", "line_lookahead"),
        ("tensorboard", "found the text 'tensorboard'"),
    ],
)
def test_what_is_wrong_is_named(written: str, message: str) -> None:
    assert message in fault_of(f"evaluation_metrics: {written}\n")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{type: regex_extractor}", "no metric will be found"),
        ("{type: tensorboard, groups: {g: {regex: a}}}", "only regex_extractor uses it"),
        ("{type: plain, event_types: [scalars]}", "only tensorboard uses it"),
        ("{type: tensorboard, event_types: [scalar]}", "did you mean scalars?"),
        ("{type: tensorboard, event_types: [images]}", "only scalars are"),
        ("{type: tensorboard, image_tag: x}", "collectors are part of fabric"),
        (
            "{type: regex_extractor, groups: {g: {regex: '%{INT:a}', scalars: {x: {type: INT, value: $b}}}}}",
            "it binds a",
        ),
    ],
)
def test_what_has_no_effect_is_a_warning(written: str, message: str) -> None:
    (warning,) = warnings_of(f"evaluation_metrics: {written}\n")

    assert message in warning
