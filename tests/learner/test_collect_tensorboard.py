"""The event-file reader: every writer's scalars, files as they grow, restarts, garbage."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner import event_files as tf
from tests.learner.collecting import Rig, context
from tests.quick.metrics.costs import loops
from workbench.learner.collectors.interface import Collector
from workbench.learner.collectors.tensorboard.collector import TensorboardCollector, read_points
from workbench.learner.collectors.tensorboard.scalars import Damaged, ScalarScanner
from workbench.learner.collectors.tensorboard.tfrecord import are_intact, masked_crc32c


def rig(tmp_path: Path, **metrics: Any) -> Rig:
    where = context(tmp_path)
    return Rig(lambda: TensorboardCollector(metrics, where))


def logs(tmp_path: Path, name: str, data: bytes = b"") -> Path:
    path = tmp_path / "job" / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
    return path


def scan(data: bytes) -> dict[str, list[tuple[int, float]]]:
    scanner = ScalarScanner()
    scanner.feed(data)
    return {tag: list(zip(s.steps, s.values, strict=True)) for tag, s in scanner.take().items()}


def test_the_checksum_is_that_of_the_format() -> None:
    # RFC 3720 gives CRC-32C of 32 zero bytes as 0x8A9136AA.
    unmasked = 0x8A9136AA
    masked = ((unmasked >> 15 | unmasked << 17) + 0xA282EAD8) & 0xFFFFFFFF

    assert masked_crc32c(b"\0" * 32) == masked


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (tf.simple("t", 0.1), tf.as_float32(0.1)),
        (tf.simple("t", -math.inf), -math.inf),
        (tf.tensor("t", tf.content(tf.FLOAT, 0.1)), tf.as_float32(0.1)),
        (tf.tensor("t", tf.float_val(0.1)), tf.as_float32(0.1)),
        (tf.tensor("t", tf.float_val(0.5), plugin=""), 0.5),
        (tf.tensor("t", tf.content(tf.DOUBLE, 0.1)), 0.1),
        (tf.tensor("t", tf.content(tf.HALF, 0.5)), 0.5),
        (tf.tensor("t", tf.content(tf.INT64, -3)), -3),
        (tf.tensor("t", tf.number_field(1, tf.HALF) + tf.field(13, tf.varint(0x3800))), 0.5),
        (tf.tensor("t", tf.number_field(1, tf.HALF) + tf.number_field(13, 0x3800)), 0.5),
        (tf.tensor("t", tf.number_field(1, tf.BFLOAT16) + tf.number_field(13, 0x3F00)), 0.5),
        (tf.tensor("t", tf.number_field(1, tf.INT64) + tf.field(10, tf.varint(-7))), -7),
        (tf.tensor("t", tf.content(tf.FLOAT, 2.0, shape=tf.field(2, tf.number_field(1, 1)))), 2.0),
    ],
)
def test_a_scalar_of_any_writer_is_read_alone_and_among_its_like(value: bytes, expected: float) -> None:
    data = tf.version() + b"".join(tf.event(1.7e9 + step, step, value) for step in range(3))

    assert scan(data) == {"t": [(0, expected), (1, expected), (2, expected)]}


def test_several_values_of_one_event_share_its_step() -> None:
    data = tf.event(1.7e9, 7, tf.simple("loss", 1.0), tf.simple("accuracy", 0.5))

    assert scan(data) == {"loss": [(7, 1.0)], "accuracy": [(7, 0.5)]}


@pytest.mark.parametrize(
    "step", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 2**28, 2**40, 2**62, -1, -(2**40)]
)
def test_steps_of_every_size_are_read(step: int) -> None:
    data = b"".join(tf.event(1.7e9, step, tf.simple("t", float(n))) for n in range(3))

    assert scan(data) == {"t": [(step, 0.0), (step, 1.0), (step, 2.0)]}


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.sampled_from(["loss", "train/accuracy", "größe", ""]),
            st.floats(width=32),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.lists(st.integers(0, 5000)),
)
def test_every_scalar_comes_out_as_it_went_in_however_the_bytes_are_cut(
    points: list[tuple[int, str, float, bool]], cuts: list[int]
) -> None:
    data = tf.version()
    expected: dict[str, list[Any]] = {}
    for step, tag, value, old in points:
        body = tf.simple(tag, value) if old else tf.tensor(tag, tf.content(tf.FLOAT, value))
        data += tf.event(1.7e9, step, body)
        expected.setdefault(tag, []).append((step, struct.pack("<f", value)))
    scanner, begin = ScalarScanner(), 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        scanner.feed(data[begin:end])
        begin = end

    found = {
        tag: [(step, struct.pack("<f", value)) for step, value in zip(s.steps, s.values, strict=True)]
        for tag, s in scanner.take().items()
    }
    assert found == expected
    assert scanner.held == 0


def test_what_is_no_scalar_is_counted_and_named(tmp_path: Path) -> None:
    image = tf.field(1, b"digit") + tf.field(4, b"png")
    data = tf.version() + tf.event(1.7e9, 1, image, tf.simple("loss", 1.0)) + tf.event(1.7e9, 2, image)
    data += tf.event(1.7e9, 2, tf.field(1, b"weights") + tf.field(5, b""))
    data += tf.event(1.7e9, 2, tf.tensor("words", tf.number_field(1, tf.STRING), plugin="text"))
    data += tf.event(1.7e9, 2, tf.tensor("matrix", tf.content(tf.FLOAT, 1.0, 2.0), plugin=""))
    data += tf.frame(b"\x09" + struct.pack("<d", 1.7e9) + tf.field(4, b"graph"))
    logs(tmp_path, "train/events.out.tfevents.1", data)
    found = rig(tmp_path)
    found.finish()

    assert found.points == {("train", "", "loss"): [(1, 1.0)]}
    assert "not shown from event files: 1 graphs, 1 histograms, 2 images, 1 tensors, 1 texts" in found.notes


def test_group_and_subid_come_from_the_folders(tmp_path: Path) -> None:
    for name in ("tb/train/events.out.tfevents.1", "learner-2/tb/test/tfevents.x", "3/events.out.tfevents.1"):
        logs(tmp_path, name, tf.scalars({1: {"loss": 0.5}}))
    logs(tmp_path, "tb/train/other.txt", b"no events here")
    found = rig(tmp_path)
    found.finish()

    assert set(found.points) == {("train", "", "loss"), ("test", "learner-2", "loss"), ("3", "3", "loss")}


def test_folders_of_one_name_are_distinguished_by_those_above_them(tmp_path: Path) -> None:
    for name in ("exp2/train", "train", "exp1/train", "exp1/test", "learner-2/a/train", "learner-2/b/train"):
        logs(tmp_path, f"{name}/events.out.tfevents.1", tf.scalars({1: {"loss": 0.5}}))
    found = rig(tmp_path)
    found.step()
    found.kill()
    for name in ("exp3/train", "deep/exp1/test", "learner-2/train"):
        logs(tmp_path, f"{name}/events.out.tfevents.1", tf.scalars({1: {"loss": 0.5}}))
    logs(tmp_path, "exp1/test/events.out.tfevents.1", tf.scalars({2: {"loss": 0.5}}))
    logs(tmp_path, "exp1/train/events.out.tfevents.2", tf.scalars({2: {"loss": 0.5}}))
    found.step(milliseconds=600)
    found.finish()

    assert {
        (group, subid): [step for step, _ in points] for (group, subid, _), points in found.points.items()
    } == {
        ("exp1/train", ""): [1, 2],
        ("exp2/train", ""): [1],
        ("exp3/train", ""): [1],
        ("train", ""): [1],
        ("test", ""): [1, 2],
        ("deep/exp1/test", ""): [1],
        ("a/train", "learner-2"): [1],
        ("b/train", "learner-2"): [1],
        ("train", "learner-2"): [1],
    }
    assert found.notes == []


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_of_several_names_is_read_by_the_first_of_them(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    file = logs(tmp_path, "b/events.out.tfevents.2", tf.scalars({1: {"loss": 1.0}}))
    link(file, file.with_name("events.out.tfevents.3"))
    (tmp_path / "job/logs/c").mkdir()
    link(file, tmp_path / "job/logs/c/events.out.tfevents.1")
    found = rig(tmp_path)
    found.step()
    (tmp_path / "job/logs/a").mkdir()
    link(file, tmp_path / "job/logs/a/events.out.tfevents.1")  # it comes later, and before the others by name
    for step in (2, 3):
        logs(tmp_path, "b/events.out.tfevents.2", tf.scalars({step: {"loss": float(step)}}))
        found.step(milliseconds=600)
        found.kill()
    found.finish()

    assert found.points == {("b", "", "loss"): [(step, float(step)) for step in (1, 2, 3)]}


def test_what_lived_too_briefly_to_be_read_is_counted_in_one_note(tmp_path: Path) -> None:
    found = rig(tmp_path)
    found.step()
    for name in ("tmp/a", "tmp", "other", ".hidden"):
        gone = logs(tmp_path, f"{name}/tfevents", tf.scalars({1: {"loss": 1.0}})).parent
        shutil.rmtree(tmp_path / "job/logs" / gone.relative_to(tmp_path / "job/logs").parts[0])
    logs(tmp_path, "tfevents.gone").unlink()
    logs(tmp_path, "words.txt").unlink()
    moved = logs(tmp_path, "writing/tfevents", tf.scalars({1: {"loss": 1.0}})).parent
    moved.rename(moved.with_name("written"))
    found.step(milliseconds=600)
    shutil.rmtree(moved.with_name("written"))
    found.step(milliseconds=600)
    found.finish()

    assert found.points == {("written", "", "loss"): [(1, 1.0)]}
    assert found.notes == ["3 folders or files of metrics were removed before they could be read"]


def test_a_file_whose_first_name_is_removed_is_not_read_again(tmp_path: Path) -> None:
    file = logs(tmp_path, "a/tfevents", tf.scalars({1: {"loss": 1.0}}))
    other = file.with_name("tfevents.moved")
    os.link(file, other)
    found = rig(tmp_path)
    found.step()
    file.unlink()
    found.step(milliseconds=600)
    with other.open("ab") as stream:
        stream.write(tf.scalars({2: {"loss": 2.0}}))
    found.step(milliseconds=600)
    found.finish()

    assert found.points == {("a", "", "loss"): [(1, 1.0), (2, 2.0)]}


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_a_folder_keeps_its_group_whoever_comes_and_is_killed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("runs")
    found = rig(root)
    written: dict[str, int] = {}
    for value in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(["train", "a/train", "b/train", "x/a/train", "a", "logs/train"]))
        logs(root, f"{name}/tfevents", tf.scalars({written.get(name, 0): {name: float(value)}}))
        written[name] = written.get(name, 0) + 1
        found.suffer(data)
    found.finish()

    groups: dict[str, str] = {}
    for (group, _, tag), points in found.points.items():
        assert groups.setdefault(group, tag) == tag
        assert [step for step, _ in points] == list(range(written[tag]))
    assert len(groups) == len(written)


@pytest.mark.parametrize("source", ["$JOB_STATE_DIR/logs/tb", "${LOG_DIR}/tb", "logs/tb", "/job/logs/tb"])
def test_in_is_expanded_and_honoured(tmp_path: Path, source: str) -> None:
    if source.startswith("/job") and Path("/job").is_dir():
        pytest.skip("this machine has a folder /job")
    logs(tmp_path, "tb/test/events.out.tfevents.1", tf.scalars({1: {"loss": 0.5}}))
    logs(tmp_path, "elsewhere/events.out.tfevents.1", tf.scalars({1: {"loss": 0.5}}))
    found = rig(tmp_path, source=source)
    found.finish()

    assert set(found.points) == {("test", "", "loss")}


def test_files_of_a_shared_folder_are_left_to_learner_1(tmp_path: Path) -> None:
    logs(tmp_path, "tb/events.out.tfevents.1", tf.scalars({1: {"loss": 0.5}}))
    where = context(tmp_path, learner=2, owns_log_dir=False)
    found = Rig(lambda: TensorboardCollector({}, where))
    found.finish()

    assert found.written == []


def test_files_are_followed_as_they_appear_and_grow(tmp_path: Path) -> None:
    found = rig(tmp_path)
    found.step()
    first = tf.scalars({1: {"loss": 1.0}, 2: {"loss": 2.0}})
    logs(tmp_path, "a/events.out.tfevents.1", first[:-5])
    found.step(milliseconds=600)
    assert found.points == {("a", "", "loss"): [(1, 1.0)]}

    logs(tmp_path, "a/events.out.tfevents.1", first[-5:])
    logs(tmp_path, "b/events.out.tfevents.1", tf.scalars({1: {"loss": 5.0}}))
    found.step(milliseconds=600)
    assert found.points == {("a", "", "loss"): [(1, 1.0), (2, 2.0)], ("b", "", "loss"): [(1, 5.0)]}


def test_points_wait_100_ms_at_most_and_the_first_ones_not_at_all(tmp_path: Path) -> None:
    found = rig(tmp_path)
    name = "a/events.out.tfevents.1"
    logs(tmp_path, name, tf.scalars({1: {"loss": 1.0}}))
    assert len(found.step()) == 1

    logs(tmp_path, name, tf.scalars({2: {"loss": 1.0}}))
    assert found.step(milliseconds=40) == []
    assert found.collector.waiting
    assert len(found.step(milliseconds=60)) == 1
    assert not found.collector.waiting


def test_tags_of_the_same_steps_share_a_block_and_folders_are_in_order_of_time(tmp_path: Path) -> None:
    logs(tmp_path, "late/tfevents", tf.scalars({n: {"loss": 1.0, "lr": 2.0} for n in range(3)}, 1.8e9))
    logs(tmp_path, "early/tfevents", tf.scalars({n: {"loss": 1.0} for n in range(3)}, 1.6e9))
    found = rig(tmp_path)
    records = found.step()

    assert [record["group"] for record in records] == ["early", "late"]
    assert records[1]["values"] == {"loss": [1.0] * 3, "lr": [2.0] * 3}
    assert records[0]["times"] == [1_600_000_000_000_000 + n * 1_000_000 for n in range(3)]


def test_blocks_hold_a_thousand_points_at_most(tmp_path: Path) -> None:
    logs(tmp_path, "a/tfevents", tf.scalars({n: {"loss": 1.0, "lr": 2.0} for n in range(1, 1201)}))
    found = rig(tmp_path)
    found.finish()

    assert [len(record["steps"]) for record in found.written] == [500, 500, 200]
    assert [step for step, _value in found.points["a", "", "lr"]] == list(range(1, 1201))


def test_a_file_that_becomes_shorter_is_read_anew(tmp_path: Path) -> None:
    found = rig(tmp_path)
    path = logs(tmp_path, "a/tfevents", tf.scalars({1: {"loss": 1.0}, 2: {"loss": 2.0}}))
    found.step()
    path.write_bytes(tf.scalars({9: {"loss": 9.0}}))
    found.step()

    assert found.points == {("a", "", "loss"): [(1, 1.0), (2, 2.0), (9, 9.0)]}
    assert any("became shorter" in text for text in found.notes)


def test_a_damaged_file_is_read_up_to_the_damage_which_a_note_names(tmp_path: Path) -> None:
    good = tf.scalars({1: {"loss": 1.0}})
    logs(tmp_path, "a/tfevents", good + b"\xff" * 100 + tf.scalars({2: {"loss": 2.0}}))
    logs(tmp_path, "b/tfevents", good)
    found = rig(tmp_path)
    found.finish()

    assert found.points == {("a", "", "loss"): [(1, 1.0)], ("b", "", "loss"): [(1, 1.0)]}
    assert len(found.notes) == 1
    assert "a/tfevents" in found.notes[0]
    assert f"byte {len(good)}" in found.notes[0]


def test_space_that_is_made_before_it_is_written_is_waited_for(tmp_path: Path) -> None:
    path = logs(tmp_path, "a/tfevents", tf.scalars({1: {"loss": 1.0}}))
    found = rig(tmp_path)
    found.step()
    second = tf.scalars({2: {"loss": 2.0}})
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + len(second))
    found.step()
    assert found.notes == []
    assert found.points == {("a", "", "loss"): [(1, 1.0)]}


def test_space_is_read_once_it_is_written(tmp_path: Path) -> None:
    path = logs(tmp_path, "a/tfevents", tf.scalars({1: {"loss": 1.0}}))
    begin, second = path.stat().st_size, tf.scalars({2: {"loss": 2.0}})
    with path.open("r+b") as file:
        file.truncate(begin + (3 << 20))
    found = rig(tmp_path)
    found.step()
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(second)
    found.step()
    found.finish()

    assert found.points == {("a", "", "loss"): [(1, 1.0), (2, 2.0)]}


@pytest.mark.parametrize("rows", [20, 3000])
@pytest.mark.parametrize("bits", [[0], [0, 1]])
def test_damaged_records_are_left_out_and_counted(tmp_path: Path, rows: int, bits: list[int]) -> None:
    events = [tf.event(1.7e9 + n, n, tf.simple("loss", n / 2)) for n in range(rows)]
    whole = [bytearray(event) for event in events]
    damaged = [rows // 2 + bit for bit in bits]
    for number in damaged:
        whole[number][-6] ^= 0x10  # in the value, at the same place in all of them
    logs(tmp_path, "a/tfevents", tf.version() + b"".join(whole))
    found = rig(tmp_path)
    found.finish()

    expected = [(n, n / 2) for n in range(rows) if n not in damaged]
    assert found.points == {("a", "", "loss"): expected}
    assert f"not shown from event files: {len(bits)} damaged records" in found.notes


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(256, 600), st.randoms(use_true_random=True))
def test_checksums_of_many_records_are_those_of_each(size: int, count: int, draw: random.Random) -> None:
    payloads = [draw.randbytes(size) for _ in range(count)]
    records = [payload + struct.pack("<I", masked_crc32c(payload)) for payload in payloads]
    assert are_intact(records)

    number, bit = draw.randrange(count), draw.randrange((size + 4) * 8)
    flipped = bytearray(records[number])
    flipped[bit // 8] ^= 1 << bit % 8
    assert not are_intact([*records[:number], bytes(flipped), *records[number + 1 :]])


def test_a_record_too_long_to_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.learner.collectors.tensorboard.scalars.RECORD_LIMIT", 3_000_000)
    data = tf.scalars({1: {"loss": 1.0}})
    # Its checksum is not looked at, or the test would compute it for a second.
    length = struct.pack("<Q", 3_500_000)
    long = length + struct.pack("<I", masked_crc32c(length)) + b"\0" * 3_500_004
    logs(tmp_path, "a/tfevents", data + long + tf.scalars({2: {"loss": 2.0}}))
    found = rig(tmp_path)
    found.finish()

    assert found.points == {("a", "", "loss"): [(1, 1.0), (2, 2.0)]}
    assert "not shown from event files: 1 oversized records" in found.notes


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_garbage_raises_nothing_but_damaged(garbage: bytes, framed: bool) -> None:
    scanner = ScalarScanner()
    good = tf.scalars({1: {"loss": 1.0}})
    if framed:  # where it ends is known, so the records behind it are read
        scanner.feed(good + tf.frame(garbage) + good)
        assert not scanner.held
    else:
        try:
            scanner.feed(good + garbage)
        except Damaged:
            assert scanner.held
    assert scanner.take()["loss"].values == [1.0] * (2 if framed else 1)


NO_EVENT = tf.frame(b"\x09" + struct.pack("<d", 1.7e9) + b"\x2a\xff\x01")
"""Its summary is to have 255 bytes, and has none."""


def test_a_record_that_is_no_event_is_left_out_and_counted(tmp_path: Path) -> None:
    bad = NO_EVENT + tf.frame(b"\xff" * 30)
    logs(tmp_path, "a/tfevents", tf.scalars({1: {"loss": 1.0}}) + bad + tf.scalars({2: {"loss": 2.0}}))
    found = rig(tmp_path)
    found.finish()

    assert found.points == {("a", "", "loss"): [(1, 1.0), (2, 2.0)]}
    assert "not shown from event files: 2 records that are not events" in found.notes


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_one_flipped_bit_is_never_more_than_damage_or_another_number(data: st.DataObject) -> None:
    whole = bytearray(tf.version() + tf.scalars({n: {"loss": 1.0, "lr": 0.5} for n in range(4)}))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    scanner = ScalarScanner()
    with contextlib.suppress(Damaged):
        scanner.feed(bytes(whole))
    assert scanner.points <= 8


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_killed_anywhere_no_point_is_lost_or_doubled(data: st.DataObject, tmp_path_factory: Any) -> None:
    root = tmp_path_factory.mktemp("tb")
    where = context(root)

    def collector() -> Collector:
        return TensorboardCollector({}, where)

    image = tf.field(1, b"digit") + tf.field(4, b"png")
    rows = st.lists(st.sampled_from([(), ("loss",), ("loss", "lr"), ("image",), ("acc",)]), max_size=12)
    files = {}
    for name in ("train/tfevents.1", "eval/tfevents.2", "7/test/tfevents"):
        content = tf.version()
        for step, tags in enumerate(data.draw(rows)):
            for tag in tags:
                content += tf.event(1.7e9 + step, step, image if tag == "image" else tf.simple(tag, step / 2))
        files[name] = content
    harmed = Rig(collector)
    left = dict(files)
    while any(left.values()):
        name = data.draw(st.sampled_from([name for name, rest in left.items() if rest]))
        size = data.draw(st.integers(1, 200))
        logs(root, name, left[name][:size])
        left[name] = left[name][size:]
        harmed.suffer(data)
    harmed.finish()
    whole = Rig(collector)
    whole.finish()

    assert harmed.points == whole.points
    totals = [text for text in whole.notes if text.startswith("not shown")]
    assert [text for text in harmed.notes if text.startswith("not shown")] == totals


def test_cursors_stay_small(tmp_path: Path) -> None:
    for number in range(20):
        logs(tmp_path, f"run-{number}/events.out.tfevents.1234567890.host", tf.scalars({1: {"loss": 1.0}}))
    found = rig(tmp_path)
    found.finish()

    assert max(len(json.dumps(record["cursor"])) for record in found.written) < 1000


def test_a_hundred_thousand_scalars_are_read_faster_than_a_second(tmp_path: Path) -> None:
    # The benchmark compares it with TensorBoard's own; here only what would be a mistake is caught.
    path = logs(tmp_path, "a/tfevents", tf.scalars({n: {"loss": n / 7} for n in range(100_000)}))

    assert loops(lambda: read_points(os.fspath(path))) < 30
    assert len(read_points(os.fspath(path))["loss"].values) == 100_000


def test_what_tensorboards_own_writer_wrote_is_read(tmp_path: Path) -> None:
    writing = pytest.importorskip(
        "tensorboard.summary.writer.record_writer", reason="tensorboard is not there"
    )
    events = pytest.importorskip("tensorboard.compat.proto.event_pb2", reason="tensorboard is not there")
    path = logs(tmp_path, "a/tfevents")
    with path.open("wb") as file:
        writer = writing.RecordWriter(file)
        for step in range(5):
            made = events.Event(wall_time=1.7e9, step=step)
            made.summary.value.add(tag="loss", simple_value=step / 2)
            writer.write(made.SerializeToString())

    assert read_points(os.fspath(path))["loss"].values == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_what_pytorchs_own_writer_wrote_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch.utils.tensorboard", reason="torch with tensorboard is not there")
    with torch.SummaryWriter(str(tmp_path / "job" / "logs" / "a")) as writer:
        for step in range(5):
            writer.add_scalar("loss", step / 2, step)
    found = rig(tmp_path)
    found.finish()

    assert found.points["a", "", "loss"] == [(step, step / 2) for step in range(5)]


@pytest.mark.parametrize(
    ("folders", "groups"),
    [
        (["Nov23_10-00-00_box.lan", "Nov23_11-30-00_box.lan"], ["", ""]),
        (["Nov23_10-00-00_box.lanLR_0.1", "Nov23_11-30-00_box.lanLR_0.1"], ["LR_0.1", "LR_0.1"]),
        (["version_0", "version_1"], ["", ""]),
        (["20231123-100000", "20231123-113000"], ["", ""]),
        (["train", "train"], ["train", "train"]),
    ],
)
def test_a_run_folder_for_each_start_gives_one_series_and_each_attempt_reads_its_own(
    tmp_path: Path, folders: list[str], groups: list[str]
) -> None:
    where = context(tmp_path, RESULT_DIR=str(tmp_path / "results"))
    read = []
    for attempt, folder in enumerate(folders, 1):
        learner_dir = tmp_path / f"learner-{attempt}"
        learner_dir.mkdir()
        begins = 1_700_000_000 + 1000 * attempt
        (learner_dir / "state.json").write_text(json.dumps({"started_us": begins * 1_000_000}))
        (learner_dir / "launch.json").write_text("{}")
        attempt_of = where._replace(learner_dir=str(learner_dir))
        file = tmp_path / "results" / "runs" / folder / f"events.out.tfevents.{begins}.box.lan.7.0"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.version() + tf.event(begins + 1, attempt, tf.simple("loss", 0.5)))
        os.utime(file, (begins + 1, begins + 1))
        one = Rig(partial(TensorboardCollector, {"source": "$RESULT_DIR"}, attempt_of))
        one.step(milliseconds=700)
        one.finish()
        read.append([(each["group"], each["steps"]) for each in one.written if each["kind"] == "metrics"])

    assert read == [[(group, [attempt])] for attempt, group in enumerate(groups, 1)]


def test_two_runs_of_one_attempt_stay_apart(tmp_path: Path) -> None:
    found = rig(tmp_path)
    for number, run in enumerate(["Nov23_10-00-00_box", "Nov23_10-00-05_box"]):
        data = tf.version() + tf.event(1.7e9, number, tf.simple("loss", 0.5))
        logs(tmp_path, f"{run}/events.out.tfevents.170000000{number}.box.7.0", data)
    found.step(milliseconds=700)
    found.finish()

    groups = {each["group"]: each["steps"] for each in found.written if each["kind"] == "metrics"}
    assert groups == {"": [0], "Nov23_10-00-05_box": [1]}
