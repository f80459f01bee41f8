"""Checkpoints of code that reports none: found by their names, whole ones only, each once."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.learner.collecting import Rig, context
from workbench.learner.collectors import found_checkpoints
from workbench.learner.collectors.interface import Context
from workbench.learner.collectors.report import ReportCollector


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_checkpoints, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(found_checkpoints, "_SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(found_checkpoints, "_COST_SHARE", 0)


def job(root: Path) -> Context:
    for name in ("results", "checkpoints"):
        (root / name).mkdir(exist_ok=True)
    return context(root, RESULT_DIR=str(root / "results"), CHECKPOINT_DIR=str(root / "checkpoints"))


def torch_file() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", b"weights" * 100)
    return data.getvalue()


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0" * 8


def save(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data or torch_file())
    return path


def found(one: Rig) -> dict[str, int | None]:
    """The steps of the checkpoints by their names."""
    records = [record for record in one.written if record["kind"] == "checkpoint"]
    names = [Path(record["path"]).name for record in records]
    assert len(set(names)) == len(names), "one was reported twice"
    return {name: record["step"] for name, record in zip(names, records, strict=True)}


def rig(where: Context) -> Rig:
    return Rig(lambda: ReportCollector({}, where))


def test_checkpoints_are_found_by_what_libraries_call_them(tmp_path: Path) -> None:
    where = job(tmp_path)
    below = tmp_path / "checkpoints"
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        save(below / "checkpoint-16" / name)
    save(below / "checkpoint-16/model.safetensors", safetensors())
    save(tmp_path / "results/lightning_logs/version_0/checkpoints/epoch=2-step=300.ckpt")
    save(below / "model_007.pt")
    save(below / "epoch=03-val_loss=0.25.ckpt")
    save(below / "last.pt")
    save(below / "4/_CHECKPOINT_METADATA", b"{}")
    save(below / "4/state/array.bin", b"1")
    save(below / "model-05.keras")
    save(below / "global_step30/mp_rank_00_model_states.pt")
    one = rig(where)
    one.step()
    one.finish()

    assert found(one) == {
        "checkpoint-16": 16,
        "epoch=2-step=300.ckpt": 300,
        "model_007.pt": 7,
        "epoch=03-val_loss=0.25.ckpt": 3,
        "last.pt": None,
        "4": 4,
        "model-05.keras": 5,
        "global_step30": 30,
    }
    metrics = {Path(record["path"]).name: record["metrics"] for record in one.written if "metrics" in record}
    assert metrics["epoch=03-val_loss=0.25.ckpt"] == {"val_loss": 0.25}


@pytest.mark.parametrize(
    "name", ["resnet50.pth", "yolov8n.pt", "model-00001-of-00002.safetensors", "weights.pt", "epoch-1.pt.tmp",
             ".step-1.pt", "tmp-checkpoint-3/a.pt", "data-1/readme.txt", "5/readme.txt"]
)  # fmt: skip
def test_what_is_no_checkpoint_is_left_alone(tmp_path: Path, name: str) -> None:
    where = job(tmp_path)
    save(tmp_path / "checkpoints" / name)
    one = rig(where)
    one.step()
    one.finish()

    assert found(one) == {}


def test_one_that_is_cut_off_is_no_checkpoint(tmp_path: Path) -> None:
    where = job(tmp_path)
    half, whole = save(tmp_path / "checkpoints/step-1.pt", torch_file()[:400]), torch_file()
    save(tmp_path / "checkpoints/checkpoint-2/model.safetensors", safetensors()[:-4])
    one = rig(where)
    one.step()
    assert found(one) == {}
    half.write_bytes(whole)
    one.step()
    one.finish()

    assert found(one) == {"step-1.pt": 1}


def test_one_that_is_still_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_checkpoints, "QUIET_SECONDS", 3600.0)
    where = job(tmp_path)
    save(tmp_path / "checkpoints/step-1.pt")
    one = rig(where)
    one.step()
    assert found(one) == {}
    assert one.collector.waiting
    one.finish()

    assert found(one) == {"step-1.pt": 1}


def test_what_the_code_reports_itself_is_not_found_again(tmp_path: Path) -> None:
    where = job(tmp_path)
    report = Path(where.learner_dir) / "report.jsonl"
    mine = save(tmp_path / "checkpoints/step-1.pt")
    save(tmp_path / "checkpoints/whole/step-2.pt")
    now_us = int(2e15)
    report.write_text(
        "".join(
            json.dumps({"kind": "checkpoint", "path": str(path), "step": 9, "time": now_us}) + "\n"
            for path in (mine, tmp_path / "checkpoints/whole")
        )
    )
    one = rig(where)
    one.step()
    one.finish()

    assert found(one) == {"step-1.pt": 9, "whole": 9}


def test_of_files_of_one_instant_the_one_without_a_number_is_the_newest(tmp_path: Path) -> None:
    where = job(tmp_path)
    names = ("best.pt", "epoch-9.pt", "last.pt", "epoch-10.pt")
    files = [save(tmp_path / "checkpoints" / name) for name in names]
    older = save(tmp_path / "checkpoints/latest.pt")
    instant_ns = older.stat().st_mtime_ns
    for file in files:
        os.utime(file, ns=(instant_ns, instant_ns))
    os.utime(older, ns=(instant_ns - 10**9, instant_ns - 10**9))
    one = rig(where)
    one.step()
    one.finish()

    assert list(found(one)) == ["latest.pt", "epoch-9.pt", "epoch-10.pt", "best.pt", "last.pt"]


def test_its_time_is_when_it_was_written_though_it_is_found_later(tmp_path: Path) -> None:
    where = job(tmp_path)
    saved_us = where.begin_us() + 3_000_000
    path = save(tmp_path / "checkpoints/step-8.pt")
    os.utime(path, ns=(saved_us * 1000, saved_us * 1000))
    ahead = save(tmp_path / "checkpoints/step-16.pt")
    os.utime(ahead, (4e9, 4e9))

    one = rig(where)
    one.finish()

    times = {record["step"]: record["time"] for record in one.written if record["kind"] == "checkpoint"}
    assert 0 <= times[8] - saved_us <= 10_000
    assert times[16] < 4e15, "no time is ahead of this machine's"


def test_a_restarted_agent_finds_none_again(tmp_path: Path) -> None:
    where = job(tmp_path)
    one = rig(where)
    for step in range(1, 5):
        save(tmp_path / f"checkpoints/step-{step}.pt")
        one.step(lost=step % 2)
        one.kill()
        one.step()
    one.finish()

    assert found(one) == {f"step-{step}.pt": step for step in range(1, 5)}


def test_one_that_was_there_before_is_not_the_attempts(tmp_path: Path) -> None:
    where = job(tmp_path)
    old = save(tmp_path / "checkpoints/step-1.pt")
    Path(where.learner_dir, "launch.json").write_text("{}")
    begin = Path(where.learner_dir, "launch.json").stat().st_mtime_ns
    os.utime(old, ns=(begin - 10**9, begin - 10**9))
    save(tmp_path / "checkpoints/step-2.pt")
    one = rig(where)
    one.step()
    one.finish()

    assert found(one) == {"step-2.pt": 2}


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    where: Any = job(tmp_path)
    outside = save(tmp_path / "outside/step-1.pt")
    (tmp_path / "checkpoints/step-1.pt").symlink_to(outside)
    (tmp_path / "checkpoints/checkpoint-3").symlink_to(outside.parent)
    one = rig(where)
    one.step()
    one.finish()

    assert found(one) == {}
