"""Stores that go away and come back, processes that are killed, disks that are full: complete, or named as missing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.interface import AttemptRef, LaunchRequest
from runners.process.runner import ProcessRunner
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server, serving
from tests.support.waiting import until
from workbench.controller.runtime.secrets import read_secrets
from workbench.data.stores.rclone import find_rclone
from workbench.job import State
from workbench.store.queries.jobs import detail

MEGABYTE = 1 << 20
SLOW = ("--bwlimit", "4M")
PATIENCE = "FABRIC_STORE_PATIENCE_SECONDS"
UNTIL_GO = "echo m >$RESULT_DIR/model.bin; echo up; while [ ! -e $LOG_DIR/go ]; do sleep 0.05; done"


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Server]:
    """S3 that gives and takes four megabytes a second."""
    yield from serving("s3", tmp_path / "slow", *SLOW)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away is given up soon."""
    monkeypatch.setenv(PATIENCE, "1")


def big(server: Server, megabytes: int = 8) -> bytes:
    content = random.Random(7).randbytes(megabytes * MEGABYTE)
    server.write("tf_training_data/big.bin", content)
    return content


def state_of(ground: Ground, job_id: str, attempt: int = 1) -> dict[str, Any]:
    file = ground.learner(job_id, attempt).state
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def go_on(ground: Ground, job_id: str) -> None:
    """Let a command end that waits for it."""
    (ground.home.job(job_id).attempt(1).logs / "go").touch()


def children_of(pid: int) -> list[int]:
    """Return the processes below one."""
    found, waiting = [], [pid]
    while waiting:
        pids = subprocess.run(["pgrep", "-P", str(waiting.pop())], capture_output=True, text=True).stdout
        waiting += [int(word) for word in pids.split()]
        found += [int(word) for word in pids.split()]
    return found


