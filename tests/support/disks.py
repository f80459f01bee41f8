"""A disk that is soon full, or has no inode left, or is read-only."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(mount_point: Path, *, size: str = "2m", options: str = "") -> Iterator[Path]:
    """Mount a small tmpfs; skips, aloud, where that is not allowed."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("only root on Linux can mount the small disk that is to be filled")
    mount_point.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", str(mount_point)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


_PAGE_BYTES = 1 << 12


def fill(mount_point: Path, *, leave: int = 0) -> None:
    """Take all room that is left but some bytes.

    Raises:
        OSError: a quota allows no more than was taken; or another error of the disk.
    """
    chunk = 1 << 16
    with (mount_point / "filling").open("ab", buffering=0) as stream:
        while True:
            free = os.statvfs(mount_point).f_bavail * os.statvfs(mount_point).f_frsize - leave
            if free <= 0:
                return
            try:
                stream.write(bytes(min(chunk, free)))
            except OSError:
                if chunk == _PAGE_BYTES:
                    raise
                chunk = _PAGE_BYTES  # there may be room for less


FILES = ",nr_inodes=400"
"""Options of a disk that has soon no inode left, and more bytes than are needed."""


def fill_files(mount_point: Path) -> None:
    """Take all inodes that are left."""
    folder = mount_point / "files"
    try:
        folder.mkdir(exist_ok=True)
        for number in itertools.count(len(list(folder.iterdir()))):
            (folder / f"{number}").touch()
    except OSError as error:
        assert error.errno == errno.ENOSPC


def remount(mount_point: Path, options: str) -> None:
    """Change options of a small disk, its ``size`` say."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(mount_point)], check=True)


def is_remounted(mount_point: Path, options: str) -> bool:
    """Change options of a disk; say whether it could be: files that are open for writing keep it writable."""
    return not subprocess.run(["mount", "-o", f"remount,{options}", str(mount_point)], check=False).returncode


@contextmanager
def read_only(mount_point: Path) -> Iterator[None]:
    """Let a small disk take nothing more, as one does that was remounted after errors.

    A kernel lets only its own errors do that while files are open, so what is open can still be written. The disk is
    mounted over itself from a second mount that is read-only already: to change one in use may fail as busy.
    """
    second = mount_point.with_name(f"{mount_point.name}-read-only")
    second.mkdir()
    subprocess.run(["mount", "--bind", str(mount_point), str(second)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(second)], check=True)
        subprocess.run(["mount", "--bind", str(second), str(mount_point)], check=True)
    finally:
        subprocess.run(["umount", str(second)], check=True)
        second.rmdir()
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


@contextmanager
def ext4_disk(mount_point: Path, *, files: int = 20_000) -> Iterator[Path]:
    """Mount an ext4 in a file, made with so many inodes; skips, aloud, where that is not allowed."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux") or shutil.which("mkfs.ext4") is None:
        pytest.skip("only root on Linux can mount an ext4 in a file, and it takes mkfs.ext4")
    mount_point.mkdir(parents=True)
    image = mount_point.with_name(f"{mount_point.name}.img")
    with image.open("wb") as stream:
        stream.truncate(128 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-N", str(files), str(image)], check=True)
    options = "loop,errors=remount-ro"
    mounted = subprocess.run(
        ["mount", "-o", options, str(image), str(mount_point)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount an ext4 in a file")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


@contextmanager
def btrfs_quota(mount_point: Path, *, size: str) -> Iterator[Path]:
    """Give a folder on a btrfs, of which a quota allows so many bytes; skips, aloud, where that is not possible."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux") or shutil.which("mkfs.btrfs") is None:
        pytest.skip("only root on Linux can mount a btrfs in a file, and it takes mkfs.btrfs")
    mount_point.mkdir(parents=True)
    image = mount_point.with_name(f"{mount_point.name}.img")
    with image.open("wb") as stream:
        stream.truncate(256 << 20)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, mount_point], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a btrfs in a file")
    try:
        folder = mount_point / "limited"
        for args in (
            ["quota", "enable", str(mount_point)],
            ["subvolume", "create", str(folder)],
            ["qgroup", "limit", size, str(folder)],
        ):
            subprocess.run(["btrfs", *args], check=True, capture_output=True)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


def break_ext4(mount_point: Path) -> None:
    """Have the kernel find an error of such a disk, which lets it take nothing more while files are open."""
    for line in Path("/proc/mounts").read_text().splitlines():
        device, at, *_ = line.split()
        if at == str(mount_point):
            Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("made by a test")
