"""Rounds of harm to data stores of pods: results are complete or named as missing, whole, and stored once.

Each round runs five jobs at once, does every harm to their store and one to each of four jobs, at random instants.
``--chaos-rounds 200`` does as many rounds.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.kubernetes.harms import Harm, delete_pod, do_to, kill_container, pods_of
from tests.kubernetes.stores import host_for
from tests.stores.small_disks import SmallDisk, fill
from tests.stores.small_disks import small_disk as small_disk
from tests.stores.test_harm import half_files
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.controllers import answers, kill
from tests.support.pod_images import DEBIAN
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server, serving
from workbench.controller.client.connect import ensure_controller
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

MODEL_BYTES = 2 << 20
COMMAND = "cp $DATA_DIR/big.bin $RESULT_DIR/model.bin; sleep 2; echo trained"
ROUNDS = 2
AWAY_SECONDS = 1.0
"""For how long a store is away, its keys are withdrawn, or its disk is full."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the store says of uploads."""
    return tmp_path / "store.log"


@pytest.fixture
def store(tmp_path: Path, space: Space, small_disk: SmallDisk, log: Path) -> Iterator[Server]:
    """S3 on a small disk, no faster than a slow line, for pods to reach."""
    args = ("--bwlimit", "8M", "-v", "--log-file", str(log))
    yield from serving("s3", small_disk(tmp_path / "store", 128), *args, host=host_for(space))


@pytest.fixture
def ground(space: Space, home: Home) -> Iterator[Ground]:
    options = {"default_memory": "200Mi", "kubeconfig": str(space.kubeconfig)}
    ground = Ground(home, TargetRef("stored", "kubernetes", "pod", space.address, options))
    yield ground
    ground.clean_up()


def _kill_movers(space: Space, job_id: str) -> None:
    """Kill what copies a job's data and results: processes of its pods, which the node that tests run on shows."""
    uids = [str(each["metadata"]["uid"]) for each in pods_of(space, job_id)]
    ours = Path("/proc/self/ns/mnt").readlink()
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "rclone":
            with suppress(OSError, psutil.Error):
                folder = Path(f"/proc/{process.pid}")
                mounts = (folder / "mountinfo").read_text()
                # This machine has the pods' folders, too.
                if (folder / "ns" / "mnt").readlink() != ours and any(uid in mounts for uid in uids):
                    os.kill(process.pid, signal.SIGKILL)


def _none(space: Space, job_id: str) -> None:
    """Leave it alone: what is done to the store is harm enough."""


JOB: Mapping[str, Harm] = {
    "what copies for it is killed": Harm(_kill_movers),
    "its side-car is killed": Harm(kill_container("journal")),
    "its learner is killed": Harm(kill_container("learner")),
    "its pod is deleted": Harm(delete_pod),
    "nothing": Harm(_none),
}


def _kill_store(store: Server) -> None:
    store.stop()
    time.sleep(AWAY_SECONDS)
    store.start()


def _withdraw_keys(store: Server) -> None:
    store.ask_other_keys()
    time.sleep(AWAY_SECONDS)
    store.stop()
    store.start()


def _fill_store(store: Server) -> None:
    filler = fill(store.folder)
    time.sleep(AWAY_SECONDS)
    filler.unlink()


STORE: Mapping[str, Callable[[Server], None]] = {
    "the store is killed": _kill_store,
    "its keys are withdrawn": _withdraw_keys,
    "its disk is full": _fill_store,
}
CONTROLLER_KILLED = "fabric's controller is killed"


@pytest.mark.soak(
    "random harm to stores of pods; the gate does each once, in test_pod_stores and stores/test_harm"
)
@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_whatever_is_harmed_results_of_pods_are_complete_or_named_and_stored_once(
    ground: Ground,
    space: Space,
    store: Server,
    log: Path,
    fabric: Fabric,
    chaos_rounds: int | None,
    note_harm: Callable[[str], None],
) -> None:
    content = random.Random(7).randbytes(MODEL_BYTES)
    store.write("tf_training_data/big.bin", content)
    for seed in range(chaos_rounds or ROUNDS):
        dice = random.Random(seed)
        jobs = {
            name: ground.submit(
                COMMAND,
                image=DEBIAN,
                data_stores=(store.store(),),
                max_platform_restarts=3,
                upload_seconds=0.3,
            )
            for name in JOB
        }
        for kind in (
            *STORE,
            *(name for name, harm in JOB.items() if harm.do is not _none),
            CONTROLLER_KILLED,
        ):
            note_harm(kind)
        _harm(dice, ground, space, store, jobs)
        for name, job_id in jobs.items():
            try:
                _judge(ground, store, log, fabric, job_id, content)
            except AssertionError as error:
                raise AssertionError(f"round {seed}, {name}: {ground.row(job_id)}") from error
            ground.ask(job_id, "delete")


def _harm(dice: random.Random, ground: Ground, space: Space, store: Server, jobs: Mapping[str, str]) -> None:
    """Do all of it, each at an instant of its own from the jobs' launch on."""
    instants = sorted((dice.uniform(2.0, 14.0), name) for name in JOB)
    started = time.monotonic()
    troubles: list[BaseException] = []

    def harm_jobs() -> None:
        try:
            for instant, name in instants:
                time.sleep(max(0.0, started + instant - time.monotonic()))
                print(f"at {time.monotonic() - started:.1f} s: {jobs[name]}: {name}", flush=True)
                do_to(space, JOB[name], jobs[name])
        except BaseException as error:
            troubles.append(error)

    thread = threading.Thread(target=harm_jobs)
    thread.start()
    for name in sorted(STORE, key=lambda _: dice.random()):
        time.sleep(dice.uniform(1.0, 4.0))
        print(f"at {time.monotonic() - started:.1f} s: {name}", flush=True)
        STORE[name](store)
    kill(answers(ground.home).pid)
    ensure_controller(ground.home)
    thread.join()
    assert not troubles, troubles


def _judge(ground: Ground, store: Server, log: Path, fabric: Fabric, job_id: str, content: bytes) -> None:
    row = ground.reaches(job_id, State.COMPLETED, State.FAILED, seconds=180)
    print(f"{job_id}: {row.state} {row.reason} after {row.attempt} attempts", flush=True)
    there = store.results(job_id) / "model.bin"
    if row.state is State.FAILED:
        assert row.reason.code, "no reason is given"
        if row.reason.code == "S303":
            assert "not stored" in row.reason.text
            fabric("store", "retry", job_id)
            row = ground.row(job_id)
    if row.state is State.COMPLETED:
        assert there.read_bytes() == content
        own = store.results(job_id) / "learner-1" / (f"attempt-{row.attempt}" if row.attempt > 1 else "")
        assert (own / "output.log").read_text() == "trained\n"
    elif there.exists():
        assert there.read_bytes() == content, "a half file has its final name"
    assert half_files(store.folder) == []
    taken = log.read_text().count(f"to: tf_trained_model/{job_id}/model.bin")
    assert taken <= row.attempt, f"model.bin was stored {taken} times in {row.attempt} attempts"
