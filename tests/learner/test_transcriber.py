"""A journal from the files alone: published, with every metric point exactly once, whenever the writer is killed."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner.collecting import points_of
from tests.support.waiting import until
from workbench.learner.journal.output import Records
from workbench.learner.scribe import transcriber as module
from workbench.learner.scribe.transcriber import Transcriber

METRICS = {
    "type": "regex_extractor",
    "groups": {
        "train": {
            "regex": "loss=%{FLOAT:loss} step=%{INT:step}",
            "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
            "etimes": {"step": {"type": "INT", "value": "$step"}},
        }
    },
}


class Bench:
    """A learner's folder, what is printed into it, and a transcriber that can be killed."""

    def __init__(self, folder: Path, **launch: Any) -> None:
        self.folder = folder
        self.launch = {
            "home": "h",
            "job": "j",
            "attempt": 1,
            "learner": 1,
            "learners": 1,
            "log_dir": str(folder / "logs"),
            "metrics": METRICS,
            **launch,
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.printed = b""
        self.one = Transcriber(str(folder), self.launch)

    def print(self, data: bytes) -> None:
        self.printed += data
        with (self.folder / "output.log").open("ab") as file:
            file.write(data)

    def report(self, step: int) -> None:
        line = {"kind": "metrics", "time": 1, "step": step, "values": {"reported": step / 2}}
        with (self.folder / "report.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def killed(self) -> None:
        """What the last one had in memory is gone."""
        self.one.close()
        self.one = Transcriber(str(self.folder), self.launch)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "records.jsonl").read_text().splitlines()]

    def points(self) -> dict[str, list[Any]]:
        return {name: found for (_, _, name), found in points_of(self.lines()[1:]).items()}


def loss(step: int) -> bytes:
    return b"loss=%d.5 step=%d\n" % (step, step)


def test_output_is_published_and_its_metrics_are_records(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.print(b"hello\n" + loss(1) + loss(2))

    bench.one.finish()

    assert bench.one.publisher.end == len(bench.printed)
    assert bench.points()["loss"] == [(1, 1.5), (2, 2.5)]
    header, *records = bench.lines()
    assert (header["format"], header["home"], header["learner"]) == (1, "h", 1)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert {"time_us", "boottime_us", "agent"} <= set(header)


def test_a_points_time_is_that_of_its_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for step in (1, 2):
        bench.print(loss(step))
        until(bench.one.publisher.publish)
        time.sleep(0.02)
    entries = [bench.one.publisher.index.entry(n).time_us for n in range(2)]

    bench.one.finish()

    (record,) = (line for line in bench.lines() if line.get("kind") == "metrics")
    assert record["times"] == entries
    assert entries[1] - entries[0] >= 15_000


def test_without_metrics_and_reports_no_collector_is_loaded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, metrics=None)
    bench.print(b"hello\n")

    bench.one.finish()

    assert bench.one.publisher.end == 6
    assert len(bench.lines()) == 1
    assert bench.one.due_seconds() is not None  # a report may come later


def test_a_report_that_comes_late_is_collected(tmp_path: Path) -> None:
    bench = Bench(tmp_path, metrics=None)
    bench.print(b"hello\n")
    bench.one.step()
    bench.report(7)

    until(lambda: bench.one.step() or "reported" in bench.points() or None)
    bench.one.finish()

    assert bench.points() == {"reported": [(7, 3.5)]}


def test_finishing_twice_writes_nothing_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.print(loss(1) + b"loss=2.5 step=2")  # without an end

    bench.one.finish()
    first = bench.lines()
    bench.killed()
    bench.one.finish()

    assert bench.points()["loss"] == [(1, 1.5), (2, 2.5)]
    assert bench.lines() == first


def test_other_records_are_written_among_them_and_carry_how_far_collection_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.print(b"no metric in this line\n" * 1000)
    until(lambda: not bench.one.step())

    bench.one.add({"kind": "usage", "time": 1, "memory_bytes": 5})

    (usage,) = (line for line in bench.lines() if line.get("kind") == "usage")
    assert usage["seq"] == 1
    bench.killed()
    bench.one.step()
    assert bench.one._fed >= len(bench.printed)  # what holds no points is not looked at again
    bench.print(loss(3))
    bench.one.finish()
    assert bench.points()["loss"] == [(3, 3.5)]


