from __future__ import annotations

import contextlib
import io
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.quick.metrics.writing import Records
from tests.support.disks import fill, small_disk
from tests.support.stored_jobs import add_job
from tests.support.waiting import ended
from workbench.errors import CannotWrite, ConfigError
from workbench.formats import iso, stamp
from workbench.metrics import (
    CheckpointRow,
    buckets,
    checkpoints,
    ingest,
    last_step,
    latest,
    latest_of,
    notes,
    points,
    progress,
    series,
    texts,
    usage,
)
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import Point

JOB = "training-222222222"


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.jsonl")


def take_all(
    store: Store,
    records: Records,
    *,
    attempt: int = 1,
    learner: int = 1,
    limit: int = 1 << 20,
    job_id: str = JOB,
) -> int:
    rounds = 0
    while ingest(store, job_id, attempt, learner, records.file, limit_bytes=limit):
        rounds += 1
    return rounds


def values(store: Store, name: str) -> list[float | None]:
    (row,) = [row for row in series(store, JOB) if row.name == name]
    return [point.value for point in points(store, row.id)]


def test_a_block_becomes_points_of_one_series_a_column(store: Store, records: Records) -> None:
    records.points(
        {"loss": [0.5, 0.25], "accuracy": [1, 2]},
        steps=[10, 20],
        times=[7, 8],
        group="train",
        subid="",
        etimes={"epoch": [1, 1]},
    )
    take_all(store, records)

    found = {(row.kind, row.name): row for row in series(store, JOB)}
    assert set(found) == {("value", "train/loss"), ("value", "train/accuracy"), ("etime", "train/epoch")}
    loss = found["value", "train/loss"]
    assert (loss.points, loss.last_step, loss.last_time_us, loss.last) == (2, 20, 8, 0.25)
    assert (loss.minimum, loss.maximum, loss.learner) == (0.25, 0.5, 1)
    assert points(store, loss.id) == [Point(1, 1, 10, 7, 0.5), Point(2, 1, 20, 8, 0.25)]
    assert points(store, loss.id, since_seq=1) == [Point(2, 1, 20, 8, 0.25)]
    assert points(store, loss.id, limit=1) == [Point(1, 1, 10, 7, 0.5)]
    assert latest(store, JOB) == {"train/loss": 0.25, "train/accuracy": 2.0}
    assert latest_of(store, [JOB, "other"]) == {JOB: latest(store, JOB), "other": {}}
    assert last_step(store, JOB) == 20


def test_points_belong_to_the_learner_that_the_record_names(
    store: Store, records: Records, tmp_path: Path
) -> None:
    records.points({"loss": [1.0]}, steps=[1])
    records.points({"loss": [2.0, 3.0]}, steps=[1, 2], learner=2)
    records.points({"loss": [4.0]}, steps=[2], learner="2")
    take_all(store, records)
    (tmp_path / "two").mkdir()
    own = Records(tmp_path / "two" / "records.jsonl")
    own.points({"accuracy": [0.5]}, steps=[3])
    take_all(store, own, learner=2)

    found = {
        (row.learner, row.name): [point.value for point in points(store, row.id)]
        for row in series(store, JOB)
    }
    assert found == {(1, "loss"): [1.0, 4.0], (2, "loss"): [2.0, 3.0], (2, "accuracy"): [0.5]}
    sql = "SELECT learner, reports FROM report_counts ORDER BY learner"
    assert [tuple(row) for row in store.rows(sql)] == [(1, 2), (2, 3)]


def test_nan_is_null_and_infinities_stay(store: Store, records: Records) -> None:
    records.points({"loss": [1.0, None, "inf", "-inf", "nan"]})
    records.raw(
        '{"seq": 2, "time": 1, "kind": "metrics", "times": [1, 2], "values": {"loss": [NaN, Infinity]}}\n'
    )
    records.raw(
        '{"seq": 3, "time": 1, "kind": "metrics", "times": [1], "values": {"loss": [1' + "0" * 400 + "]}}\n"
    )
    take_all(store, records)

    assert values(store, "loss") == [1.0, None, math.inf, -math.inf, None, None, math.inf, math.inf]
    (row,) = series(store, JOB)
    assert (row.minimum, row.maximum, row.points) == (1.0, 1.0, 8), "what diverged is never the best"


