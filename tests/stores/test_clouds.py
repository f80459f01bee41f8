"""Stores that are no S3: OpenStack's Swift itself, and Google's by an emulator. Azure's are only configured."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.stores import swift as openstack
from tests.support.real_jobs import Ground
from tests.support.store_servers import free_port
from tests.support.waiting import patience, until
from workbench.data.stores.rclone import find_rclone
from workbench.job import State
from workbench.spec import DataStore

pytestmark = pytest.mark.soak(
    "stores of other clouds; the gate runs S3, SFTP, WebDAV and HTTP, and makes every type's settings for rclone"
)

Rclone = Callable[..., subprocess.CompletedProcess[bytes]]


def rclone_of(remote: Mapping[str, str]) -> Rclone:
    """Return rclone with one remote, ``X:``."""
    environment = {"PATH": os.environ["PATH"], "RCLONE_CONFIG": ""}
    environment |= {f"RCLONE_CONFIG_X_{name.upper()}": value for name, value in remote.items()}

    def rclone(*args: str, input: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        argv = [find_rclone().path, *args, "--retries", "1", "--low-level-retries", "1"]
        return subprocess.run(
            argv, input=input, env=environment, capture_output=True, check=check, timeout=patience()
        )

    return rclone


def until_it_answers(rclone: Rclone, *args: str) -> None:
    until(lambda: rclone(*args, check=False).returncode == 0, f"{args} to be answered", every=0.1)


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Rclone]]:
    """Swift, as a connection and as rclone has it."""
    server = openstack.Swift(tmp_path_factory.mktemp("swift"))
    connection = {"auth_url": server.address, "user_name": openstack.USER, "password": openstack.KEY}
    remote = {"type": "swift", "user": openstack.USER, "key": openstack.KEY, "auth": server.address}
    rclone = rclone_of({**remote, "auth_version": "1"})
    try:
        server.start()
        until_it_answers(rclone, "mkdir", "X:training")
        rclone("mkdir", "X:results")
        copied = tmp_path_factory.mktemp("train") / "train.txt"
        copied.write_text("swift\n")
        # The server of objects may be the last to answer.
        until_it_answers(rclone, "copyto", str(copied), "X:training/sub/train.txt")
        yield connection, rclone
    finally:
        server.stop()


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Rclone]]:
    """An emulator of Google's storage, which lets everybody in."""
    program = shutil.which("gcp-storage-emulator")
    if program is None:
        pytest.skip("gcp-storage-emulator is not installed")
    port = free_port()
    server = subprocess.Popen(
        [program, "start", "--host", "127.0.0.1", "--port", str(port), "--default-bucket", "training", "-q", "-M"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        cwd=tmp_path_factory.mktemp("google"),
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    remote = {"type": "google cloud storage", "anonymous": "true", "endpoint": address}
    rclone = rclone_of({**remote, "project_number": "1234", "bucket_policy_only": "true"})
    try:
        until_it_answers(rclone, "lsf", "X:training")
        rclone("mkdir", "X:results")
        rclone("rcat", "X:training/sub/train.txt", input=b"google\n")
        yield {"auth_url": address, "project_id": "1234"}, rclone
    finally:
        server.kill()
        server.wait()


@pytest.fixture(params=["swift", "google"])
def cloud(request: pytest.FixtureRequest) -> tuple[str, dict[str, str], Rclone]:
    """One of them, with the type that a manifest gives it."""
    connection, rclone = request.getfixturevalue(request.param)
    return {"swift": "softlayer_objectstore", "google": "gcs"}[request.param], connection, rclone


def store_of(cloud: tuple[str, dict[str, str], Rclone], **fields: Any) -> DataStore:
    kind, connection, _ = cloud
    containers = {"training_data": "training", "training_results": "results", **fields}
    return DataStore(
        id="cloud", type=kind, connection={**connection, **containers.pop("connection", {})}, **containers
    )


def test_data_comes_and_results_go(ground: Ground, cloud: tuple[str, dict[str, str], Rclone]) -> None:
    job_id = ground.submit(
        "cat $DATA_DIR/sub/train.txt; mkdir $RESULT_DIR/d; echo m >$RESULT_DIR/d/m;"
        " head -c 9000000 /dev/zero >$RESULT_DIR/big",
        data_stores=(store_of(cloud),),
    )  # fmt: skip
    row = ground.reaches(job_id, State.COMPLETED, State.FAILED)

    assert row.state is State.COMPLETED, row.reason
    assert ground.output(job_id) in ("swift\n", "google\n")
    rclone = cloud[2]
    listed = rclone("lsf", "-R", "--files-only", f"X:results/{job_id}").stdout.decode().split()
    assert {"d/m", "big", "learner-1/output.log"} <= set(listed)
    assert rclone("cat", f"X:results/{job_id}/d/m").stdout == b"m\n"
    assert len(rclone("cat", f"X:results/{job_id}/big").stdout) == 9_000_000


def test_a_container_that_is_not_there_is_named(
    ground: Ground, cloud: tuple[str, dict[str, str], Rclone]
) -> None:
    row = ground.ends(ground.submit("true", data_stores=(store_of(cloud, training_data="nope"),)))

    assert (row.state, row.reason.code) == (State.FAILED, "C103"), row.reason
    assert "has no container nope" in row.reason.text
    assert "training" in row.reason.hint


def test_a_wrong_key_of_swifts_is_reported(ground: Ground, swift: tuple[dict[str, str], Rclone]) -> None:
    store = store_of(("softlayer_objectstore", *swift), connection={"password": "wrong"})
    row = ground.ends(ground.submit("true", data_stores=(store,)))

    assert (row.state, row.reason.code) == (State.FAILED, "C103"), row.reason
    assert "does not accept the credentials" in row.reason.text
