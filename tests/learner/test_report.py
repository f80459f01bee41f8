"""What training code says by call arrives exactly once, from threads and forks, and never harms training."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner.collecting import Rig, context
from tests.support.kept_agents import agent
from tests.support.waiting import ended
from workbench.learner import checkpoint, hparams, progress, report, should_stop
from workbench.learner.collectors.interface import Collector
from workbench.learner.collectors.report import ReportCollector

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A job whose training code is this test."""
    where = context(tmp_path)
    monkeypatch.setenv("FABRIC_REPORT", str(tmp_path / "learner" / "report.jsonl"))
    monkeypatch.setenv("FABRIC_STOP_FILE", str(tmp_path / "learner" / "stop.json"))
    module = sys.modules["workbench.learner.report"]
    monkeypatch.setattr(module, "_warned", set())
    monkeypatch.setattr(module, "_torn", False)
    yield Rig(lambda: ReportCollector({}, where))


class Scalar:
    """What numpy and torch make of one number."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        if isinstance(self.value, list):
            raise ValueError("only one element")
        return self.value


def test_in_a_job_the_archive_offers_it_by_a_name_of_its_own(python: str) -> None:
    script = (
        "import fabric_learner as f; print(f.report, f.checkpoint, f.should_stop(), f.hparams(), f.progress)"
    )
    path = os.pathsep.join([agent(), ""])
    ran = subprocess.run([python, "-c", script], capture_output=True, check=True, env={"PYTHONPATH": path})

    assert ran.stdout.count(b"<function") == 3
    assert b"False {}" in ran.stdout


def test_outside_a_job_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report(loss=0.5, step=1)
    checkpoint("model.pt", step=1)
    progress(0.5)

    assert list(tmp_path.iterdir()) == []
    assert should_stop() is False
    assert hparams() == {}


def test_metrics_arrive_with_their_step(job: Rig) -> None:
    report(loss=0.5, accuracy=0.9, step=3)
    report({"loss": 0.25}, step=4, accuracy=1, group="test")
    job.finish()

    assert job.points["", "", "loss"] == [(3, 0.5)]
    assert job.points["", "", "accuracy"] == [(3, 0.9)]
    assert job.points["test", "", "loss"] == [(4, 0.25)]
    assert job.points["test", "", "accuracy"] == [(4, 1)]


def test_a_fraction_of_an_epoch_is_a_step_and_the_least_integer_is_one(job: Rig) -> None:
    report(loss=0.5, step=0.25)
    report(loss=0.4, epoch=0.5)
    report(loss=0.3, step=-(2**63))
    report(loss=0.2, step=2.0)
    job.finish()

    assert job.points["", "", "loss"] == [(0.25, 0.5), (0.5, 0.4), (-(2**63), 0.3), (2, 0.2)]


@pytest.mark.parametrize("name", ["step", "global_step", "iteration", "epoch"])
def test_a_step_is_exact_to_64_bits_by_whatever_name_it_is_reported(job: Rig, name: str) -> None:
    steps = [2**53 + 1, 2**62 + 3, -(2**53) - 1, 2**63 - 1]
    for step in steps:
        report({"loss": 0.5, name: step})
    job.finish()

    assert job.points["", "", "loss"] == [(step, 0.5) for step in steps]


def test_an_epoch_beside_a_loss_is_where_it_is_and_alone_it_is_a_metric(job: Rig) -> None:
    report(loss=0.5, epoch=2)
    report({"loss": 0.5, "epoch": 3}, step=70)
    report(epoch=4)
    job.finish()

    assert job.points["", "", "loss"] == [(2, 0.5), (70, 0.5)]
    kinds = [("epoch" in record["values"], "epoch" in record.get("etimes", {})) for record in job.written]
    assert kinds == [(False, True), (True, False)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Scalar(0.5), 0.5),
        (Scalar(True), 1),
        (True, 1),
        (math.nan, None),
        (Scalar(math.nan), None),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (10**400, "inf"),
        ("adam", "adam"),
    ],
)
def test_numbers_of_every_kind_are_taken(job: Rig, value: Any, expected: Any) -> None:
    report({"v": value}, step=Scalar(1).item())
    job.finish()

    assert job.points["", "", "v"] == [(1, expected)]


def test_what_is_no_number_is_left_out_with_one_message(job: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        report({"bad": Scalar([1, 2]), "none": None, "good": 1}, step=object())  # type: ignore[arg-type] # a mistake of the user's
    job.finish()

    assert set(job.points) == {("", "", "good")}
    stderr = capfd.readouterr().err
    assert stderr.count("bad is neither a number") == 1
    assert stderr.count("is not a whole number") <= 3


def test_checkpoints_and_progress_are_records(
    job: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint("model.pt", step=5, metrics={"loss": 0.5}, note="the best", tensor=Scalar([1]))
    progress(1.5, "epoch 5/10")
    job.finish()
    first, second = job.written

    assert (first["kind"], first["path"], first["step"]) == ("checkpoint", str(tmp_path / "model.pt"), 5)
    assert first["metrics"] == {"loss": 0.5}
    assert first["metadata"]["note"] == "the best"
    assert (second["kind"], second["fraction"], second["text"]) == ("progress", 1.0, "epoch 5/10")


def test_numbers_of_a_checkpoint_are_metrics_and_all_else_is_metadata(job: Rig) -> None:
    checkpoint(
        "model.pt", step=5, metrics={"loss": 0.5}, val_loss=Scalar(0.25), loss=1.0, final=True, note="x"
    )
    job.finish()
    (record,) = job.written

    assert record["metrics"] == {"loss": 0.5, "val_loss": 0.25}
    assert (record["metadata"]["final"], record["metadata"]["note"]) == (1, "x")


def test_a_request_to_stop_is_seen(job: Rig, tmp_path: Path) -> None:
    assert should_stop() is False

    (tmp_path / "learner" / "stop.json").write_text("{}")
    assert should_stop() is True


def test_a_request_to_stop_is_seen_that_a_full_disk_took_as_a_link(job: Rig, tmp_path: Path) -> None:
    (tmp_path / "learner" / "stop.json").symlink_to("halt")

    assert should_stop() is True


def test_parameters_keep_names_and_types_where_they_are_given_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_PARAM_LR", "0.1")
    monkeypatch.setenv("FABRIC_PARAM_OPTIMIZER", "adam")
    assert hparams() == {"lr": 0.1, "optimizer": "adam"}

    monkeypatch.setenv("FABRIC_PARAMS", '{"batchSize": 32, "tag": "1"}')
    assert hparams() == {"batchSize": 32, "tag": "1"}


def test_threads_and_forks_say_everything_once(job: Rig) -> None:
    def say(who: int) -> None:
        for step in range(100):
            report({"v": who, "pad": "x" * 3000}, step=step, group=str(who))

    threads = [threading.Thread(target=say, args=(who,)) for who in range(4)]
    children = []
    for thread in threads:
        thread.start()
    for who in range(4, 8):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(who)], env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        children.append(child)
    for thread in threads:
        thread.join()
    assert [ended(child) for child in children] == [0] * 4
    job.finish()

    for who in range(8):
        # Each of the others has forked in the middle, and both halves reported the second half.
        twice = who >= 4
        steps = sorted(step or 0 for step, _value in job.points[str(who), "", "v"])
        assert steps == sorted([*range(100), *(range(50, 100) if twice else ())])
    assert job.notes == []


CHILD = """
import os, sys
from workbench.learner import report
who = sys.argv[1]
for step in range(50):
    report({"v": int(who), "pad": "x" * 3000}, step=step, group=who)