def test_a_last_value_that_is_nan_is_shown_as_nan(store: Store, records: Records) -> None:
    records.points({"loss": [1.0, None]})
    take_all(store, records)

    assert math.isnan(latest(store, JOB)["loss"])
    (row,) = series(store, JOB)
    assert (row.last, row.minimum) == (None, 1.0)


def test_only_whole_lines_are_read_and_each_once(store: Store, records: Records) -> None:
    whole = (
        '{"seq": 1, "time": 1, "kind": "metrics", "steps": [1], "times": [1], "values": {"loss": [0.5]}}\n'
    )
    for end in range(len(whole)):
        records.raw(whole[end])
        take_all(store, records)
        assert len(series(store, JOB)) == (1 if end == len(whole) - 1 else 0)

    assert values(store, "loss") == [0.5]
    assert not ingest(store, JOB, 1, 1, records.file)


def test_a_record_that_comes_again_counts_once(store: Store, records: Records) -> None:
    records.points({"loss": [1.0, 2.0]})
    take_all(store, records)
    again = records.file.read_text()
    records.points({"loss": [3.0]})
    take_all(store, records)
    records.raw(again.splitlines()[1] + "\n")  # the journal was sent twice
    records.points({"loss": [4.0]})
    take_all(store, records)

    assert values(store, "loss") == [1.0, 2.0, 3.0, 4.0]


def test_a_file_that_was_written_anew_is_read_from_its_start(store: Store, records: Records) -> None:
    records.points({"loss": [1.0]}, note="x" * 500)
    take_all(store, records)
    records.file.write_text(
        '{"seq": 2, "time": 1, "kind": "metrics", "times": [1], "values": {"loss": [2.0]}}\n'
    )
    take_all(store, records)

    assert values(store, "loss") == [1.0, 2.0]


def test_small_limits_give_the_same_as_one_large_one(store: Store, records: Records) -> None:
    for step in range(40):
        records.points({"loss": [float(step)] * 9, "acc": [0.5] * 9}, steps=[step] * 9)

    assert take_all(store, records, limit=100) >= 40

    assert values(store, "loss") == [float(step) for step in range(40) for _ in range(9)]


def test_the_next_attempts_points_follow_and_steps_may_go_back(
    store: Store, records: Records, tmp_path: Path
) -> None:
    records.points({"loss": [1.0, 2.0, 3.0]}, steps=[1, 2, 3])
    take_all(store, records)
    again = Records(tmp_path / "again.jsonl")
    again.points({"loss": [2.5, 3.5]}, steps=[2, 3])
    take_all(store, again, attempt=2)

    (row,) = series(store, JOB)
    assert [(p.seq, p.attempt, p.step, p.value) for p in points(store, row.id)] == [
        (1, 1, 1, 1.0), (2, 1, 2, 2.0), (3, 1, 3, 3.0), (4, 2, 2, 2.5), (5, 2, 3, 3.5),
    ]  # fmt: skip


def test_learners_have_series_of_their_own_and_the_first_ones_are_the_latest(
    store: Store, records: Records, tmp_path: Path
) -> None:
    records.points({"loss": [1.0]})
    other = Records(tmp_path / "other.jsonl")
    other.points({"loss": [9.0], "only": [5.0]})
    take_all(store, other, learner=2)
    take_all(store, records, learner=1)

    assert [(row.learner, row.name) for row in series(store, JOB)] == [(1, "loss"), (2, "loss"), (2, "only")]
    assert latest(store, JOB) == {"loss": 1.0, "only": 5.0}


def test_usage_becomes_series_of_the_process_tree_and_each_gpu(store: Store, records: Records) -> None:
    for percent in (50.0, 180.0):
        records.add(
            "usage",
            cpu_percent=percent,
            memory_bytes=1 << 30,
            processes=3,
            gpus=[{"uuid": "GPU-1", "memory_bytes": 5}],
        )
    take_all(store, records)

    (sample,) = usage(store, JOB)
    assert sample.values == {
        "cpu_percent": 180.0, "memory_bytes": float(1 << 30), "processes": 3.0, "gpu/GPU-1/memory_bytes": 5.0,
    }  # fmt: skip
    assert (sample.learner, sample.time_us) == (1, 1002)
    assert latest(store, JOB) == {}
    assert {row.kind for row in series(store, JOB)} == {"usage"}


