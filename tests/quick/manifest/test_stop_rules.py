"""``stop_when:`` in manifests."""

from __future__ import annotations

import pytest

from tests.quick.manifest.support import fault_of, spec_of, warnings_of
from workbench.spec import spec_from_json, spec_to_json


def rule(text: str) -> str:
    return f"stop_when: [{{{text}}}]\n"


def test_rules_are_kept_with_the_job() -> None:
    spec = spec_of(
        "stop_when:\n  - {metric: loss, is: nan}\n  - {metric: acc, no_better_for: 3, then: tell}\n"
    )

    assert spec.stop_when == (
        {"metric": "loss", "is": "nan"},
        {"metric": "acc", "no_better_for": 3, "then": "tell"},
    )
    assert spec_from_json(spec_to_json(spec)) == spec


def test_a_job_of_an_older_version_has_no_rules() -> None:
    document = spec_to_json(spec_of())
    del document["stop_when"]

    assert spec_from_json(document).stop_when == ()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("metric: loss", "says not when; write one of is:, above:, below:, no_better_for:, worse_than:"),
        ("is: nan", "stop_when.0.metric: is missing; write the name of a metric"),
        ("metric: loss, is: nan, above: 3", "has is: and above:; a rule has one of them"),
        ("metric: loss, is: bad", "write one of nan"),
        ("metric: loss, above: high", "write a number from"),
        ("metric: loss, no_better_for: 0", "write a whole number from 1 to"),
        ("metric: loss, is: nan, then: stop", "write one of halt, kill, tell"),
        ("metric: loss, is: nan, action: kill", "write then:"),
        ("metric: loss, worse_than: mean", "write one of median"),
        ("metric: loss, worse_than: median, of: all", "write one of sweep"),
        ("metric: loss, worse_than: median, after: 120%", "or a share such as 20%"),
        ("metric: loss, is: nan, after: 20%", "a share is for worse_than:"),
        ("metric: loss, patience: 3, is: nan", "write no_better_for:"),
    ],
)
def test_what_is_no_rule_is_refused(written: str, message: str) -> None:
    assert message in fault_of(rule(written))


def test_what_is_no_list_is_refused() -> None:
    assert "write a list of rules" in fault_of("stop_when: {metric: loss, is: nan}\n")


def test_a_share_is_kept_as_it_is_written() -> None:
    spec = spec_of(rule("metric: loss, worse_than: median, of: sweep, after: 20%"))

    assert spec.stop_when[0]["after"] == "20%"
    assert spec_from_json(spec_to_json(spec)) == spec


def test_a_goal_that_changes_nothing_is_a_warning() -> None:
    assert any(
        "is for no_better_for:" in one for one in warnings_of(rule("metric: l, is: nan, goal: maximize"))
    )
    assert not warnings_of(rule("metric: l, no_better_for: 2, goal: maximize"))
