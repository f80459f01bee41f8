"""A home on a FUSE mount: it has no hard links, and the mount may end and come back while jobs run."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.support.command import WAITS, Fabric, until_runs
from tests.support.fuse import FuseMount, rclone_mount
from tests.support.processes import end_everything
from tests.support.waiting import patience
from workbench.job import State
from workbench.learner.host.unpack import unpack
from workbench.paths import Home
from workbench.services.transfer.extract import write_folder
from workbench.store.db.database import Store


@pytest.fixture
def mounted(fabric: Fabric, clean_environment: Path) -> Iterator[FuseMount]:
    with rclone_mount(clean_environment / "mnt") as mount:
        yield mount


@pytest.fixture
def fuse(mounted: FuseMount, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(mounted.point / "home")
    monkeypatch.setenv("FABRIC_HOME", str(home.path))
    yield home
    end_everything(home)


def test_a_job_runs_and_its_output_is_read(fabric: Fabric, fuse: Home) -> None:
    ran = fabric("run", "--", "echo hello; exit 3", expect=3)

    assert ran.stdout == "hello\n"
    assert fabric("logs", "@last").stdout == "hello\n"
    assert [one["state"] for one in fabric.json("list", "--json")] == ["FAILED"]


def test_a_job_runs_though_files_are_uploaded_before_the_agent_is_whole(
    fabric: Fabric, mounted: FuseMount, fuse: Home
) -> None:
    """On a busy machine that takes longer than the five seconds after which rclone uploads."""
    mounted.unmount()
    mounted.mount("--vfs-write-back", "10ms")

    assert fabric("run", "--", "echo hello").stdout == "hello\n"


def test_code_is_read_though_its_files_are_uploaded_before_their_folder_has_its_name(
    mounted: FuseMount, tmp_path: Path
) -> None:
    mounted.unmount()
    mounted.mount("--vfs-write-back", "10ms")
    files = {f"package/part{number}.py": f"number = {number}\n".encode() for number in range(200)}
    archive = tmp_path / "code.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    folder = mounted.point / "jobs" / "code"

    assert unpack(str(archive), str(folder))

    assert {name: (folder / name).read_bytes() for name in files} == files
    assert [path.name for path in folder.parent.iterdir()] == ["code"]


def test_a_folder_that_was_downloaded_to_a_mount_can_be_read(mounted: FuseMount) -> None:
    mounted.unmount()
    mounted.mount("--vfs-write-back", "10ms")
    files = {f"part{number}": f"{number}" for number in range(200)}

    def write(folder: Path) -> None:
        (folder / "deep").mkdir()
        for name, content in files.items():
            (folder / "deep" / name).write_text(content)

    for _ in range(2):
        target = write_folder(mounted.point / "results", write, force=True)

        assert {path.name: path.read_text() for path in (target / "deep").iterdir()} == files
    assert [path.name for path in mounted.point.iterdir()] == ["results"]


def test_a_job_is_halted_resumed_killed_and_deleted(fabric: Fabric, fuse: Home) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    until_runs(fabric)
    assert fabric("halt", "@last").stderr.endswith("HALTED\n")
    fabric("resume", "@last")
    until_runs(fabric)
    assert fabric("kill", "@last").stderr.endswith("HALTED\n")
    fabric("delete", "@last", "--yes")

    assert fabric.json("list", "--json") == []


def test_the_learner_that_fails_first_decides(fabric: Fabric, fuse: Home) -> None:
    (fabric.folder / "manifest.yml").write_text(
        "name: two\nlearners: 2\nframework: {name: custom, version: any, command: "
        "'[ $LEARNER_ID = 1 ] && exit 4; while :; do sleep 0.2; done'}\n"
    )

    fabric("run", "--runner", "process", "manifest.yml", expect=4)


def test_the_store_is_rebuilt_from_the_job_folders(fabric: Fabric, fuse: Home) -> None:
    fabric("run", "-q", "--", "true")
    fabric("controller", "stop")

    fabric("doctor", "--rebuild", "--yes")

    assert [one["state"] for one in fabric.json("list", "--json")] == ["COMPLETED"]
    assert len(list(fuse.path.glob("fabric.db.before-*"))) >= 1


GONE = "its file system is not there any more (transport endpoint is not connected)"
MOUNT_IT = "hint: mount it again, then try again; or FABRIC_HOME names another folder"


def test_what_has_to_do_with_jobs_says_that_the_mount_has_ended(
    fabric: Fabric, mounted: FuseMount, fuse: Home
) -> None:
    with Store.open(fuse) as store:
        add_job(store, "digits", State.COMPLETED)
    mounted.end()

    for words in ("list", "list --json", "show @last", "logs digits", "metrics digits", "status", "kill digits",
                  "run -- true", "delete digits --yes", "controller"):  # fmt: skip
        error, hint = fabric(*words.split(), expect=66).stderr.splitlines()[-2:]

        assert error.startswith(f"error: cannot read {fuse.path}")
        assert error.endswith(GONE)
        assert hint == MOUNT_IT


@pytest.mark.parametrize("words", ["run -- echo started; sleep 1000", "logs -f @last"])
def test_a_command_that_follows_a_job_says_that_the_mount_has_ended(
    fabric: Fabric, mounted: FuseMount, fuse: Home, words: str
) -> None:
    if words.startswith("logs"):
        fabric("run", "-q", "-d", "--", WAITS)
        until_runs(fabric)
    with fabric.start(*words.split(" ", 2)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        mounted.end()
        _, errors = process.communicate(timeout=patience())

    assert (first, process.returncode) == (b"started\n", 66), errors.decode()
    assert MOUNT_IT in errors.decode()
    end_everything(fuse)


def test_a_command_whose_store_vanishes_says_so(fabric: Fabric, home: Home) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    until_runs(fabric)
    process = fabric.start("list", "--watch")
    assert process.stdout is not None
    process.stdout.readline()

    for file in home.path.glob("fabric.db*"):
        file.unlink()
    _, stderr = process.communicate(timeout=patience())

    assert process.returncode == 66
    assert f"error: the store {home.database} is not there any more" in stderr.decode()
