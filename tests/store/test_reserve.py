"""The home's reserve: room for what has to be written on a full disk."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.small_disk import fill, small_disk
from workbench.errors import CannotWrite, NoSpaceLeft
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.errors import store_failure, write_failure
from workbench.store.db.reserve import (
    RESERVE_BYTES,
    SLICE_BYTES,
    give_up,
    keep_reserve,
    reserve_bytes,
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
    found = store_failure(error, tmp_path / "fabric.db")
    assert isinstance(found, CannotWrite) and not isinstance(found, NoSpaceLeft)
    assert list(tmp_path.iterdir()) == []


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
