"""Disks that are full: of the host that data is copied to, and of the store that results go to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stores.small_disks import SmallDisk, fill
from tests.stores.test_harm import MEGABYTE, PATIENCE, SLOW, again, big, filling, half_files
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server, serving
from tests.support.waiting import until
from workbench.job import State
from workbench.paths import Home


@pytest.fixture
def ground(own_ground: Ground) -> Ground:
    """Real jobs in a home of the test's own: it fills the disk."""
    return own_ground


def test_data_that_does_not_fit_is_refused_before_it_is_copied(
    small_disk: SmallDisk, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big(s3, megabytes=40)
    home = small_disk(tmp_path / "small", 90) / "home"
    monkeypatch.setenv("FABRIC_HOME", str(home))
    ground = Ground(Home(home), own_agents=True)
    try:
        job_id = ground.submit("echo never", data_stores=(s3.store(),))
        row = ground.ends(job_id)
    finally:
        ground.clean_up()

    assert (row.state, row.reason.code) == (State.FAILED, "S204")
    assert "there is no room for the data: 40.0 MiB are needed" in row.reason.text


@pytest.mark.parametrize(
    "files", [1, pytest.param(24, marks=pytest.mark.soak("many files; the gate has one large file"))]
)
def test_a_disk_that_fills_up_while_data_is_copied_is_reported_and_no_half_file_is_left(
    files: int, small_disk: SmallDisk, ground: Ground, tmp_path: Path
) -> None:
    disk = small_disk(ground.home.data, 100)
    for slow in serving("s3", tmp_path / "slow", *SLOW):
        for number in range(files):
            slow.write(f"tf_training_data/{number}.bin", bytes(24 * MEGABYTE // files))
        job_id = ground.submit("echo never", data_stores=(slow.store(),))
        until(lambda: filling(ground))
        filler = fill(disk)
        row = ground.ends(job_id)

        assert (row.state, row.reason.code) == (State.FAILED, "S204")
        assert "the disk is full" in row.reason.text
        assert "free some space" in row.reason.hint
        assert ground.output(job_id) == ""
        assert half_files(disk) == []
        assert not list(disk.rglob("complete.json"))
        filler.unlink()
        again_id = ground.submit("cat $DATA_DIR/*.bin | wc -c", data_stores=(slow.store(),))
        assert ground.reaches(again_id, State.COMPLETED, State.FAILED).state is State.COMPLETED
        assert ground.output(again_id) == f"{24 * MEGABYTE}\n"


def test_a_store_whose_disk_is_full_keeps_no_half_file_and_takes_the_results_later(
    small_disk: SmallDisk, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, "1")
    disk = small_disk(tmp_path / "full", 8)
    for s3 in serving("s3", disk):
        job_id = ground.submit(
            f"head -c {4 * MEGABYTE} /dev/urandom >$RESULT_DIR/model.bin; echo up;"
            " while [ ! -e $LOG_DIR/go ]; do sleep 0.05; done",
            data_stores=(s3.store(),),
            upload_seconds=600.0,
        )
        ground.prints(job_id, "up")
        filler = fill(disk)
        (ground.home.job(job_id).attempt(1).logs / "go").touch()
        row = ground.reaches(job_id, State.COMPLETED, State.FAILED)

        model = ground.home.job(job_id).results / "model.bin"
        assert (row.state, row.reason.code) == (State.FAILED, "S303"), row.reason
        summary = json.loads((ground.learner(job_id).path / "storing.json").read_text())
        assert str(model) in summary["missing"]
        stored = s3.results(job_id) / "model.bin"
        assert not stored.exists() or stored.stat().st_size == 0, stored.stat()
        filler.unlink()
        (retried,) = again(ground, job_id)
        assert (retried["missing_files"], retried["reason"]) == (0, None)
        assert stored.read_bytes() == model.read_bytes()
