"""Homes on file systems that lack something: modes and links (exFAT), memory maps, locks of files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.command import EXECUTABLE, Fabric
from tests.support.processes import end_everything
from tests.support.waiting import patience
from workbench.paths import Home
from workbench.store.db.database import Store

ELSEWHERE = "hint: FABRIC_HOME names a folder on another file system"


def called(*argv: str | Path) -> str:
    """Run a command of the system, which must work; return what it printed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def needed(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing or not Path("/dev/fuse").exists():
        pytest.skip(f"not here: {', '.join(missing or ['/dev/fuse'])}")


@contextmanager
def unmounted_after(point: Path) -> Iterator[None]:
    try:
        yield
    finally:
        called("umount", "--lazy", point)


@pytest.fixture
def exfat(fabric: Fabric, clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home on exFAT, as on a disk that is carried around: no modes, no links, no pipes."""
    needed("mkfs.exfat", "mount.exfat-fuse", "losetup")
    image, point = clean_environment / "disk", clean_environment / "usb"
    with image.open("wb") as disk:
        disk.truncate(100 << 20)
    called("mkfs.exfat", image)
    point.mkdir()
    with ExitStack() as undone:
        device = called("losetup", "--find", "--show", image)
        undone.callback(called, "losetup", "--detach", device)
        called("mount.exfat-fuse", device, point)
        undone.enter_context(unmounted_after(point))
        home = Home(point / "home")
        monkeypatch.setenv("FABRIC_HOME", str(home.path))
        undone.callback(end_everything, home)
        yield home


@pytest.fixture
def unmapped(fabric: Fabric, clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home on a file system that maps no files into memory."""
    needed("bindfs")
    kept, point = clean_environment / "kept", clean_environment / "bound"
    for folder in (kept, point):
        folder.mkdir()
    called("bindfs", "-o", "direct_io", kept, point)
    with unmounted_after(point):
        home = Home(point / "home")
        monkeypatch.setenv("FABRIC_HOME", str(home.path))
        yield home
        end_everything(home)


def test_jobs_run_on_a_disk_without_modes_and_doctor_says_what_that_means(
    fabric: Fabric, exfat: Home
) -> None:
    assert fabric("run", "--", "echo hello; exit 3", expect=3).stdout == "hello\n"
    assert fabric("logs", "@last").stdout == "hello\n"

    output = fabric("doctor", expect=None).stdout
    assert "has mode 777, which its file system does not let us change" in output


def test_code_with_a_link_is_refused_on_a_disk_without_links(fabric: Fabric, exfat: Home) -> None:
    (fabric.folder / "train.py").write_text("print(1)\n")
    (fabric.folder / "latest.py").symlink_to("train.py")

    refused = fabric("run", "--", "true", expect=None)

    assert refused.returncode not in (0, 70)
    assert "The code has a symbolic link, latest.py, and the file system of" in refused.stderr
    assert "Name it in .fabricignore" in refused.stderr
    assert "restart" not in refused.stderr


def test_jobs_run_where_no_file_can_be_mapped(fabric: Fabric, unmapped: Home) -> None:
    assert fabric("run", "--", "echo hello; exit 3", expect=3).stdout == "hello\n"
    assert fabric("logs", "@last").stdout == "hello\n"
    assert [one["state"] for one in fabric.json("list", "--json")] == ["FAILED"]
    assert not unmapped.database.with_name("fabric.db-wal").exists()


def test_a_home_that_was_brought_to_where_no_file_can_be_mapped_says_so(
    fabric: Fabric, unmapped: Home, clean_environment: Path
) -> None:
    made = Home(clean_environment / "made")
    Store.open(made).close()
    shutil.copytree(made.path, unmapped.path)

    error, hint = fabric("list", expect=78).stderr.splitlines()[-2:]

    assert error.startswith(
        f"error: cannot open the store {unmapped.database}: its file system maps no files"
    )
    assert hint == ELSEWHERE


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
@pytest.mark.unmade_home
def test_a_home_whose_files_cannot_be_locked_is_refused_in_a_sentence(
    fabric: Fabric, home: Home, error: str
) -> None:
    """As on NFS without its lock daemon; strace lets the call fail as there."""
    needed("strace")
    failing = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=flock",
        "-e",
        f"inject=flock:error={error}",
    ]
    ran = subprocess.run(
        [*failing, str(EXECUTABLE), "run", "--", "true"],
        cwd=fabric.folder,
        env=fabric.variables,
        capture_output=True,
        text=True,
        timeout=patience(),
    )

    message, hint = ran.stderr.splitlines()[-2:]
    assert message.startswith(
        f"error: {home.identity} cannot be locked: its file system has no locks of files ("
    )
    assert hint == ELSEWHERE
    assert ran.returncode == 78