def test_checkpoints_progress_and_notes_are_kept(store: Store, records: Records) -> None:
    records.add("checkpoint", path="a.pt", step=100, metrics={"loss": 0.5}, metadata={"best": True})
    records.add("checkpoint", path="b.pt")
    records.add("progress", fraction=0.25, text="epoch 1/4")
    records.add("progress", fraction=0.5, text="epoch 2/4")
    records.add("note", level="warning", text="3 images are not shown")
    take_all(store, records)

    first, second = checkpoints(store, JOB)
    assert first == CheckpointRow(first.job_id, 1, 1, 1, 1001, "a.pt", 100, {"loss": 0.5}, {"best": True})
    assert (second.path, second.step, second.metadata) == ("b.pt", None, {})
    (far,) = progress(store, JOB)
    assert (far.fraction, far.text) == (0.5, "epoch 2/4")
    assert [(note.level, note.text) for note in notes(store, JOB)] == [("warning", "3 images are not shown")]


def test_one_bad_step_or_text_spoils_no_other_point(store: Store, records: Records) -> None:
    records.points(
        {"loss": [1.0, 2.0, "warm", 4.0, 5.0], "fine": [1, 2, 3, 4, 5]},
        steps=[1, -(2**63), 3, 2**63, 3.5],
        times=[1, 2, 3, 4, 5],
    )
    take_all(store, records)

    found = {(row.name, row.kind): row for row in series(store, JOB, kinds=("value", "text"))}
    loss = [(point.step, point.value) for point in points(store, found["loss", "value"].id)]
    assert loss == [(1, 1.0), (-(2**63), 2.0), (None, 4.0), (3.5, 5.0)]
    assert values(store, "fine") == [1, 2, 3, 4, 5]
    assert [text for _, text in texts(store, found["loss", "text"].id)] == ["warm"]
    assert notes(store, JOB) == []


def test_words_become_a_series_of_texts(store: Store, records: Records) -> None:
    records.add(
        "metrics",
        times=[1, 2],
        steps=[1, 2],
        values={"state": ["warm", "hot"]},
        texts={"stamp": ["12:00", None]},
    )
    take_all(store, records)

    found = {row.name: row for row in series(store, JOB, kinds=("text",))}
    assert [text for _, text in texts(store, found["state"].id)] == ["warm", "hot"]
    assert [text for _, text in texts(store, found["stamp"].id)] == ["12:00", ""]
    assert series(store, JOB) == []


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[1, 2]",
        '"text"',
        "{}",
        '{"seq": "5", "kind": "metrics"}',
        '{"seq": 5, "kind": 7}',
        '{"seq": 5, "kind": "metrics"}',
        '{"seq": 5, "kind": "metrics", "times": [1, 2], "values": {"loss": [1.0]}}',
        '{"seq": 5, "kind": "metrics", "times": [1], "steps": [1, 2], "values": {"loss": [1.0]}}',
        '{"seq": 5, "kind": "metrics", "times": ["x"], "values": {"loss": [1.0]}}',
        '{"seq": 5, "kind": "metrics", "times": [1], "values": {"loss": [[1]]}, "steps": "abc"}',
        '{"seq": 5, "kind": "metrics", "times": 5, "values": {"loss": 5}}',
        '{"seq": 5, "kind": "metrics", "times": [1], "values": [1]}',
        '{"seq": 5, "kind": "usage", "time": null}',
        '{"seq": 5, "kind": "usage", "time": 5, "gpus": [7]}',
        '{"seq": 5, "kind": "checkpoint", "time": 5}',
        '{"seq": 5, "kind": "checkpoint", "time": 5, "path": "x", "metrics": 5}',
        '{"seq": 5, "kind": "progress", "time": 5, "fraction": "half"}',
        '{"seq": 5, "kind": "note", "time": 5}',
        '{"seq": 5, "kind": "metrics", "times": [1], "values": {"loss": [1.0]}, "group": {"a": 1}, "x": '
        + "[" * 9000,
        "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_line_that_makes_no_sense_is_counted_and_harms_no_other(
    store: Store, records: Records, line: str
) -> None:
    records.points({"loss": [1.0]})
    records.raw(line + "\n")
    records.seq = 9
    records.points({"loss": [2.0]})
    take_all(store, records)

    assert values(store, "loss") == [1.0, 2.0]
    (note,) = notes(store, JOB)
    assert note.text == "1 record could not be understood"


