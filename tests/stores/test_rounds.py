"""Rounds of harm at random instants: results are complete or named as missing, whole, and stored once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.stores.small_disks import SmallDisk, fill
from tests.stores.test_harm import MEGABYTE, again, half_files, rclones_of, state_of
from tests.support.controllers import still_of
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server, serving
from workbench.controller.runtime.lock import read_lock
from workbench.job import State
from workbench.learner.stores.cache import evict

MODEL_BYTES = 2 * MEGABYTE
HARM_SECONDS = 1.0
"""For how long a store is away, or a disk full."""


@pytest.fixture
def ground(own_ground: Ground) -> Ground:
    """Real jobs in a home of the test's own: it is harmed."""
    return own_ground


class Round:
    """One job that gets data, makes results and has them stored, with one harm in it."""

    def __init__(self, ground: Ground, store: Server, disks: Sequence[Path]) -> None:
        self.ground = ground
        self.store = store
        self.disks = disks
        evict(str(ground.home.data), until=lambda _: False)  # so data is copied in each round
        self.job = ground.submit(
            f"head -c {MODEL_BYTES} /dev/urandom >$RESULT_DIR/model.bin; cat $DATA_DIR/big.bin | wc -c; sleep 0.3",
            data_stores=(store.store(),),
            max_platform_restarts=3,
            upload_seconds=0.3,
        )

    def kill_rclone(self) -> None:
        for pid in rclones_of(self.ground, self.job):
            kill(pid)

    def kill_agent(self) -> None:
        self._kill(state_of(self.ground, self.job).get("pid"))

    def kill_scribe(self) -> None:
        self._kill(state_of(self.ground, self.job).get("scribe_pid"))

    def kill_controller(self) -> None:
        found = read_lock(self.ground.home)
        self._kill(found.pid if found is not None else None)

    def _kill(self, named: int | None) -> None:
        if pid := still_of(self.ground.home.path, named):
            kill(pid)

    def kill_store(self) -> None:
        self.store.stop()
        time.sleep(HARM_SECONDS)
        self.store.start()

    def withdraw_keys(self) -> None:
        self.store.ask_other_keys()
        time.sleep(HARM_SECONDS)
        self.store.stop()
        self.store.start()

    def fill_host_disk(self) -> None:
        self._fill(self.disks[0])

    def fill_store(self) -> None:
        self._fill(self.disks[1])

    def _fill(self, disk: Path) -> None:
        filler = fill(disk)
        time.sleep(HARM_SECONDS)
        filler.unlink()


KINDS: Sequence[tuple[str, Callable[[Round], None]]] = (
    ("data mover killed", Round.kill_rclone),
    ("guard killed", Round.kill_agent),
    ("scribe killed", Round.kill_scribe),
    ("controller killed", Round.kill_controller),
    ("store away for a while", Round.kill_store),
    ("store's keys withdrawn for a while", Round.withdraw_keys),
    ("disk of the host full", Round.fill_host_disk),
    ("store's disk full", Round.fill_store),
)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the store says of uploads."""
    return tmp_path / "store.log"


@pytest.fixture
def store(tmp_path: Path, small_disk: SmallDisk, log: Path) -> Iterator[Server]:
    """S3 on a small disk, no faster than a slow line."""
    disk = small_disk(tmp_path / "store", 64)
    yield from serving("s3", disk, "--bwlimit", "4M", "-v", "--log-file", str(log))


@pytest.mark.chaos
@pytest.mark.soak(
    "rounds of harm; the gate kills, fills and withdraws once each in test_harm.py and test_full_disks.py"
)
@pytest.mark.timeout(3600)
def test_whatever_is_harmed_results_are_complete_or_named_and_stored_once(
    ground: Ground,
    store: Server,
    small_disk: SmallDisk,
    log: Path,
    chaos_rounds: int | None,
    note_harm: Callable[[str], None],
) -> None:
    store.write("tf_training_data/big.bin", random.Random(7).randbytes(MODEL_BYTES))
    disks = (small_disk(ground.home.data, 100), store.folder)
    for seed in range(chaos_rounds or 2 * len(KINDS)):
        kind, harm = KINDS[seed % len(KINDS)]
        one = Round(ground, store, disks)
        time.sleep(random.Random(seed).uniform(0.0, 2.5))  # the moment of the harm is the point
        note_harm(kind)
        harm(one)
        try:
            _judge(one, log)
        except AssertionError as error:
            raise AssertionError(f"round {seed}, {kind}: {ground.row(one.job)}") from error
        shutil.rmtree(store.results(one.job), ignore_errors=True)  # the disk is small


def _judge(one: Round, log: Path) -> None:
    ground, job_id = one.ground, one.job
    ground.ask(job_id, "submit")  # whoever looks next starts a controller again
    row = ground.reaches(job_id, State.COMPLETED, State.FAILED, seconds=120)
    here, there = ground.home.job(job_id).results / "model.bin", one.store.results(job_id) / "model.bin"
    if row.state is State.COMPLETED:
        assert len(here.read_bytes()) == MODEL_BYTES
        assert there.read_bytes() == here.read_bytes()
    elif here.exists() and not (there.exists() and there.read_bytes() == here.read_bytes()):
        summary = json.loads((ground.learner(job_id, row.attempt).path / "storing.json").read_text())
        assert str(here) in summary["missing"]
        if row.reason.code == "S303":
            assert all(retried["missing_files"] == 0 for retried in again(ground, job_id))
            assert there.read_bytes() == here.read_bytes()
    assert half_files(one.store.folder) == half_files(ground.home.data) == []
    # An attempt makes its results anew; each of them is taken by the store once.
    taken = log.read_text().count(f"to: tf_trained_model/{job_id}/model.bin")
    assert taken <= row.attempt, f"model.bin was stored {taken} times in {row.attempt} attempts"