def test_secrets_are_in_no_record(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.json"
    secrets.write_text(json.dumps({"KEY": "hush-hush-value"}))
    bench = Bench(tmp_path / "learner", secrets_file=str(secrets))
    line = {
        "kind": "checkpoint",
        "time": 1,
        "path": "/x/hush-hush-value/1",
        "metadata": {"hush-hush-value": ["hush-hush-value"]},
    }
    with (bench.folder / "report.jsonl").open("w") as file:
        file.write(json.dumps(line) + "\n")
    bench.print(b"hush-hush-value\n")

    bench.one.add({"kind": "note", "time": 1, "level": "info", "text": "hush-hush-value"})
    bench.one.finish()

    stars = "*" * 15
    assert "hush-hush-value" not in (bench.folder / "records.jsonl").read_text()
    (checkpoint,) = (record for record in bench.lines() if record.get("kind") == "checkpoint")
    assert checkpoint["path"] == f"/x/{stars}/1"
    assert checkpoint["metadata"] == {stars: [stars]}


def test_collectors_that_lag_behind_do_not_hold_output_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.print(b"".join(loss(step) for step in range(30_000)))

    bench.one.step()

    assert bench.one.publisher.end == len(bench.printed)
    assert bench.one._fed < len(bench.printed)
    bench.one.finish()
    assert len(bench.points()["loss"]) == 30_000


def test_a_reader_can_run_it_over_what_an_agent_without_python_left(tmp_path: Path) -> None:
    """It has no index and no records, and grows under our hands."""
    bench = Bench(tmp_path)
    for step in range(5):
        bench.print(loss(step)[:7])
        bench.one.step()
        bench.print(loss(step)[7:])
        bench.killed()
    bench.one.finish()

    assert [step for step, _ in bench.points()["loss"]] == list(range(5))
    assert bench.one.publisher.index.last.newlines == 5


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.soak("another seed; the gate has ten") if seed >= 10 else ())
        for seed in range(25)
    ],
)
def test_every_point_comes_once_whenever_it_is_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(tmp_path)
    text = b"".join(loss(step) + b"noise %d\n" % step for step in range(60))
    reported = 0
    while text:
        cut = chance.randint(1, 300)
        bench.print(text[:cut])
        text = text[cut:]
        for action in chance.choices(
            ("step", "finish", "usage", "report", "kill", "tear"), k=chance.randint(0, 4)
        ):
            if action == "step":
                bench.one.publisher.publish(final=True)
                bench.one.step()
            elif action == "finish":
                bench.one.collect(1.0)
            elif action == "usage":
                bench.one.add({"kind": "usage", "time": 1})
            elif action == "report":
                bench.report(reported)
                reported += 1
            elif action == "tear":
                torn(bench)
            else:
                bench.killed()
    bench.one.finish()

    points = bench.points()
    assert points["loss"] == [(step, step + 0.5) for step in range(60)]
    assert points.get("reported", []) == [(step, step / 2) for step in range(reported)]
    numbers = [record["seq"] for record in bench.lines()[1:]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert (bench.folder / "output.log").read_bytes() == bench.printed


def torn(bench: Bench) -> None:
    """Let it be killed in the middle of its last write, to either file."""
    bench.one.close()
    for name, unit in (("records.jsonl", 30), ("output.idx", 10)):
        path = bench.folder / name
        if path.exists() and path.stat().st_size > 200:
            os.truncate(path, path.stat().st_size - unit)
    bench.one = Transcriber(str(bench.folder), bench.launch)


def test_what_cannot_be_written_waits_in_order(tmp_path: Path, monkeypatch: Any) -> None:
    bench = Bench(tmp_path)
    bench.print(loss(1))
    real = Records.append
    refused: Iterator[bool] = iter([True, True, False])

    def append(self: Records, records: list[dict[str, Any]]) -> None:
        if next(refused, False):
            raise OSError(28, "No space left on device")
        real(self, records)

    monkeypatch.setattr(Records, "append", append)
    failures = 0
    while True:
        try:
            bench.one.add({"kind": "note", "time": 1, "level": "info", "text": "x"}) if not failures else None
            bench.one.finish()
            break
        except OSError:
            failures += 1

    assert failures == 2
    assert bench.points()["loss"] == [(1, 1.5)]
    assert sum(record.get("kind") == "note" for record in bench.lines()) == 1
    assert module.POLL_SECONDS > 0


def test_output_that_is_passed_over_is_passed_over_again_after_a_kill(tmp_path: Path) -> None:
    bench = Bench(tmp_path, metrics={"type": "auto"})
    for part in range(6):
        bench.print(b"".join(b"fetched object %d, 12 bytes\n" % n for n in range(3000)))
        bench.print(b"".join(b"it %d reward %d.5\n" % (n, n) for n in range(9 * part, 9 * part + 9)))
        while bench.one.step():
            pass
        if part % 2:
            bench.killed()
    bench.one.finish()
    points = bench.points()["reward"]
    assert points == sorted(set(points))
    again = Transcriber(str(tmp_path), bench.launch)
    (tmp_path / "records.jsonl").unlink()
    again.finish()
    again.close()
    assert bench.points()["reward"] == points
