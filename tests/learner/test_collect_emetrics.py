"""``evaluation-metrics.txt``: FfDL's lines, bad ones, half ones, and restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lanes import examples
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


def test_a_bad_line_is_named_and_the_others_count(tmp_path: Path) -> None:
    bad = ["{half\n", "[1]\n", "\n", '{"values": {"v": {"type": "INT", "value": "x"}}}\n', '{"values": 3}\n']
    append(tmp_path, point(1, loss=1) + "".join(bad) + point(2, loss=2))
    found = rig(tmp_path)
    found.finish()

    assert found.points["train", "", "loss"] == [(1, 1.0), (2, 2.0)]
    assert len(found.notes) == 4
    assert all("evaluation-metrics.txt: a line at byte" in text for text in found.notes)


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


def test_a_file_that_is_gone_after_a_restart_does_not_hold_up_the_others(tmp_path: Path) -> None:
    append(tmp_path, point(1, a=1) + point(2, b=2), folder="w1")
    found = rig(tmp_path)
    found.step(lost=1)
    (tmp_path / "job" / "logs" / "w1" / "evaluation-metrics.txt").unlink()
    append(tmp_path, point(7, a=7), folder="w2")
    found.kill()
    found.step(milliseconds=600)

    assert found.points["train", "w2", "a"] == [(7, 7.0)]