def rclones_of(ground: Ground, job_id: str) -> list[int]:
    """Return the data movers of a job's learner."""
    below = children_of(state_of(ground, job_id).get("pid") or -1)
    return [pid for pid in below if _name(pid) == "rclone"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def filling(ground: Ground) -> bool:
    """Say whether data is being copied in just now."""
    return any(_size(path) for path in ground.home.data.rglob("*.partial"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it is whole by now, and has its own name
        return 0


def half_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".partial")]


def test_a_store_that_is_killed_while_data_is_copied_and_comes_back_gives_it_all(
    ground: Ground, slow: Server
) -> None:
    content = big(slow)
    job_id = ground.submit(
        "sha256sum <$DATA_DIR/big.bin; echo ok >$RESULT_DIR/ok", data_stores=(slow.store(),)
    )
    until(lambda: filling(ground))
    slow.stop()
    until(lambda: "retrying" in ground.row(job_id).reason.text, lambda: str(ground.row(job_id)))
    slow.start()

    row = ground.reaches(job_id, State.COMPLETED, State.FAILED, seconds=90)

    import hashlib

    assert row.state is State.COMPLETED, row.reason
    assert hashlib.sha256(content).hexdigest() in ground.output(job_id)
    assert half_files(ground.home.data) == []


def test_a_store_that_is_killed_while_results_are_stored_and_comes_back_has_them_all(
    ground: Ground, slow: Server
) -> None:
    command = f"head -c {8 * MEGABYTE} /dev/urandom >$RESULT_DIR/model.bin; sha256sum <$RESULT_DIR/model.bin"
    job_id = ground.submit(command, data_stores=(slow.store(),))
    ground.reaches(job_id, State.STORING)
    slow.stop()
    until(lambda: "retrying" in ground.row(job_id).reason.text, lambda: str(ground.row(job_id)))
    slow.start()

    row = ground.reaches(job_id, State.COMPLETED, State.FAILED, seconds=90)

    assert row.state is State.COMPLETED, row.reason
    stored = slow.results(job_id)
    assert (stored / "model.bin").read_bytes() == (ground.home.job(job_id).results / "model.bin").read_bytes()
    assert half_files(stored) == []


@pytest.mark.usefixtures("short_patience")
def test_results_of_a_store_that_stays_away_are_named_kept_and_stored_when_asked_again(
    own_ground: Ground, s3: Server
) -> None:
    job_id = own_ground.submit(UNTIL_GO, data_stores=(s3.store(),))
    own_ground.prints(job_id, "up")
    s3.stop()
    go_on(own_ground, job_id)

    row = own_ground.reaches(job_id, State.COMPLETED, State.FAILED)

    assert (row.state, row.reason.code) == (State.FAILED, "S303")
    assert f"fabric store retry {job_id}" in row.reason.hint
    summary = json.loads((own_ground.learner(job_id).path / "storing.json").read_text())
    model = own_ground.home.job(job_id).results / "model.bin"
    assert str(model) in summary["missing"]
    assert model.read_text() == "m\n"

    s3.start()
    (retried,) = again(own_ground, job_id)
    assert (retried["missing_files"], retried["reason"]) == (0, None)
    assert (s3.results(job_id) / "model.bin").read_text() == "m\n"


def again(ground: Ground, job_id: str) -> list[Any]:
    """Store once more what could not be stored."""
    whole = detail(ground.store, job_id)
    row = whole.row
    attempt = AttemptRef(ground.uuid, job_id, row.attempt, row.learners)
    host = LocalHost(ground.home)
    runner = ProcessRunner(host, home_uuid=ground.uuid)
    try:
        secrets = read_secrets(ground.home, job_id)
        return list(
            runner.retry_upload(LaunchRequest(attempt, whole.spec, row.owner, "", "", secrets=secrets))
        )
    finally:
        runner.close()
        host.close()


@pytest.mark.usefixtures("short_patience")
def test_credentials_that_are_withdrawn_in_mid_run_are_reported_and_nothing_is_lost(
    own_ground: Ground, s3: Server
) -> None:
    job_id = own_ground.submit(UNTIL_GO, data_stores=(s3.store(),))
    own_ground.prints(job_id, "up")
    s3.ask_other_keys()
    go_on(own_ground, job_id)
    row = own_ground.reaches(job_id, State.COMPLETED, State.FAILED)
    s3.stop()

    assert (row.state, row.reason.code) == (State.FAILED, "S303")
    assert "does not accept the credentials" in row.reason.text
    model = own_ground.home.job(job_id).results / "model.bin"
    summary = json.loads((own_ground.learner(job_id).path / "storing.json").read_text())
    assert str(model) in summary["missing"]
    assert not (s3.results(job_id) / "model.bin").exists()
    s3.start()
    (retried,) = again(own_ground, job_id)
    assert (retried["missing_files"], retried["reason"]) == (0, None)
    assert (s3.results(job_id) / "model.bin").read_text() == model.read_text() == "m\n"


def test_a_data_mover_that_is_killed_is_started_again(ground: Ground, slow: Server) -> None:
    big(slow)
    job_id = ground.submit("stat -c %s $DATA_DIR/big.bin", data_stores=(slow.store(),))
    until(lambda: filling(ground) and bool(rclones_of(ground, job_id)))
    for pid in rclones_of(ground, job_id):
        os.kill(pid, signal.SIGKILL)

    assert ground.reaches(job_id, State.COMPLETED, State.FAILED, seconds=90).state is State.COMPLETED
    assert ground.output(job_id) == f"{8 * MEGABYTE}\n"


def test_an_agent_that_is_killed_while_data_is_copied_costs_an_attempt_and_no_data(
    ground: Ground, slow: Server
) -> None:
    big(slow)
    job_id = ground.submit(
        "stat -c %s $DATA_DIR/big.bin", data_stores=(slow.store(),), max_platform_restarts=2
    )
    until(lambda: filling(ground))
    os.kill(state_of(ground, job_id)["pid"], signal.SIGKILL)

    row = ground.reaches(job_id, State.COMPLETED, seconds=90)

    assert row.attempt == 2
    assert ground.output(job_id, attempt=2) == f"{8 * MEGABYTE}\n"
    assert half_files(ground.home.data) == []


def test_results_are_stored_though_the_agent_was_killed(ground: Ground, s3: Server) -> None:
    job_id = ground.submit(
        "echo m >$RESULT_DIR/model.bin; echo up; sleep 600", data_stores=(s3.store(),), grace_seconds=1.0
    )
    ground.prints(job_id, "up")
    os.kill(state_of(ground, job_id)["pid"], signal.SIGKILL)

    row = ground.ends(job_id)

    assert (row.state, row.reason.code) == (State.FAILED, "S202")
    assert (s3.results(job_id) / "model.bin").read_text() == "m\n"
    assert (s3.results(job_id) / "learner-1" / "output.log").read_text() == "up\n"


KILLED_LATE = """\
#!/bin/sh
"{rclone}" "$@"
code=$?
case " $* " in
*" copy "*":tf_trained_model/training-"?????????" "*) [ -e {mark} ] || {{ touch {mark}; kill -KILL $$; }} ;;
esac
exit $code
"""


def test_what_was_sent_by_a_copy_that_was_killed_is_not_sent_again_by_another_process(
    own_ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, mark, program = tmp_path / "log", tmp_path / "killed", tmp_path / "rclone"
    program.write_text(KILLED_LATE.format(rclone=find_rclone().path, mark=mark))
    program.chmod(0o755)
    for s3 in serving("s3", tmp_path / "logged", "-v", "--log-file", str(log)):
        # The store itself is none of the copies: stopping their wrapper would leave it running.
        monkeypatch.setenv("FABRIC_RCLONE", str(program))
        # The first copy, beside the command, is killed; the last one is done by who keeps the learner.
        job_id = own_ground.submit(
            f"echo m >$RESULT_DIR/model.bin; while [ ! -e {mark} ]; do sleep 0.02; done",
            data_stores=(s3.store(),),
            upload_seconds=0.3,
        )
        row = own_ground.ends(job_id)

        assert row.state is State.COMPLETED, row.reason
        assert mark.exists()
        assert (s3.results(job_id) / "model.bin").read_text() == "m\n"
        assert log.read_text().count(f"to: tf_trained_model/{job_id}/model.bin") == 1


def test_a_kill_does_not_wait_for_the_storing(ground: Ground, slow: Server) -> None:
    job_id = ground.submit(
        f"head -c {40 * MEGABYTE} /dev/zero >$RESULT_DIR/model.bin", data_stores=(slow.store(),)
    )
    ground.reaches(job_id, State.STORING)
    ground.ask(job_id, "kill")

    row = ground.ends(job_id)

    assert row.state is State.HALTED
    assert "not stored" in row.reason.text and "fabric store retry" in row.reason.hint
    assert json.loads((ground.learner(job_id).path / "storing.json").read_text())["missing_files"] >= 1


def test_a_job_that_is_stopped_while_data_is_copied_ends_at_once(ground: Ground, slow: Server) -> None:
    big(slow, megabytes=60)
    job_id = ground.submit("echo never", data_stores=(slow.store(),))
    until(lambda: filling(ground))
    ground.ask(job_id, "halt")

    assert ground.ends(job_id).state is State.HALTED
    assert ground.output(job_id) == ""