def test_a_later_kind_of_record_is_passed_over(store: Store, records: Records) -> None:
    records.add("hologram", data=5)
    records.points({"loss": [2.0]})
    take_all(store, records)

    assert values(store, "loss") == [2.0]
    assert notes(store, JOB) == []


def test_records_of_a_newer_format_are_left_for_a_newer_version(store: Store, records: Records) -> None:
    records.file.write_text('{"format": 2}\n{"seq": 1, "kind": "metrics"}\n')

    with pytest.raises(ConfigError, match="format 2, this one knows 1"):
        take_all(store, records)
    assert store.rows("SELECT * FROM journals") == []


def test_a_file_that_is_not_there_yet_has_nothing(store: Store, tmp_path: Path) -> None:
    assert not ingest(store, JOB, 1, 1, tmp_path / "records.jsonl")


def test_the_offset_is_the_learners_and_moves_with_the_points(store: Store, records: Records) -> None:
    from dataclasses import replace

    from tests.quick.store.test_small_tables import a_learner
    from workbench.store.queries.learners import learners, save_learner

    row = add_job(store)
    save_learner(store, a_learner(row.id))
    records.points({"loss": [1.0]})
    ingest(store, row.id, 1, 1, records.file)

    assert learners(store, row.id) == [replace(a_learner(row.id), records_offset=records.file.stat().st_size)]


def test_every_batch_moves_the_revision_of_the_series_it_touched(store: Store, records: Records) -> None:
    records.points({"loss": [1.0], "other": [1.0]})
    take_all(store, records)
    before = store.counter("series")
    records.points({"loss": [2.0]})
    take_all(store, records)

    assert store.counter("series") > before
    assert [row.name for row in series(store, JOB, since=before)] == ["loss"]


