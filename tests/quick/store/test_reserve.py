"""The home's reserve: room for what has to be written on a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disks import FILES, btrfs_quota, fill, fill_files, small_disk
from workbench.errors import CannotWrite, NoSpaceLeft
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.errors import store_failure, write_failure
from workbench.store.db.reserve import (
    RESERVE_BYTES,
    SLICE_BYTES,
    SPARE_FILES,
    give_up,
    keep_reserve,
    reserve_bytes,
    spare_files,
    with_reserve,
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Home]:
    with small_disk(tmp_path / "small", size="3m") as folder:
        (folder / "home").mkdir(mode=0o700)
        yield Home(folder / "home")


def test_the_reserve_takes_a_small_part_of_what_is_free_and_belongs_to_its_owner(small: Home) -> None:
    free = os.statvfs(small.path).f_bavail * 4096

    keep_reserve(small)

    assert 0 < reserve_bytes(small) <= free // 4
    assert small.reserve.stat().st_blocks * 512 >= reserve_bytes(small)
    assert small.reserve.stat().st_mode & 0o777 == 0o600


def test_a_large_disk_keeps_no_more_than_the_reserve(tmp_path: Path) -> None:
    keep_reserve(Home(tmp_path))

    assert reserve_bytes(Home(tmp_path)) == RESERVE_BYTES


def test_a_full_disk_keeps_its_reserve_and_takes_no_more(small: Home) -> None:
    keep_reserve(small)
    held = reserve_bytes(small)
    fill(small.path)

    keep_reserve(small)
    assert reserve_bytes(small) == held
    assert give_up(small)
    keep_reserve(small)

    assert reserve_bytes(small) == held - SLICE_BYTES


def test_a_write_gets_as_much_of_the_reserve_as_it_needs(small: Home) -> None:
    keep_reserve(small)
    held, needed = reserve_bytes(small), bytes(SLICE_BYTES + 1)
    fill(small.path)
    file = small.path / "written"

    def write() -> int:
        try:
            return file.write_bytes(needed)
        except OSError as error:
            raise write_failure(error, file) from error

    assert with_reserve(small, write) == len(needed)

    assert file.read_bytes() == needed
    assert reserve_bytes(small) == held - 2 * SLICE_BYTES


def test_without_a_reserve_the_failure_of_a_full_disk_comes_out(small: Home) -> None:
    keep_reserve(small)
    tries = 0

    def write() -> None:
        nonlocal tries
        tries += 1
        raise NoSpaceLeft("no")

    slices = reserve_bytes(small) // SLICE_BYTES
    with pytest.raises(NoSpaceLeft):
        with_reserve(small, write)

    assert tries == slices + 1
    assert not give_up(small)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_quota_that_is_used_up_is_a_full_disk(number: int, tmp_path: Path) -> None:
    assert isinstance(write_failure(OSError(number, os.strerror(number)), tmp_path), NoSpaceLeft)


def test_other_failures_to_write_are_no_full_disk(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE

    assert not isinstance(write_failure(OSError(errno.EROFS, ""), tmp_path), NoSpaceLeft)
    database = tmp_path / "fabric.db"
    database.touch()
    found = store_failure(error, database)
    assert isinstance(found, CannotWrite) and not isinstance(found, NoSpaceLeft)
    assert list(tmp_path.iterdir()) == [database]


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_FULL]
)
def test_sqlites_error_of_a_disk_without_room_is_a_full_disk(code: int, small: Home) -> None:
    fill(small.path)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code

    found = store_failure(error, small.database)

    assert isinstance(found, NoSpaceLeft)
    assert str(found) == f"cannot write the store {small.database}: the disk is full"
    assert found.exit_code == 73


def test_a_store_that_nobody_has_open_can_be_opened_on_a_full_disk(small: Home) -> None:
    Store.open(small).close()
    keep_reserve(small)
    fill(small.path)

    with Store.open(small) as store:
        assert store.rows("SELECT count(*) FROM jobs") == [(0,)]


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Home]:
    """A home on a disk with room for few files."""
    with small_disk(tmp_path / "few", size="8m", options=FILES) as folder:
        (folder / "home").mkdir(mode=0o700)
        yield Home(folder / "home")


def test_spare_files_are_kept_and_made_again(few: Home) -> None:
    keep_reserve(few)
    assert len(spare_files(few)) == SPARE_FILES
    (few.spare_files / "3").unlink()

    keep_reserve(few)

    assert len(spare_files(few)) == SPARE_FILES
    assert few.spare_files.stat().st_mode & 0o777 == 0o700


def test_a_disk_with_few_inodes_keeps_some_of_them(tmp_path: Path) -> None:
    with small_disk(tmp_path / "few", options=",nr_inodes=20") as folder:
        keep_reserve(Home(folder))

        assert 0 < len(spare_files(Home(folder))) <= 5


def test_without_inodes_spare_files_are_given_up_until_the_disk_takes_files_and_no_bytes(few: Home) -> None:
    keep_reserve(few)
    held = reserve_bytes(few)
    fill_files(few.path.parent)

    for left in (15, 14, 13, 12):
        assert give_up(few)
        assert (len(spare_files(few)), reserve_bytes(few)) == (left, held)
    (few.path / "made").touch()  # by somebody else
    assert give_up(few)

    assert (len(spare_files(few)), reserve_bytes(few)) == (11, held)


def test_without_inodes_and_spare_files_the_bytes_are_kept(few: Home) -> None:
    keep_reserve(few)
    shutil.rmtree(few.spare_files)
    fill_files(few.path.parent)

    assert not give_up(few)
    assert reserve_bytes(few) > 0


def test_a_store_that_nobody_has_open_can_be_opened_without_inodes(few: Home) -> None:
    Store.open(few).close()
    keep_reserve(few)
    fill_files(few.path.parent)

    with Store.open(few) as store:
        assert store.rows("SELECT count(*) FROM jobs") == [(0,)]
    assert reserve_bytes(few) > 0


IN_A_PROCESS = """
import sys
from pathlib import Path
from workbench.errors import NoSpaceLeft
from workbench.paths import Home
from workbench.store.db.database import Store

