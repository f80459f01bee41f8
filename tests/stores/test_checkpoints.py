"""Checkpoints in a result store: marked, kept by policy, and brought back wherever a job goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.real_jobs import Ground
from tests.support.store_servers import KEY, SECRET, Server
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller
from workbench.controller.client.requests import ask
from workbench.job import State
from workbench.metrics import checkpoints
from workbench.spec import Checkpoints, CheckpointsAtEnd
from workbench.store.db.rows import TargetRef

SAVE = """
import os, sys, time
from fabric_learner import checkpoint
folder = os.environ['CHECKPOINT_DIR']
before = sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
print('found', before, flush=True)
start = int(before[-1].split('-')[1]) if before else 0
for step in range(start + 1, start + 4):
    path = os.path.join(folder, 'step-%03d' % step)
    os.makedirs(path)
    with open(os.path.join(path, 'weights'), 'w') as file:
        file.write('w%d' % step)
    checkpoint(path, step=step, metrics={'loss': 1.0 / step}, note='mine')
    time.sleep(0.01)
print('saved', flush=True)
if 'stay' in sys.argv:
    time.sleep(600)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    """A training script that saves three checkpoints behind those that it finds."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "save.py").write_text(SAVE)
    yield str(folder / "save.py")


def mark_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "metadata.json").read_text())
    return found


def test_a_reported_checkpoint_is_stored_with_a_mark_that_says_what_it_is(
    ground: Ground, s3: Server, program: str
) -> None:
    job_id = ground.submit(f"{sys.executable} {program}", data_stores=(s3.store(),), params={"lr": 0.5})
    assert ground.ends(job_id).state is State.COMPLETED

    stored = s3.results(job_id) / "_checkpoints"
    assert sorted(path.name for path in stored.iterdir()) == ["step-001", "step-002", "step-003"]
    mark = mark_of(stored / "step-002")
    assert (mark["job"], mark["step"], mark["metrics"], mark["params"]) == (
        job_id,
        2,
        {"loss": 0.5},
        {"lr": 0.5},
    )
    assert mark["metadata"] == {"note": "mine"}
    assert mark["files"]["weights"]["size_bytes"] == 2
    assert mark["manifest"]["data_stores"][0]["training_data"] == "tf_training_data"
    assert SECRET not in json.dumps(mark)
    rows = [row for row in checkpoints(ground.store, job_id) if row.step == 2]
    assert [row.metadata["sha256"] for row in rows] == [mark["sha256"]]


def test_the_newest_and_the_best_are_kept_here_and_in_the_store(
    ground: Ground, s3: Server, program: str
) -> None:
    keep = Checkpoints(keep_last=1, keep_best=1, metric="loss", smaller_is_better=False)
    job_id = ground.submit(f"{sys.executable} {program}", data_stores=(s3.store(),), checkpoints=keep)
    ground.ends(job_id)

    here = ground.home.job(job_id).checkpoints
    assert sorted(path.name for path in here.iterdir()) == ["step-001", "step-003"]
    stored = s3.results(job_id) / "_checkpoints"
    assert sorted(path.name for path in stored.iterdir()) == ["step-001", "step-003"]


def test_what_is_not_kept_at_the_end_goes_here_and_from_the_store(
    ground: Ground, s3: Server, program: str
) -> None:
    at_end = CheckpointsAtEnd(keep_last=0, keep_best=1)
    keep = Checkpoints(keep_last=1, keep_best=2, metric="loss", smaller_is_better=False, at_end=at_end)
    job_id = ground.submit(f"{sys.executable} {program}", data_stores=(s3.store(),), checkpoints=keep)
    ground.ends(job_id)

    folders = (ground.home.job(job_id).checkpoints, s3.results(job_id) / "_checkpoints")

    def left() -> list[str]:
        return [path.name for folder in folders for path in folder.iterdir()]

    until(lambda: left() == ["step-001", "step-001"], "the best alone to be left")


def test_shared_checkpoints_are_ffdls_folder_of_the_whole_container(
    ground: Ground, s3: Server, program: str
) -> None:
    shared = Checkpoints(shared=True)
    first = ground.submit(f"{sys.executable} {program}", data_stores=(s3.store(),), checkpoints=shared)
    ground.ends(first)
    second = ground.submit(f"{sys.executable} {program}", data_stores=(s3.store(),), checkpoints=shared)
    ground.ends(second)

    assert "found ['step-001', 'step-002', 'step-003']" in ground.output(second)
    stored = s3.folder / "tf_trained_model" / "_wml_checkpoints"
    assert sorted(path.name for path in stored.iterdir())[-1] == "step-006"


def test_a_job_halted_here_goes_on_over_ssh_from_its_checkpoint(
    own_ground: Ground, box: Box, s3: Server
) -> None:
    program = Path(box.user.home) / "save.py"
    program.write_text(SAVE)
    program.chmod(0o644)
    job_id = own_ground.submit(
        f"python3 {program} stay; echo late >$RESULT_DIR/late", data_stores=(s3.store(),), upload_seconds=0.5
    )
    own_ground.prints(job_id, "saved")
    until((s3.results(job_id) / "_checkpoints" / "step-003" / "metadata.json").exists)
    # Half a checkpoint: it was never reported, and must not be gone on from.
    s3.write(f"tf_trained_model/{job_id}/_checkpoints/step-004/weights", "half")
    own_ground.ask(job_id, "halt")
    own_ground.ends(job_id)
    target = TargetRef("box", "ssh", "process", address=box.address)
    ask(own_ground.store, job_id, "resume", origin="test", payload={"place": vars_of(target)})
    ensure_controller(own_ground.home)

    own_ground.prints(job_id, "saved", attempt=2)
    assert "found ['step-001', 'step-002', 'step-003']" in own_ground.output(job_id, attempt=2)
    assert own_ground.row(job_id).target == target
    own_ground.ask(job_id, "halt")
    own_ground.ends(job_id, attempt=2)
    stored = s3.results(job_id) / "_checkpoints"
    assert mark_of(stored / "step-006")["attempt"] == 2
    assert (s3.results(job_id) / "learner-1" / "attempt-2" / "output.log").exists()


def vars_of(target: TargetRef) -> dict[str, Any]:
    return {name: getattr(target, name) for name in ("backend", "type", "runner", "address")}


def test_a_new_job_begins_with_a_checkpoint_of_another_one(
    own_ground: Ground, s3: Server, program: str, fabric: Fabric
) -> None:
    (fabric.folder / "manifest.yml").write_text(
        "name: second\nupload_seconds: 0\n"
        f"framework: {{command: {sys.executable} {program}}}\n"
        "data_stores:\n  - id: sl-internal-os\n    type: mount_cos\n"
        "    training_data: {container: tf_training_data}\n    training_results: {container: tf_trained_model}\n"
        f"    connection: {{auth_url: '{s3.address}', user_name: {KEY}, password: {SECRET}}}\n"
    )
    first = fabric("run", "manifest.yml", "--runner", "process", "--name", "first")
    second = fabric("run", "manifest.yml", "--runner", "process", "--from", "first@2")
    local = fabric("run", "--runner", "process", "--from", "first", "--", sys.executable, program)

    assert "found []" in first.stdout
    assert "found ['step-002']" in second.stdout
    assert "found ['step-003']" in local.stdout
    wrong = fabric("run", "manifest.yml", "--runner", "process", "--from", "first@9", expect=64)
    assert "has no checkpoint of step 9" in wrong.stderr
    assert "those of 1, 2, 3" in wrong.stderr
