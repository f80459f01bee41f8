"""Which collector a name stands for, collectors that are not ours, and ones that fail."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.learner import event_files as tf
from tests.learner.collecting import context, points_of
from workbench.learner.collectors import Context, make
from workbench.learner.collectors.interface import Collector, Record
from workbench.learner.collectors.registry import BUILT_IN, canonical
from workbench.learner.collectors.subprocess import FailsafeCollector

ROOT = Path(__file__).parents[2]

SPELLINGS: dict[str, list[str | None]] = {
    "plain": [None, "", "none", "nil", "null", "logger", "plain", "None"],
    "tensorboard": ["tensorboard", "tensorboard_extractor"],
    "regex_extractor": ["regex_extractor"],
    "emetrics_file": ["emetrics_file", "file", "optivist"],
}


@pytest.mark.parametrize(
    ("spelling", "name"), [(spelling, name) for name, all_of in SPELLINGS.items() for spelling in all_of]
)
def test_every_spelling_of_ffdls_makes_its_collector(tmp_path: Path, spelling: str | None, name: str) -> None:
    groups = {"g": {"regex": "x"}}
    made = make({"type": spelling, "groups": groups}, context(tmp_path))

    assert [collector.name for collector in made] == [name, "report"]
    assert all(isinstance(collector, FailsafeCollector) and collector.inner is not None for collector in made)
    assert canonical(spelling) == name


def test_each_built_in_is_an_entry_point_too() -> None:
    import tomllib

    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    points = document["project"]["entry-points"]["fabric.collectors"]

    assert points == {name: f"{module}:{kind}" for name, (module, kind) in BUILT_IN.items()}


def test_without_metrics_only_report_has_anything_to_do(tmp_path: Path) -> None:
    made = make(None, context(tmp_path))

    assert [collector.wants_output for collector in made] == [False, False]
    assert [collector.take() for collector in made] == [[], []]
    assert not any(collector.poll(1) or collector.finish(2) for collector in made)


def test_an_unknown_collector_is_named_with_those_there_are(tmp_path: Path) -> None:
    (record,) = make({"type": "tensorbord"}, context(tmp_path))[0].take()

    assert record["kind"] == "note"
    assert record["source"] == "tensorbord"
    assert "emetrics_file, plain, regex_extractor, tensorboard" in record["text"]


FOREIGN = """
from workbench.learner.collectors.interface import Collector

class Counter(Collector):
    name = "counter"
    wants_output = True

    def __init__(self, metrics, context):
        super().__init__(metrics, context)
        self.lines = []

    def restore(self, cursor):
        pass

    def cursor(self):
        return len(self.lines)

    def line(self, text, end_offset, time_us):
        if text == b"boom":
            raise RuntimeError("it went off")
        self.lines.append([text.decode(), end_offset])

    def take(self):
        records = [{"kind": "note", "text": text, "time": end, "source": self.name, "cursor": end}
                   for text, end in self.lines]
        self.lines = []
        return records

    def finish(self, now_us):
        return False
"""


def foreign(tmp_path: Path) -> Collector:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "their_counter.py").write_text(FOREIGN)
    where = {"module": "their_counter", "class": "Counter", "path": [str(tmp_path / "plugins")]}
    return make({"type": "counter", "collector": where}, context(tmp_path))[0]


def test_a_collector_of_somebody_elses_gets_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    collector = foreign(tmp_path)
    for end, piece in ((2, b"on"), (6, b"e\ntw"), (8, b"o\n")):
        collector.output(piece, end, 1)

    assert [(record["text"], record["time"]) for record in collector.take()] == [("one", 4), ("two", 8)]
    assert collector.output_offset == 8


def test_one_that_raises_is_put_aside_with_a_note_and_its_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    collector = foreign(tmp_path)
    collector.output(b"one\n", 4, 1)
    assert collector.take()[-1]["cursor"] == 4

    collector.output(b"boom\n", 9, 1)
    (record,) = collector.take()
    assert (record["level"], record["text"]) == ("error", "the collector counter stopped: it went off")
    assert record["cursor"] == 4
    assert not collector.wants_output
    collector.output(b"two\n", 13, 1)
    assert collector.take() == []


def test_a_cursor_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    collector = make({"type": "emetrics_file"}, context(tmp_path))[0]
    collector.restore({"from": "another version"})

    assert "cannot read" in collector.take()[0]["text"]


@pytest.mark.parametrize(
    ("learner", "shared", "owns"), [(1, True, True), (2, True, False), (2, False, True), (1, False, True)]
)
def test_a_shared_log_folder_is_learner_1s(learner: int, shared: bool, owns: bool) -> None:
    launch = {
        "learner": learner,
        "log_dir": "/j/logs",
        "log_dir_shared": shared,
        "env": {"JOB_STATE_DIR": "/j"},
    }

    found = Context.from_launch(launch, "/l")
    assert (found.owns_log_dir, found.job_state_dir, found.learner_dir) == (owns, "/j", "/l")


def test_what_a_folder_says_is_read_the_same_by_every_python(tmp_path: Path, python: str) -> None:
    where = context(tmp_path)
    logs = Path(where.log_dir)
    (logs / "tb").mkdir()
    (logs / "tb" / "tfevents").write_bytes(tf.scalars({n: {"loss": n / 2, "lr": 0.1} for n in range(50)}))
    (logs / "evaluation-metrics.txt").write_text('{"grouplabel": "g", "values": {"v": 1}}\n{bad\n')
    (Path(where.learner_dir) / "report.jsonl").write_text(
        '{"kind": "metrics", "time": 5, "values": {"a": 1}}\n'
    )
    regex = {"r": {"regex": r"%{GLOG_STAMP:t}.*loss=%{FLOAT:l}\s+", "scalars": {"l": {"value": "$l"}}}}
    output = "noise\nI0712 10:00:00.5 größe loss=0.5\nmore\n"
    script = """
import json, sys
from workbench.learner.collectors import Context, make
context, kinds, groups, output = json.load(sys.stdin)
data, records = output.encode(), []
for kind in kinds:
    for collector in make({"type": kind, "groups": groups}, Context(*context)):
        if collector.wants_output:
            collector.output(data, len(data), 7)
        while collector.finish(10**15):
            pass
        records += collector.take()
print(json.dumps(records))
"""
    kinds = ["tensorboard", "emetrics_file", "regex_extractor"]
    ran = subprocess.run(
        [python, "-c", script],
        input=json.dumps([where, kinds, regex, output]),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    records: list[Record] = json.loads(ran.stdout)
    points: dict[Any, Any] = points_of(records)

    assert points["tb", "", "loss"] == [(n, n / 2) for n in range(50)]
    assert points["g", "", "v"] == [(None, 1)]
    assert points["r", "", "l"] == [(None, 0.5)]
    assert points["", "", "a"] == [(None, 1)] * 3
    assert sum(record["kind"] == "note" for record in records) == 1