child = os.fork()
for step in range(50, 100):
    report({"v": int(who), "pad": "x" * 3000}, step=step, group=who)
if child:
    os.waitpid(child, 0)
"""


def test_a_disk_that_takes_nothing_stops_no_training(
    job: Rig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("there is no /dev/full on this system")
    monkeypatch.setenv("FABRIC_REPORT", "/dev/full")
    for step in range(3):
        report(loss=1.0, step=step)

    stderr = capfd.readouterr().err
    assert stderr.count("fabric: report()") == 1
    assert "No space left" in stderr


def test_half_a_line_spoils_only_itself(
    job: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    report(loss=1.0, step=1)
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:10]))
    report(loss=2.0, step=2)
    monkeypatch.setattr(os, "write", whole)
    report(loss=3.0, step=3)
    job.finish()

    assert job.points["", "", "loss"] == [(1, 1.0), (3, 3.0)]
    assert len(job.notes) == 1
    assert "the disk is full" in capfd.readouterr().err


def test_a_folder_that_is_gone_stops_no_training(job: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_REPORT", "/nowhere/at/all/report.jsonl")
    monkeypatch.setattr(sys, "stderr", None)

    report(loss=1.0)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_killed_anywhere_nothing_is_lost_or_doubled(data: st.DataObject, tmp_path_factory: Any) -> None:
    root = tmp_path_factory.mktemp("report")
    where = context(root)
    path = Path(where.learner_dir) / "report.jsonl"

    def collector() -> Collector:
        return ReportCollector({}, where)

    lines = [
        {"kind": "metrics", "time": 1, "step": 1, "values": {"a": 1}},
        {"kind": "metrics", "time": 2, "step": 2, "values": {"a": 2, "b": None}, "group": "g"},
        {"kind": "checkpoint", "time": 3, "path": "/m"},
        {"kind": "progress", "time": 4, "fraction": 0.5, "text": ""},
    ]
    reports = data.draw(st.lists(st.sampled_from(lines), max_size=20))
    rest = "".join(json.dumps({**line, "at": index}) + "\n" for index, line in enumerate(reports))
    harmed = Rig(collector)
    while rest:
        size = data.draw(st.integers(1, 200))
        with path.open("a") as file:
            file.write(rest[:size])
        rest = rest[size:]
        harmed.suffer(data)
    harmed.finish()
    whole = Rig(collector)
    whole.finish()

    assert harmed.points == whole.points
    for kind in ("checkpoint", "progress"):
        found = [
            [record["at"] for record in run.written if record["kind"] == kind] for run in (harmed, whole)
        ]
        assert found[0] == found[1]


def test_the_oldest_python_can_report(job: Rig, python: str) -> None:
    script = "from workbench.learner import report; report(loss=float('nan'), step=7)"
    subprocess.run([python, "-c", script], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    job.finish()

    assert job.points["", "", "loss"] == [(7, None)]


def test_training_code_loads_little_by_importing_it() -> None:
    script = "import sys; import workbench.learner; print(sorted(m for m in sys.modules if m in %r))"
    heavy = ["json", "typing", "dataclasses", "hashlib", "ctypes", "subprocess", "workbench.errors"]
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script % (heavy,)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )

    assert ran.stdout.strip() == "[]"
