"""The agent stops its learner by the rules of its launch document, whoever looks, and whatever is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, kill
from tests.support.waiting import until
from workbench.learner.journal import state
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.journal.stop_rules import LearnerRules

Make = Callable[..., Learner]

REPORTS = """
import os, time
from workbench.learner import report
for step, loss in enumerate({VALUES}, 1):
    while not os.path.exists("go-%d" % step): time.sleep(0.02)
    report(loss=loss, step=step)
while True: time.sleep(1)
"""


def reporting(learner: Make, values: str, *rules: dict[str, Any], prepared: str = "", **keys: Any) -> Learner:
    """Start a learner that reports its next value once :func:`lets` says so."""
    code = REPORTS.replace("{VALUES}", values)
    one = learner('exec "$PYTHON" train.py', stop_when=[{"metric": "loss", **rule} for rule in rules], **keys)
    (one.work / "train.py").write_text(code)
    one.start_with(prepared)
    return one


def lets(one: Learner, *steps: int) -> None:
    for step in steps:
        (one.work / f"go-{step}").touch()


def has_recorded(one: Learner, step: int) -> bool:
    is_there = (one.folder / "records.jsonl").exists()
    return is_there and any(step in record["steps"] for record in one.records("metrics"))


def test_a_learner_is_halted_for_what_it_reports(learner: Make, python: str) -> None:
    one = reporting(learner, "[1.0, float('nan')]", {"is": "nan"}, python=python)
    lets(one, 1, 2)
    found = one.wait()

    assert (found["stopped"], found["stop_rules"]) == ("halt", True)
    assert found["reason"]["text"] == "halted by stop_when: loss is nan at step 2"


def test_a_rule_may_kill_and_the_first_one_that_holds_counts(learner: Make) -> None:
    one = reporting(learner, "[1.0, 7.0, 9.0]", {"above": 8.0}, {"above": 5.0, "then": "kill"})
    lets(one, 1, 2, 3)
    found = one.wait()

    assert (found["stopped"], found["reason"]["text"]) == (
        "kill",
        "killed by stop_when: loss is 7, above 5 at step 2",
    )


def test_what_was_seen_before_the_scribe_was_killed_counts(learner: Make) -> None:
    one = reporting(learner, "[2.0, 3.0, 3.0, 3.0]", {"no_better_for": 3})
    lets(one, 1, 2, 3)
    until(lambda: has_recorded(one, 3))
    before = one.scribe()
    assert kill(before)
    until(lambda: one.scribe() not in (0, before))
    lets(one, 4)

    assert (
        one.wait()["reason"]["text"]
        == "halted by stop_when: loss was no better than 2 for 3 values at step 4"
    )


DIES_BEFORE_IT_ASKS = """
import os, signal
from workbench.learner.journal import stop_rules
follow = stop_rules.LearnerRules.follow
def dies(rules):
    if rules._first is not None and not os.path.exists({MARK}):
        open({MARK}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    follow(rules)
stop_rules.LearnerRules.follow = dies
"""


def test_a_scribe_that_is_killed_before_it_asks_has_the_next_one_do_it(learner: Make, tmp_path: Path) -> None:
    mark = tmp_path / "died"
    one = reporting(
        learner, "[9.0]", {"above": 5.0}, prepared=DIES_BEFORE_IT_ASKS.replace("{MARK}", repr(str(mark)))
    )
    lets(one, 1)

    assert one.wait()["reason"]["text"] == "halted by stop_when: loss is 9, above 5 at step 1"
    assert mark.exists()


def judged(folder: Path, *records: dict[str, Any], **rule: Any) -> str:
    """Return what a rule asks for after some records; empty as long as it does not."""
    document = {"learner": 1, "learners": 1, "stop_when": [{"metric": "loss", "above": 5.0, **rule}]}
    rules = LearnerRules(str(folder), LaunchDocument(document))
    rules.take(records)
    rules.follow()
    return str(state.read_stop(str(folder)).get("by", ""))


def block(values: dict[str, list[Any]], **more: Any) -> dict[str, Any]:
    rows = len(next(iter(values.values())))
    return {
        "kind": "metrics",
        "times": [1] * rows,
        "steps": list(range(1, rows + 1)),
        "values": values,
        **more,
    }


@pytest.mark.parametrize(
    ("records", "rule"),
    [
        ([block({"loss": [1.0, 9.0]})], {}),
        ([block({"loss": [1.0, "a text", 9.0]})], {}),
        ([block({"loss": [None, "inf"]})], {}),
        ([block({"loss": [9.0]}, group="train")], {}),
        ([block({"loss": [9.0]}, group="train")], {"metric": "train/loss"}),
        ([block({"long/loss": [1.0], "val/loss": [9.0]})], {}),
        ([block({"accuracy": [1.0]}, etimes={"epoch": [9]})], {"metric": "epoch"}),
        ([block({"loss": [9.0]}, learner=1)], {}),
        ([block({"loss": [1.0]}, group="train"), block({"loss": [9.0]}, group="train")], {}),
        ([block({"loss": [9.0, 9.0]}), block({"loss": [9.0]})], {"after": 2}),
    ],
)
def test_a_rule_finds_its_metric(tmp_path: Path, records: list[dict[str, Any]], rule: dict[str, Any]) -> None:
    assert judged(tmp_path, *records, **rule).startswith("stop_when: ")


@pytest.mark.parametrize(
    ("records", "rule"),
    [
        ([block({"loss": [1.0, 5.0]})], {}),
        ([block({"xloss": [9.0]})], {}),
        ([block({"loss": [9.0]})], {"metric": "train/loss"}),
        ([block({"loss": [1.0]}, group="train"), block({"loss": [9.0]}, group="val")], {}),
        ([block({"loss": [9.0]}, learner=2)], {}),
        ([block({"loss": [9.0]}, kind="usage")], {}),
        ([block({"loss": [9.0]}, times=[])], {}),
        ([block({"loss": [9.0]}, steps=[1, 2])], {}),
        (
            [
                {"kind": "metrics"},
                {"kind": "metrics", "times": 3},
                {"kind": "metrics", "times": [], "values": 5},
            ],
            {},
        ),
        ([block({"loss": [9.0, 9.0]})], {"after": 2}),
    ],
)
def test_a_rule_is_not_about_something_else(
    tmp_path: Path, records: list[dict[str, Any]], rule: dict[str, Any]
) -> None:
    assert judged(tmp_path, *records, **rule) == ""


@pytest.mark.parametrize(("kind", "stays"), [("kill", True), ("halt", True), ("finish", False)])
def test_a_request_that_is_there_stays_but_one_to_finish(tmp_path: Path, kind: str, stays: bool) -> None:
    state.ask_to_stop(str(tmp_path), {"kind": kind, "by": "ada@box"})

    by = judged(tmp_path, block({"loss": [9.0]}))

    assert by == ("ada@box" if stays else "stop_when: loss is 9, above 5 at step 1")


def test_a_journal_whose_last_record_is_torn_is_read(tmp_path: Path) -> None:
    lines = [json.dumps({"format": 1}), json.dumps(block({"loss": [9.0]})), '{"kind": "metr']
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    document = {"stop_when": [{"metric": "loss", "above": 5.0}]}
    rules = LearnerRules(str(tmp_path), LaunchDocument(document))
    rules.read(str(tmp_path / "records.jsonl"))
    rules.follow()

    assert state.is_stop(str(tmp_path))