with Store.open(Home(Path(sys.argv[1]))) as store:
    print(store.counter("jobs"))
    try:
        with store.atomic():
            store.bump("jobs")
    except NoSpaceLeft as error:
        print(error)
"""


@pytest.fixture
def quota(tmp_path: Path) -> Iterator[Home]:
    """A home on a btrfs, which needs room for each page of a mapped file that is changed after it was written out."""
    with btrfs_quota(tmp_path / "btrfs", size="20m") as folder:
        yield Home(folder / "home")


def use_up(home: Home) -> None:
    with pytest.raises(OSError, match="quota exceeded"):
        fill(home.path.parent)
    os.sync()


def make_room(home: Home) -> None:
    """Let the last store that is open write its log into the database."""
    (home.path.parent / "filling").unlink()
    os.sync()


def in_a_process(home: Home) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(home.path)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_what_was_written_last_is_read_where_no_page_can_be_changed(quota: Home) -> None:
    with Store.open(quota) as store:
        with store.atomic():
            store.bump("jobs")
        use_up(quota)

        code, shown = in_a_process(quota)
        make_room(quota)

    assert code == 0, shown
    assert shown.startswith("1\n")


def test_a_change_is_refused_where_no_page_can_be_changed(quota: Home) -> None:
    with Store.open(quota) as store:
        with store.atomic():
            store.bump("jobs")
        # The next one begins the log anew, which changes its index first.
        store.execute("PRAGMA wal_checkpoint(FULL)")
        store.counter("jobs")
        use_up(quota)

        code, shown = in_a_process(quota)
        make_room(quota)

    assert code == 0, shown
    assert "your disk quota is used up" in shown
