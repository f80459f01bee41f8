"""Stores of other kinds than rclone's own S3, names that are hostile, and data that is mounted."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_jobs import Ground
from tests.support.store_servers import Server, free_port, serving
from tests.support.waiting import until
from workbench.job import State
from workbench.learner.stores.mount import missing_support
from workbench.metrics import notes
from workbench.spec import DataStore


@pytest.fixture
def sftp(tmp_path: Path) -> Iterator[Server]:
    """SFTP over a folder, with a host key of its own."""
    key = tmp_path / "host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    yield from serving("sftp", tmp_path / "sftp", "--key", str(key))


def known_hosts(server: Server, folder: Path) -> str:
    """Return a file with the server's own key."""
    public = (server.folder.parent / "host_key.pub").read_text().split()[:2]
    file = folder / "known_hosts"
    file.write_text(f"[127.0.0.1]:{server.port} {' '.join(public)}\n")
    return str(file)


def test_webdav_gives_data_and_takes_results(ground: Ground, tmp_path: Path) -> None:
    for server in serving("webdav", tmp_path / "dav"):
        job_id = ground.submit(
            "cat $DATA_DIR/train.txt; echo m >$RESULT_DIR/m", data_stores=(server.store(),)
        )
        row = ground.ends(job_id)

        assert row.state is State.COMPLETED, row.reason
        assert ground.output(job_id) == "one\ntwo\n"
        assert (server.results(job_id) / "m").read_text() == "m\n"


def test_sftp_gives_data_and_takes_results_of_a_machine_that_is_known(
    ground: Ground, sftp: Server, tmp_path: Path
) -> None:
    store = sftp.store(connection={"known_hosts": known_hosts(sftp, tmp_path)})
    job_id = ground.submit("cat $DATA_DIR/sub/more.txt; echo m >$RESULT_DIR/m", data_stores=(store,))
    row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert ground.output(job_id) == "three\n"
    assert (sftp.results(job_id) / "m").exists()


def test_a_machine_that_is_not_known_is_not_believed(ground: Ground, sftp: Server, tmp_path: Path) -> None:
    (tmp_path / "nobody").write_text("")
    store = sftp.store(connection={"known_hosts": str(tmp_path / "nobody")})
    row = ground.ends(ground.submit("true", data_stores=(store,)))

    assert (row.state, row.reason.code) == (State.FAILED, "C103")
    assert "is not known" in row.reason.text


def listens(port: int) -> bool:
    """Say whether somebody answers at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_http_is_read(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "www" / "set").mkdir(parents=True)
    (tmp_path / "www" / "set" / "x.txt").write_text("web\n")
    port = free_port()
    server = subprocess.Popen(
        ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(tmp_path / "www")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        store = DataStore(
            id="web", type="http", training_data="set", connection={"auth_url": f"http://127.0.0.1:{port}"}
        )
        until(lambda: listens(port), lambda: f"nobody answers at port {port}")
        job_id = ground.submit("cat $DATA_DIR/x.txt", data_stores=(store,))
        row = ground.ends(job_id)
    finally:
        server.kill()
        server.wait()

    assert row.state is State.COMPLETED, row.reason
    assert ground.output(job_id) == "web\n"


def test_a_folder_of_this_machine_is_not_copied(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "base" / "set").mkdir(parents=True)
    (tmp_path / "base" / "set" / "x.txt").write_text("here\n")
    store = DataStore(
        id="here",
        type="host_path",
        training_data="set",
        training_results="out",
        connection={"path": str(tmp_path / "base")},
    )
    copies = sorted(ground.home.data.rglob("*"))
    job_id = ground.submit("echo $DATA_DIR; cat $DATA_DIR/x.txt; echo m >$RESULT_DIR/m", data_stores=(store,))
    row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert ground.output(job_id) == f"{tmp_path}/base/set\nhere\n"
    assert (tmp_path / "base" / "out" / job_id / "m").read_text() == "m\n"
    assert (tmp_path / "base" / "out" / job_id / "learner-1" / "output.log").exists()
    assert sorted(ground.home.data.rglob("*")) == copies


def test_hostile_names_of_objects_stay_in_their_folder(ground: Ground, s3: Server) -> None:
    for name in ("Case.txt", "case.txt", "with blank ", "-rf", "ünïcode", "a" * 200, "...", "$(touch x)"):
        s3.write(f"tf_training_data/odd/{name}", name)
    job_id = ground.submit("ls -A $DATA_DIR | wc -l; cat $DATA_DIR/-rf", data_stores=(s3.store(path="odd"),))
    row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert ground.output(job_id) == "8\n-rf"


def test_results_of_any_name_are_stored_and_links_go_as_links(ground: Ground, s3: Server) -> None:
    job_id = ground.submit(
        "cd $RESULT_DIR; echo 1 >'two words '; echo 2 >-n;"
        " printf x >\"$(printf 'new\\nline')\"; : >\"$(printf 'no\\377text')\"; mkdir -p d/e;"
        " echo 3 >d/e/f; ln -s d/e/f latest; ln -s /etc/passwd outside; mkfifo pipe",
        data_stores=(s3.store(),),
    )
    row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    stored = s3.results(job_id)
    assert (stored / "two words ").read_text() == "1\n"
    assert (stored / "-n").read_text() == "2\n"
    assert (stored / "d" / "e" / "f").read_text() == "3\n"
    assert (stored / "latest.rclonelink").read_text() == "d/e/f"
    assert (stored / "outside.rclonelink").read_text() == "/etc/passwd"
    assert (stored / "new\nline").read_text() == "x"
    assert any("text" in path.name for path in stored.iterdir())


def test_data_that_is_to_be_mounted_is_mounted_and_gone_afterwards(ground: Ground, s3: Server) -> None:
    if reason := missing_support():
        pytest.skip(reason)
    job_id = ground.submit(
        "echo $DATA_DIR; grep -c fuse /proc/mounts; cat $DATA_DIR/sub/more.txt",
        data_stores=(s3.store(mount=True),),
    )
    row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    point, mounts, content = ground.output(job_id).splitlines()
    assert int(mounts) >= 1
    assert content == "three"
    assert not os.path.ismount(point)
    assert point not in Path("/proc/mounts").read_text()


def test_an_empty_container_is_reported_and_is_an_empty_folder(ground: Ground, s3: Server) -> None:
    (s3.folder / "nothing").mkdir()
    job_id = ground.submit("ls -A $DATA_DIR | wc -l", data_stores=(s3.store(training_data="nothing"),))
    ground.ends(job_id)

    assert ground.output(job_id) == "0\n"
    assert any("holds no files" in note.text for note in notes(ground.store, job_id))


def test_data_that_changed_since_the_first_run_is_reported(ground: Ground, s3: Server) -> None:
    from workbench.data.stores.fingerprints import recorded_data

    first = ground.submit("true", data_stores=(s3.store(),))
    ground.ends(first)
    known = dict(recorded_data(ground.home.job(first), 1))
    assert set(known) == {"sl-internal-os"}
    s3.write("tf_training_data/train.txt", "other\n")
    again = ground.submit("true", data_stores=(s3.store(),), recorded={"data": known})
    ground.ends(again)

    assert any("is not what it was" in note.text for note in notes(ground.store, again))
