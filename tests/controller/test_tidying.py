"""What crashes left in a home is repaired; what keeps that from happening is reported, and it is tried again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.controller.bench import Bench
from tests.support.waiting import until
from workbench.controller.decide.messages import Event, JobPurged
from workbench.controller.loop.loop import BUG_AGAIN_SECONDS
from workbench.controller.loop.removal import purge, remove_leftovers
from workbench.errors import CannotWrite
from workbench.store.db.database import Store
from workbench.store.updates.deletion import mark_deleted

REBUILD = "workbench.store.updates.rebuild"


@pytest.fixture
def tidies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench without a loop, whose next one tidies up at once, and again and again where that fails."""
    bench.stop()
    monkeypatch.setattr("workbench.controller.loop.loop.SWEEP_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("workbench.controller.loop.loop.BUG_AGAIN_SECONDS", BUG_AGAIN_SECONDS / 1000)
    return bench


def left_by_a_crash(bench: Bench) -> Path:
    """Leave the folder of a deleted job."""
    job_id = bench.submit()
    folder = bench.home.job(job_id).path
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    mark_deleted(bench.store, job_id, who="me", origin="test")
    shutil.rmtree(folder, ignore_errors=True)
    kept.rename(folder)
    return folder


def says(bench: Bench, words: str) -> None:
    """Wait until the loop says this of its tidying up."""
    until(lambda: bench.loop is not None and words in bench.loop.untidy(), bench.log)


def is_well(bench: Bench) -> None:
    """Wait until the loop has tidied up."""
    until(lambda: bench.loop is not None and not bench.loop.untidy(), bench.log)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep a folder from being removed, also by root."""
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(
    "error", [ImportError("no room for a module"), MemoryError(), OSError(24, "Too many open files")]
)
def test_tidying_up_goes_on_after_a_failure_at_its_very_beginning(
    tidies: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    folder = left_by_a_crash(tidies)

    class Refuses:
        """A module system that has no room for one more."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == REBUILD:
                raise error

    monkeypatch.delitem(sys.modules, REBUILD, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Refuses(), *sys.meta_path])
    tidies.start()
    says(tidies, f"what a crash may have left in the home cannot be repaired: {type(error).__name__}")
    assert folder.exists()

    monkeypatch.setattr(sys, "meta_path", sys.meta_path[1:])
    until(lambda: not folder.exists(), tidies.log)
    is_well(tidies)
    assert not died


def test_a_thread_for_tidying_up_that_cannot_be_started_is_reported_and_started_later(
    tidies: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left_by_a_crash(tidies)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "tidy up":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        tidies.start()
        says(tidies, "can't start new thread")

    until(lambda: not folder.exists(), tidies.log)
    is_well(tidies)


def test_a_folder_that_cannot_be_removed_keeps_no_other_and_is_reported_until_it_is(tidies: Bench) -> None:
    first, second, third = sorted(left_by_a_crash(tidies) for _ in range(3))
    with in_use(second):
        tidies.start()
        says(tidies, "Device or resource busy")
        assert (first.exists(), second.exists(), third.exists()) == (False, True, False)

    is_well(tidies)
    assert not second.exists()


def refuse(store: Store, job_id: str) -> None:
    """Stand for the removal of metrics on a full disk."""
    raise CannotWrite("the disk takes nothing")


def test_a_deleted_job_whose_metrics_cannot_be_removed_yet_gives_back_its_room_first(
    tidies: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = tidies.submit()
    folder = tidies.home.job(job_id).path
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / "model.bin").write_bytes(bytes(1 << 16))
    posted: list[Event] = []
    with monkeypatch.context() as full:
        full.setattr("workbench.store.updates.deletion.purge_metrics", refuse)
        purge(tidies.home, job_id, "me", posted.append)
    assert posted == [JobPurged(job_id, "the disk takes nothing")]
    assert list(folder.iterdir()) == []

    purge(tidies.home, job_id, "me", posted.append)

    assert posted[1:] == [JobPurged(job_id)]
    assert not folder.exists()


def test_metrics_that_a_crash_left_of_one_deleted_job_and_cannot_be_removed_now_hold_up_no_other(
    tidies: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [left_by_a_crash(tidies), left_by_a_crash(tidies)]
    with monkeypatch.context() as full:
        full.setattr("workbench.controller.loop.removal.purge_metrics", refuse)
        with pytest.raises(CannotWrite):
            remove_leftovers(tidies.home, tidies.store)
    assert [list(folder.iterdir()) for folder in folders] == [[], []]

    assert remove_leftovers(tidies.home, tidies.store) == 2
    assert not any(folder.exists() for folder in folders)