def test_a_full_disk_takes_nothing_in_and_later_all(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for block in range(30):
        records.points({"loss": [float(block)] * 1000}, steps=[1] * 1000)
    with small_disk(tmp_path / "disk", size="4m") as disk, Store.open(Home(disk / "home")) as store:
        fill(disk, leave=200_000)
        with pytest.raises(CannotWrite, match="disk is full"):
            take_all(store, records)
        assert store.rows("SELECT * FROM points") == []
        assert store.rows("SELECT * FROM journals") == []

        (disk / "filling").unlink()
        take_all(store, records)

        assert values(store, "loss") == [float(block) for block in range(30) for _ in range(1000)]
        (row,) = series(store, JOB)
        assert sum(bucket.count for bucket in buckets(store, row.id, width=10)) == 30_000


@pytest.mark.parametrize("name", ["bad\ud800name", "x\udce9y", "n\0ul", "n" * 100_000])
def test_names_and_texts_that_no_row_can_hold_are_taken_in_clean(
    store: Store, records: Records, name: str
) -> None:
    records.points({"loss": [1.0], name: [5.0]}, group=name, subid=name)
    records.add("metrics", times=[1], values={"t" + name: [name]})
    records.add("usage", gpus=[{"uuid": name, name: 5}], **{name: 5.0})
    records.add("checkpoint", path=name, metrics={name: [10**400, float("nan")]}, metadata={name: {name: 1}})
    records.add("progress", fraction=5, text=name)
    records.add("note", level=name, text=name)
    records.points({"loss": [2.0]})
    take_all(store, records)

    assert values(store, "loss") == [2.0]
    assert len(series(store, JOB, kinds=("value", "usage", "text"))) == 6
    assert len(checkpoints(store, JOB)) == len(notes(store, JOB)) == len(progress(store, JOB)) == 1
    assert progress(store, JOB)[0].fraction == 1.0
    json.dumps([str(checkpoints(store, JOB)), str(notes(store, JOB))], ensure_ascii=False).encode()


def test_notes_of_one_collector_that_count_are_one_note_with_their_sum(
    store: Store, records: Records
) -> None:
    records.add("note", source="a", level="warning", text="3 of the lines, the first at byte 5", count=3)
    take_all(store, records)
    records.add("note", source="a", level="warning", text="40 of the lines, the first at byte 77", count=40)
    records.add("note", source="b", level="info", text="1 of the files", count=1)
    records.add("note", source="a", level="info", text="40 others", count=4)
    records.add("note", source="a", level="info", text="40 others")
    take_all(store, records)

    assert [note.text for note in notes(store, JOB)] == [
        "43 of the lines, the first at byte 5",
        "1 of the files",
        "40 others",
        "40 others",
    ]


def test_what_is_left_out_is_counted_in_one_note(store: Store, records: Records) -> None:
    for _ in range(3):
        records.raw("garbage\n")
        records.add("note")
        take_all(store, records)

    assert [note.text for note in notes(store, JOB)] == ["6 records could not be understood"]


@pytest.mark.parametrize(
    "line",
    [
        {"seq": 10**18, "kind": "note", "text": "x", "time": 1},
        {"seq": 10**400, "kind": "note", "text": "x", "time": 1},
        {"seq": -1, "kind": "note", "text": "x", "time": 1},
        {"seq": 2, "kind": "metrics", "format": 99, "times": [1], "values": [1]},
        {"seq": 2, "kind": "checkpoint", "time": 1, "path": "p", "step": 2**63},
        {"seq": 2, "kind": "metrics", "times": [2**62], "values": {"far": [1]}},
        {"seq": 2, "kind": "metrics", "times": [-1], "values": {"far": [1]}},
        {"seq": 2, "kind": "metrics", "times": [1, 2], "values": {"loss": "12"}},
    ],
)
def test_a_record_that_would_hide_others_or_fits_no_row_is_left_out(
    store: Store, records: Records, line: dict[str, object]
) -> None:
    records.points({"loss": [1.0]})
    records.raw(json.dumps(line) + "\n")
    records.seq = 2
    records.points({"loss": [2.0]})
    take_all(store, records)

    assert values(store, "loss") == [1.0, 2.0]
    assert [note.text for note in notes(store, JOB)] == ["1 record could not be understood"]


def test_a_header_in_the_middle_is_nobodys_business(store: Store, records: Records) -> None:
    records.points({"loss": [1.0]})
    records.raw('{"format": 99}\n')
    records.points({"loss": [2.0]})
    take_all(store, records)

    assert values(store, "loss") == [1.0, 2.0]


def test_a_line_longer_than_any_record_is_passed_over(
    store: Store, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.metrics.records.LINE_BYTES", 1000)
    records.points({"loss": [1.0]})
    records.raw("x" * 5000)
    take_all(store, records, limit=200)
    assert values(store, "loss") == [1.0]
    records.raw("\n")
    records.points({"loss": [2.0]})
    take_all(store, records, limit=200)

    assert values(store, "loss") == [1.0, 2.0]
    assert [note.text for note in notes(store, JOB)] == ["1 record could not be understood"]


@pytest.mark.parametrize("error", [RuntimeError("odd"), UnicodeEncodeError("utf-8", "x", 0, 1, "odd")])
def test_a_record_that_the_store_refuses_is_left_out_alone(
    store: Store, records: Records, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    from workbench.metrics import ingestion as ingesting

    write = ingesting._write_series

    def refuse(source: object, kind: object, name: str, *rest: object) -> None:
        if name == "cursed":
            raise error
        write(source, kind, name, *rest)  # type: ignore[arg-type] # as it was called

    monkeypatch.setattr(ingesting, "_write_series", refuse)
    records.points({"loss": [1.0]})
    records.points({"lost": [1.0], "cursed": [1.0]})
    records.add("note", text="kept")
    records.points({"loss": [2.0]})
    warnings: list[str] = []
    ingest(store, JOB, 1, 1, records.file, report=warnings.append)

    assert values(store, "loss") == [1.0, 2.0]
    assert {row.name for row in series(store, JOB)} == {"loss"}
    assert {note.text for note in notes(store, JOB)} == {"kept", "1 record could not be understood"}
    assert any(text.startswith("record 2 of") and "odd" in text for text in warnings)
    assert not ingest(store, JOB, 1, 1, records.file)


ODD_TEXTS = st.text(st.characters(codec=None), max_size=5)
ODD_NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, -(2**63) - 1])
ODD_VALUES = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=6,
)


