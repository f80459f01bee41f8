"""Texts of training code become such that every reader can hold, and stay as they are where they are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.learner import event_files as tf
from tests.learner.collecting import Rig, context
from workbench.learner.collectors.emetrics import EmetricsCollector
from workbench.learner.collectors.report import ReportCollector
from workbench.learner.collectors.tensorboard.collector import TensorboardCollector
from workbench.learner.scribe.masking import Mask
from workbench.learner.texts import DEPTH_LIMIT, NAME_LIMIT, clean, clean_json, clean_name, escaped

ANYTHING = st.text(st.characters(codec=None))  # halves of surrogate pairs and control characters, too


def test_what_no_utf_8_holds_and_what_drives_a_terminal_is_written_out() -> None:
    assert escaped("bad\ud800name") == r"bad\ud800name"
    assert escaped("x\udce9y") == r"x\xe9y"
    assert escaped("a\0b\nc\x1b[31m\x7f\u2028") == r"a\x00b\x0ac\x1b[31m\x7f\u2028"
    assert clean("two\nlines\tand a \0", 100) == "two\nlines\tand a " + r"\x00"
    assert clean("äöü 日本 🙂") == clean_name("äöü 日本 🙂") == "äöü 日本 🙂"


def test_names_in_which_something_is_written_out_stay_apart() -> None:
    names = ["\0", r"\x00", "\udc00", r"\udc00", "a\x85", "a\udc85", r"a\x85", "a\n", r"a\x0a"]

    assert len({clean_name(name) for name in names}) == len(names)
    assert clean_name("a\0") == r"a\x00-" + clean_name("a\0")[-6:]
    assert clean_name(r"a\x00") == r"a\x00"


@given(ANYTHING | st.text("\0\\x00a", max_size=600))
def test_a_clean_name_is_clean_already(name: str) -> None:
    cleaned = clean_name(name)

    assert clean_name(cleaned) == cleaned
    assert len(cleaned) <= NAME_LIMIT
    assert cleaned == name or escaped(name) != name or len(name) > NAME_LIMIT


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = clean_name("x" * 10_000 + "1"), clean_name("x" * 10_000 + "2")

    assert len(one) == len(other) == NAME_LIMIT
    assert one != other


@given(ANYTHING)
def test_clean_texts_can_be_written_and_are_clean(text: str) -> None:
    for cleaned in (clean(text), clean_name(text)):
        assert cleaned.encode().decode() == cleaned
        assert "\0" not in cleaned
        assert clean(cleaned) == cleaned


def test_numbers_that_do_not_fit_and_nesting_without_end_are_cut() -> None:
    assert clean_json([10**400, -(10**400), 2**70, math.nan, math.inf, True, 5]) == [
        "inf", "-inf", float(2**70), None, "inf", True, 5,
    ]  # fmt: skip
    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep}
    assert json.dumps(clean_json(deep)).count("{") == DEPTH_LIMIT


def report_lines(tmp_path: Path, *lines: object) -> Rig:
    where = context(tmp_path)
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    (tmp_path / "learner" / "report.jsonl").write_text("\n".join(texts) + "\n")
    rig = Rig(lambda: ReportCollector({}, where))
    rig.finish()
    return rig


def test_names_of_reports_are_clean_in_records(tmp_path: Path) -> None:
    bad = {"kind": "metrics", "time": 5, "group": "g\udce9", "values": {"bad\ud800": 1, "note": "x\udce9"}}

    assert dict(report_lines(tmp_path, bad).points) == {
        (r"g\xe9-c762ee", "", r"bad\ud800-81dc4f"): [(None, 1)],
        (r"g\xe9-c762ee", "", "note"): [(None, r"x\xe9")],
    }


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "metrics", "values": {"a": {"b": 1}}},
        {"kind": "metrics", "values": [1]},
        '{"kind": "checkpoint", "path": "x", "metadata": ' + '{"a":' * 9000 + "1" + "}" * 9000 + "}",
        "[]",
        "\0",
    ],
)
def test_a_line_that_makes_no_sense_is_named_and_the_others_count(tmp_path: Path, line: object) -> None:
    good = {"kind": "metrics", "time": 5, "values": {"good": 1}}
    rig = report_lines(tmp_path, good, line, good)

    assert rig.points["", "", "good"] == [(None, 1), (None, 1)]
    notes = [one["text"] for one in rig.written if one["kind"] == "note"]
    assert [text[: len("report(): a line at byte")] for text in notes] == ["report(): a line at byte"]


def test_times_of_no_world_are_those_of_the_file(tmp_path: Path) -> None:
    times: list[Any] = [math.inf, 10**400, "x", -1, []]
    lines = [{"kind": "metrics", "time": time, "values": {"a": 1}} for time in times]
    rig = report_lines(tmp_path, *lines)

    assert len(rig.points["", "", "a"]) == len(lines)
    assert all(0 < time < 10**17 for one in rig.written for time in one["times"])


def test_training_code_cannot_say_what_is_the_agents(tmp_path: Path) -> None:
    fields = {"kind": "progress", "fraction": 0.5, "seq": 10**18, "cursors": 5, "format": 99, "source": "me"}
    (record,) = report_lines(tmp_path, fields).written

    assert {"seq", "cursors", "format"}.isdisjoint(record)
    assert (record["fraction"], record["source"]) == (0.5, "report")


def test_a_meta_that_is_none_puts_no_collector_aside(tmp_path: Path) -> None:
    where = context(tmp_path)
    good = {"values": {"a": 1}}
    lines = [good, {"meta": [1], "values": {"a": 2}}, {"meta": {"subid": "s\ud800"}, "values": {"a": 3}}]
    file = tmp_path / "job" / "logs" / "evaluation-metrics.txt"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rig = Rig(lambda: EmetricsCollector({}, where))
    rig.finish()

    assert rig.points["", "", "a"] == [(None, 1)]
    assert rig.points["", r"s\ud800-7d4384", "a"] == [(None, 3)]


def test_a_folder_of_event_files_may_have_any_name(tmp_path: Path) -> None:
    where = context(tmp_path)
    folder = bytes(tmp_path / "job" / "logs") + b"/tr\xe9in"
    Path(folder.decode(errors="surrogateescape")).mkdir()
    with open(folder + b"/events.out.tfevents.1", "wb") as file:  # noqa: PTH123 - its name is bytes
        file.write(tf.version() + tf.scalars({1: {"loss": 0.5}}))
    rig = Rig(lambda: TensorboardCollector({}, where))
    rig.finish()

    assert rig.points[r"tr\xe9in-b57bf6", "", "loss"] == [(1, 0.5)]


def test_a_mask_takes_any_text() -> None:
    mask = Mask(["hunter2-hunter2"])

    assert mask.text("a\ud800 hunter2-hunter2") == r"a\ud800 ***************"
    assert mask.value({"k\ud800": ["\udce9hunter2-hunter2"]}) == {r"k\ud800": ["\udce9***************"]}
