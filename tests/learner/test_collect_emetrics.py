"""``evaluation-metrics.txt``: FfDL's lines, bad ones, half ones, and restarts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner.collecting import Rig, context
from workbench.learner.collectors.emetrics import EmetricsCollector
from workbench.learner.collectors.interface import Collector


def line(**document: Any) -> str:
    return json.dumps(document) + "\n"


def point(iteration: int, **values: Any) -> str:
    return line(
        meta={"training_id": "training-x", "time": None, "rindex": iteration},
        grouplabel="train",
        etimes={"iteration": {"type": 2, "value": str(iteration)}},
        values={name: {"type": 3, "value": value} for name, value in values.items()},
    )


def rig(tmp_path: Path, **metrics: Any) -> Rig:
    where = context(tmp_path)
    return Rig(lambda: EmetricsCollector(metrics, where))


def append(tmp_path: Path, text: str, folder: str = "") -> None:
    path = tmp_path / "job" / "logs" / folder / "evaluation-metrics.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_ffdls_lines_are_read(tmp_path: Path) -> None:
    append(tmp_path, point(1, loss="0.5") + point(2, loss=0.25))
    found = rig(tmp_path)
    found.finish()

    assert found.points["train", "", "loss"] == [(1, 0.5), (2, 0.25)]
    assert found.points["train", "", "iteration"] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": 0, "value": "0.5"}, "0.5"),
        ({"type": "STRING", "value": "text"}, "text"),
        ({"type": 1, "value": "[1, 2]"}, "[1, 2]"),
        ({"type": "JSONSTRING", "value": "3"}, 3),
        ({"type": 2, "value": "7"}, 7),
        ({"type": "INT", "value": 7}, 7),
        ({"type": "float", "value": "1e-3"}, 0.001),
        ({"type": 3, "value": "nan"}, None),
        ({"value": "0.5"}, 0.5),
        ({"value": "text"}, "text"),
        ({"value": True}, 1),
        (0.5, 0.5),
        ({"value": "12_34"}, "12_34"),
        ({"type": 3, "value": 10**400}, "inf"),
        ({"type": 2, "value": 2**60}, float(2**60)),
    ],
)
def test_every_type_is_read_by_name_or_number_or_without(tmp_path: Path, given: Any, expected: Any) -> None:
    append(tmp_path, line(grouplabel="g", etimes={}, values={"v": given}))
    found = rig(tmp_path)
    found.finish()

    assert found.points["g", "", "v"] == [(None, expected)]


def test_time_and_subid_are_taken_where_they_are_given(tmp_path: Path) -> None:
    append(tmp_path, line(meta={"time": 1_525_176_000_250, "subid": "a"}, values={"v": 1}))
    append(tmp_path, line(meta={"time": "2018-05-01T12:00:00.25Z"}, values={"v": 2}), folder="worker-3")
    found = rig(tmp_path)
    found.finish()

    assert set(found.points) == {("", "a", "v"), ("", "worker-3", "v")}
    assert [record["times"] for record in found.written] == [[1_525_176_000_250_000]] * 2


def test_bad_lines_are_counted_in_one_note_and_the_others_count(tmp_path: Path) -> None:
    bad = ["{half\n", "[1]\n", "\n", '{"values": {"v": {"type": "INT", "value": "x"}}}\n', '{"values": 3}\n']
    append(tmp_path, point(1, loss=1) + "".join(bad) * 30 + point(2, loss=2))
    found = rig(tmp_path)
    found.finish()

    assert found.points["train", "", "loss"] == [(1, 1.0), (2, 2.0)]
    (note,) = (record for record in found.written if record["kind"] == "note")
    assert note["count"] == 120
    assert note["text"].startswith("120 of the lines of evaluation metrics could not be understood")
    assert f"the first in evaluation-metrics.txt at byte {len(point(1, loss=1))}: " in note["text"]


@pytest.mark.parametrize(
    "bad",
    [
        {"values": {"bad": {"type": "INT", "value": "x"}, "loss": 7}},
        {"values": {"bad": {"type": "STRING"}, "loss": 7}},
        {"values": {"bad": [1], "loss": 7}},
        {"values": {"bad": None, "loss": 7}},
        {"etimes": {"iteration": 5, "epoch": {"type": "INT", "value": "x"}}},
    ],
)
def test_what_is_wrong_in_a_line_costs_itself_alone(tmp_path: Path, bad: dict[str, Any]) -> None:
    whole = {"etimes": {"iteration": 5}, "values": {"loss": 7}}
    append(tmp_path, point(1, a=1) + line(**{**whole, **bad}) + point(6, a=1))
    found = rig(tmp_path)
    found.finish()

    assert found.points["", "", "loss"] == [(5, 7)]
    assert ("", "", "bad") not in found.points
    assert found.points["train", "", "a"] == [(1, 1.0), (6, 1.0)]
    assert [text.partition(" ")[0] for text in found.notes] == ["1"]


@pytest.mark.parametrize("bad", [{"meta": [1]}, {"meta": {"subid": {"a": 1}}}, {"grouplabel": [1]}])
def test_values_of_which_the_series_is_not_known_are_left_out(tmp_path: Path, bad: dict[str, Any]) -> None:
    append(tmp_path, point(1, a=1) + line(**{"values": {"loss": 7}, **bad}) + point(6, a=1))
    found = rig(tmp_path)
    found.finish()

    assert {name for _, _, name in found.points} == {"a", "iteration"}
    assert len(found.notes) == 1


@pytest.mark.parametrize("step", [[5], {"iteration": None}, {"iteration": {"type": "INT", "value": "x"}}])
def test_a_step_that_is_none_costs_no_value(tmp_path: Path, step: Any) -> None:
    append(tmp_path, line(etimes=step, values={"loss": 7}))
    found = rig(tmp_path)
    found.finish()

    assert found.points["", "", "loss"] == [(None, 7)]
    assert len(found.notes) == 1


def test_a_step_is_exact_up_to_64_bits(tmp_path: Path) -> None:
    append(tmp_path, line(etimes={"iteration": {"type": 2, "value": str(2**60 + 1)}}, values={"loss": 7}))
    found = rig(tmp_path)
    found.finish()

    assert found.points["", "", "loss"] == [(2**60 + 1, 7)]


@pytest.mark.parametrize(
    "time", [10**400, -5, "0001-01-01T00:00:00Z", "0001-01-01 00:00", [], True, math.nan]
)
def test_a_time_that_is_none_costs_no_point(tmp_path: Path, time: Any) -> None:
    append(tmp_path, point(1, a=1) + line(meta={"time": time}, values={"loss": 7}) + point(2, a=2))
    found = rig(tmp_path)
    found.finish()

    assert found.points["", "", "loss"] == [(None, 7)]
    assert found.points["train", "", "a"] == [(1, 1.0), (2, 2.0)]
    begins_us = 1_600_000_000_000_000
    assert all(each > begins_us for record in found.written for each in record.get("times", ()))


def test_a_number_of_many_digits_is_an_infinity_and_costs_no_other(tmp_path: Path) -> None:
    append(tmp_path, '{"values": {"a": 1%s, "loss": 7}}\n' % ("0" * 9000))
    found = rig(tmp_path)
    found.finish()

    assert found.points == {("", "", "a"): [(None, "inf")], ("", "", "loss"): [(None, 7)]}
    assert found.notes == []


@pytest.mark.parametrize(
    ("text", "steps", "bad"),
    [
        (point(1, a=1)[:40] + point(2, a=1), [2], 1),
        (point(1, a=1)[:-1] + point(2, a=1), [1, 2], 0),
        (point(1, a=1)[:-1] + point(2, a=1)[:60] + point(3, a=1), [1, 3], 1),
        (point(1, a=1)[:-1] + " and more\n" + point(2, a=1), [2], 1),
        ('{"meta": ' + point(1, a=1)[:-1] + ", \n", [], 1),
        ("\0" * 5000 + point(1, a=1), [1], 0),
        ("\ufeff" + point(1, a=1), [1], 0),
        (point(1, a=1).replace("\n", "\r\n") + point(2, a=1), [1, 2], 0),
        (point(1, a=1) + point(2, a=1)[:-1], [1, 2], 0),
        (point(1, a=1) + point(2, a=1)[:-2], [1], 1),
        (point(1, a=1) + "[" * 100_000 + "\n" + point(2, a=1), [1, 2], 1),
        (point(1, a=1) + "x" * 10_000_000 + "\n" + point(2, a=1), [1, 2], 1),
        (point(1, a=1) + '{"values":{"a":1}}' + " " * (1 << 20) + "x\n" + point(2, a=1), [1, 2], 1),
    ],
)
def test_half_a_line_costs_itself_alone(tmp_path: Path, text: str, steps: list[int], bad: int) -> None:
    append(tmp_path, text)
    found = rig(tmp_path)
    found.step()
    found.finish()

    assert [step for step, _ in found.points.get(("train", "", "a"), [])] == steps
    assert [record["count"] for record in found.written if record["kind"] == "note"] == [bad] * bool(bad)


def test_a_file_that_grows_without_end_does_not_hold_up_the_end(tmp_path: Path) -> None:
    append(tmp_path, point(1, a=1) + ("x" * 999 + "\n") * 9_000 + point(2, a=2))
    found = rig(tmp_path)
    for _ in range(20):
        if not found.collector.finish(found.now_us):
            break
        append(tmp_path, ("y" * 999 + "\n") * 9_000)
    found.finish()

    assert found.points["train", "", "a"] == [(1, 1.0), (2, 2.0)]
    assert bad_lines(found) == 9_000


def test_a_long_line_is_read_whole(tmp_path: Path) -> None:
    append(tmp_path, point(1, **{f"name-{number}": number for number in range(5000)}))
    found = rig(tmp_path)
    found.finish()

    assert len(found.points) == 5001
    assert found.notes == []


def test_names_that_are_not_utf8_stay_apart(tmp_path: Path) -> None:
    append(tmp_path, "")
    path = tmp_path / "job" / "logs" / "evaluation-metrics.txt"
    path.write_bytes(b'{"values": {"a\xe8": 1, "a\xe9": 2, "t": "\xff"}}\n')
    found = rig(tmp_path)
    found.finish()

    assert [name.rpartition("-")[0] for _, _, name in found.points if name != "t"] == ["a\\xe8", "a\\xe9"]
    assert found.points["", "", "t"] == [(None, "\\xff")]


def test_of_a_name_that_stands_there_twice_the_last_value_counts(tmp_path: Path) -> None:
    append(tmp_path, '{"values": {"a": 1}, "etimes": {"step": 3}, "values": {"b": 2, "b": 3}}\n')
    found = rig(tmp_path)
    found.finish()

    assert found.points["", "", "a"] == [(3, 1)]
    assert found.points["", "", "b"] == [(3, 3)]
    assert "b is there twice" in found.notes[0]


def test_half_a_line_waits_for_the_rest(tmp_path: Path) -> None:
    found = rig(tmp_path)
    whole = point(1, loss=1)
    append(tmp_path, whole[:20])
    found.step()
    assert found.written == []

    append(tmp_path, whole[20:])
    found.step()
    assert found.points["train", "", "loss"] == [(1, 1.0)]


def test_in_may_name_the_file_and_other_files_do_not_count(tmp_path: Path) -> None:
    other = tmp_path / "job" / "mine.jsonl"
    context(tmp_path)
    other.write_text(point(1, loss=1))
    append(tmp_path, point(2, loss=2))
    found = rig(tmp_path, source="${JOB_STATE_DIR}/mine.jsonl")
    found.finish()

    assert found.points["train", "", "loss"] == [(1, 1.0)]


def test_names_that_come_and_go_make_new_blocks_and_lose_nothing(tmp_path: Path) -> None:
    append(tmp_path, point(1, a=1) + point(2, a=2, b=2) + point(3, b=3) + point(4, a=4))
    found = rig(tmp_path)
    found.finish()

    assert found.points["train", "", "a"] == [(1, 1.0), (2, 2.0), (4, 4.0)]
    assert found.points["train", "", "b"] == [(2, 2.0), (3, 3.0)]


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_killed_anywhere_no_point_is_lost_or_doubled(data: st.DataObject, tmp_path_factory: Any) -> None:
    root = tmp_path_factory.mktemp("em")
    where = context(root)

    def collector() -> Collector:
        return EmetricsCollector({}, where)

    lines = [point(1, a=1), point(2, a=2, b=1), "bad\n", point(3, c=1), "\n"]
    left = {folder: "".join(data.draw(st.lists(st.sampled_from(lines)))) for folder in ("", "w1")}
    harmed = Rig(collector)
    while any(left.values()):
        folder = data.draw(st.sampled_from([name for name, rest in left.items() if rest]))
        size = data.draw(st.integers(1, 300))
        append(root, left[folder][:size], folder)
        left[folder] = left[folder][size:]
        harmed.suffer(data)
    harmed.finish()
    whole = Rig(collector)
    whole.finish()

    assert harmed.points == whole.points
    assert bad_lines(harmed) == bad_lines(whole)


def bad_lines(found: Rig) -> int:
    return sum(record["count"] for record in found.written if record["kind"] == "note")


def test_a_file_that_is_gone_after_a_restart_does_not_hold_up_the_others(tmp_path: Path) -> None:
    append(tmp_path, point(1, a=1) + point(2, b=2), folder="w1")
    found = rig(tmp_path)
    found.step(lost=1)
    (tmp_path / "job" / "logs" / "w1" / "evaluation-metrics.txt").unlink()
    append(tmp_path, point(7, a=7), folder="w2")
    found.kill()
    found.step(milliseconds=600)

    assert found.points["train", "w2", "a"] == [(7, 7.0)]