def _may_be_true(seq: object) -> bool:
    """Say whether a made-up number cannot be distinguished from a true one: it hides what its own learner says next."""
    return type(seq) is int and 9 < seq < 1_000_000


COLUMNS = st.dictionaries(ODD_TEXTS, st.lists(ODD_VALUES, max_size=2) | ODD_VALUES, max_size=2)
ODD_RECORDS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["metrics", "usage", "checkpoint", "progress", "note", "other"]) | ODD_VALUES},
    optional={
        "seq": st.integers(1, 9) | ODD_VALUES.filter(lambda seq: not _may_be_true(seq)),
        "time": st.integers(0, 10**16) | ODD_VALUES,
        "times": st.lists(st.integers(0, 10**16), max_size=2) | ODD_VALUES,
        "steps": st.lists(st.none() | st.integers(), max_size=2) | ODD_VALUES,
        "values": COLUMNS | ODD_VALUES,
        "etimes": COLUMNS | ODD_VALUES,
        "texts": COLUMNS | ODD_VALUES,
        "gpus": st.lists(st.dictionaries(st.sampled_from(["uuid", "use"]), ODD_VALUES), max_size=2)
        | ODD_VALUES,
        **dict.fromkeys(
            ["group", "subid", "path", "step", "metrics", "metadata", "fraction", "text", "level", "format"],
            ODD_VALUES,
        ),
    },
)
ODD_LINES = st.binary(max_size=40) | st.builds(lambda one: json.dumps(one).encode(), ODD_RECORDS | ODD_VALUES)


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lines=st.lists(ODD_LINES, max_size=6))
def test_whatever_stands_in_records_the_rest_is_taken_in_and_can_be_shown(
    store: Store, tmp_path: Path, lines: list[bytes]
) -> None:
    from workbench.terminal.json_output import print_json

    with contextlib.suppress(_Undo), store.atomic():
        records = Records(tmp_path / "odd.jsonl")
        with records.file.open("ab") as stream:
            stream.write(b"\n".join([*lines, b""]))
        records.seq = 20
        records.points({"loss of the last": [2.0]})
        take_all(store, records)

        assert values(store, "loss of the last") == [2.0]
        everything = [
            [asdict(row) for row in series(store, JOB, kinds=("value", "etime", "usage", "text"))],
            [asdict(row) for read in (checkpoints, progress, notes) for row in read(store, JOB)],
            [[iso(row.last_time_us), stamp(row.last_time_us or 0)] for row in series(store, JOB)],
        ]
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
            print_json({"everything": everything})
        raise _Undo


class _Undo(Exception):
    """Takes an example's rows back."""


TAKER = """
import sys
from pathlib import Path
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store

store = Store.open(Home(Path(sys.argv[1])))
while ingest(store, "training-222222222", 1, 1, Path(sys.argv[2]), limit_bytes=2000):
    pass
"""


def test_several_takers_at_once_take_each_record_once(store: Store, records: Records) -> None:
    for block in range(300):
        records.points({"loss": [float(block)] * 10})
    arguments = [sys.executable, "-c", TAKER, str(store.home.path), str(records.file)]
    several = [subprocess.Popen(arguments) for _ in range(3)]

    assert [ended(process) for process in several] == [0, 0, 0]

    assert values(store, "loss") == [float(block) for block in range(300) for _ in range(10)]


def test_a_taker_killed_at_any_instant_doubles_and_loses_nothing(home: Home, records: Records) -> None:
    for block in range(400):
        records.points({"loss": [float(block)] * 10, "acc": [1.0] * 10})
    store = Store.open(home)
    for enough in (1, 700, 1500, 2900):
        taker = subprocess.Popen([sys.executable, "-c", TAKER, str(home.path), str(records.file)])
        while taker.poll() is None and store.rows("SELECT count(*) FROM points")[0][0] < enough:
            pass
        taker.kill()
        taker.wait()
    take_all(store, records)

    assert values(store, "loss") == [float(block) for block in range(400) for _ in range(10)]
    for row in series(store, JOB):
        assert sum(bucket.count for bucket in buckets(store, row.id, width=5)) == 4000
    shutil.rmtree(home.path / "jobs", ignore_errors=True)
