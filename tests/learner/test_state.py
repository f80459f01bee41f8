from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fuse import rclone_mount
from workbench.learner.journal import state
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.journal.state import StateFile
from workbench.learner.main import EXIT_NO_INPUT, guard
from workbench.learner.platform import system


def begun(folder: Path) -> StateFile:
    return StateFile.begin(str(folder), LaunchDocument({"home": "h", "job": "j", "attempt": 2, "learner": 3}))


def test_a_state_says_who_and_where(tmp_path: Path) -> None:
    file = begun(tmp_path)

    assert file.write(durable=False)

    found = json.loads((tmp_path / "state.json").read_text())
    assert (found["home"], found["job"], found["attempt"], found["learner"]) == ("h", "j", 2, 3)
    assert (found["pid"], found["boot_id"]) == (os.getpid(), system.boot_id())
    assert found["start_ticks"] == system.start_ticks(os.getpid())
    assert found["phase"] == "starting"


UNREADABLE = "/proc/self/mem"
"""Can be opened; a read fails with EIO, as of a file that has just replaced another one on rclone's mount."""


def test_a_state_that_cannot_be_read_for_a_moment_is_read_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    path.symlink_to(UNREADABLE)

    def become_readable(_: float) -> None:
        path.unlink()
        path.write_text('{"phase": "exited"}')

    monkeypatch.setattr(time, "sleep", become_readable)
    assert state.read(str(tmp_path)) == {}

    assert state.read_patiently(str(tmp_path)) == {"phase": "exited"}


def test_a_state_that_is_not_there_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)

    assert state.read_patiently(str(tmp_path)) == {}


def test_an_agent_that_cannot_read_the_state_records_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one before it may have recorded it: the job would be taken for killed, and begun once more."""
    folder = tmp_path / "attempt-1" / "learner-1"
    folder.mkdir(parents=True)
    (folder / "state.json").symlink_to(UNREADABLE)
    (folder / "launch.json").write_text("{}")
    monkeypatch.setattr(state, "READ_SECONDS", 0.0)

    assert guard(str(folder)) == EXIT_NO_INPUT

    assert "cannot be started: [Errno 5]" in capsys.readouterr().err
    assert (folder / "state.json").is_symlink()
    assert list(folder.parent.iterdir()) == [folder]


def test_a_state_is_never_seen_half_written(tmp_path: Path) -> None:
    file = begun(tmp_path)
    file.write(durable=False)
    wrong: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            text = (tmp_path / "state.json").read_text()
            if not text.endswith("\n") or "phase" not in json.loads(text):
                wrong.append(text)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(400):
        file.update(exit_code=number, stall="x" * (number % 700))
    done.set()
    looking.join()

    assert wrong == []


def test_a_state_is_as_large_as_the_one_that_it_replaces(tmp_path: Path) -> None:
    """Else rclone's mount may show it up to the size of that one alone, for ever."""
    file = begun(tmp_path)
    sizes = set()

    for fields in ({}, {"phase": "running", "command_pid": 4_194_303}, {"phase": "exited", "exit_code": 0}):
        file.document.update(fields)
        file.write(durable=False)
        sizes.add((tmp_path / "state.json").stat().st_size)
    for request in ({"kind": "halt"}, {"kind": "kill", "by": "me@box"}):
        state.ask_to_stop(str(tmp_path), request)
        sizes.add((tmp_path / "stop.json").stat().st_size)

    assert sizes == {1024}


def test_nothing_is_written_when_nothing_has_changed(tmp_path: Path) -> None:
    file = begun(tmp_path)
    file.update(phase="running")
    before = (tmp_path / "state.json").stat().st_ino

    assert file.update(phase="running")

    assert (tmp_path / "state.json").stat().st_ino == before


def test_only_the_state_is_left_in_the_end(tmp_path: Path) -> None:
    file = begun(tmp_path)
    file.update(phase="running")
    file.write(durable=True)
    file.clear()

    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_folder_that_takes_nothing_is_reported_and_tried_again(tmp_path: Path) -> None:
    file = begun(tmp_path / "later")

    assert file.update(phase="running") is False
    assert file.written is False
    (tmp_path / "later").mkdir()
    assert file.update(phase="running") is True

    assert state.read(str(tmp_path / "later"))["phase"] == "running"


@pytest.mark.parametrize("text", ["", "{", "[1]", "nonsense"])
def test_a_state_that_cannot_be_read_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)

    assert state.read(str(tmp_path)) == {}


def test_a_request_is_read_and_garbage_is_a_halt(tmp_path: Path) -> None:
    assert state.read_stop(str(tmp_path)) == {}
    (tmp_path / "stop.json").write_text('{"kind": "kill"}')
    assert state.read_stop(str(tmp_path)) == {"kind": "kill"}
    (tmp_path / "stop.json").write_text("?")
    assert state.read_stop(str(tmp_path)) == {"kind": "halt"}


def test_a_request_that_the_disk_has_no_room_for_still_says_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refused)
        state.ask_to_stop(str(tmp_path), {"kind": "kill", "by": "me"})

    assert state.read_stop(str(tmp_path)) == {"kind": "kill"}
    state.ask_to_stop(str(tmp_path), {"kind": "halt", "by": "me"})
    assert state.read_stop(str(tmp_path)) == {"kind": "halt", "by": "me"}
    assert [path.name for path in tmp_path.iterdir()] == ["stop.json"]


def test_an_end_that_is_announced_asks_for_nothing_and_replaces_no_request(tmp_path: Path) -> None:
    state.announce_end(str(tmp_path), "its machine")
    assert state.read_stop(str(tmp_path)) == {"kind": "finish", "by": "its machine"}

    state.ask_to_stop(str(tmp_path), {"kind": "kill", "by": "me"})
    state.announce_end(str(tmp_path), "its machine")

    assert state.read_stop(str(tmp_path)) == {"kind": "kill", "by": "me"}
    assert [path.name for path in tmp_path.iterdir()] == ["stop.json"]


def test_an_end_is_announced_on_a_disk_that_takes_no_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refused)
        state.announce_end(str(tmp_path), "its machine")

    assert state.read_stop(str(tmp_path)) == {"kind": "finish"}
    assert [path.name for path in tmp_path.iterdir()] == ["stop.json"]


def test_a_disk_without_hard_links_decides_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(95, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    launches = [LaunchDocument({"learner": n, "learners": 2, "attempt_dir": str(tmp_path)}) for n in (1, 2)]

    assert [state.decide(launch, 0, None, failed=False) for launch in launches] == [True, False]


def test_a_folder_that_was_moved_with_its_home_is_not_taken_for_removed(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "learner-1"
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder.parent.rename(tmp_path / "moved")
        moved = (state.is_removed(str(folder)), state.is_removed(str(folder), descriptor))
        shutil.rmtree(tmp_path / "moved")
        removed = state.is_removed(str(folder), descriptor)
    finally:
        os.close(descriptor)

    assert moved == (True, False)
    assert removed


def test_a_removed_folder_is_removed_though_another_has_taken_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "learner-1"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        there = state.is_removed(str(folder), descriptor)
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        moved = state.is_removed(str(folder), descriptor)
        (tmp_path / "moved").rmdir()
        removed = state.is_removed(str(folder), descriptor)
    finally:
        os.close(descriptor)

    assert (there, moved, removed) == (False, False, True)


@contextmanager
def held(folder: Path, document: dict[str, Any] | None = None) -> Iterator[state.HeldFolder]:
    """Hold a learner's folder as its agent does."""
    found = state.HeldFolder(str(folder))
    assert found.take_lock()
    found.keep(document)
    try:
        yield found
    finally:
        os.close(found.descriptor)
        assert found.lock is not None
        os.close(found.lock)


def test_a_folder_without_a_state_is_no_copy_of_one_whose_state_could_not_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "learner-1"
    folder.mkdir()
    (folder / "state.json").write_text('{"phase')
    with held(folder, state.read(str(folder))) as found:
        folder.rename(tmp_path / "old")
        folder.mkdir()

        assert not found.is_mounted_anew()


def test_a_copy_that_takes_a_removed_folders_place_is_the_learners_own(tmp_path: Path) -> None:
    folder, old = tmp_path / "learner-1", tmp_path / "old"
    folder.mkdir()
    found = {}
    with held(folder) as own:
        begun(folder).write(durable=False)
        shutil.copytree(folder, tmp_path / "copy")
        shutil.copytree(folder, tmp_path / "foreign")
        (tmp_path / "foreign" / "state.json").write_text(json.dumps({"pid": os.getpid(), "start_ticks": 1}))
        folder.rename(old)
        for number in range(2):
            for name in ("copy", "foreign"):
                (tmp_path / name).rename(folder)
                found[name, number] = own.is_removed(), own.is_mounted_anew()
                folder.rename(tmp_path / name)
            if not number:
                shutil.rmtree(old)

    assert found == {
        ("copy", 0): (False, True),
        ("foreign", 0): (False, False),
        ("copy", 1): (False, True),
        ("foreign", 1): (True, False),
    }


def test_a_path_that_leads_to_a_former_folder_again_finds_its_lock_free(tmp_path: Path) -> None:
    folder, other = tmp_path / "learner-1", tmp_path / "other"
    folder.mkdir()
    followed = []
    with held(folder) as found:
        begun(folder).write(durable=False)
        shutil.copytree(folder, other)
        for _ in range(3):
            folder.rename(tmp_path / "beside")
            other.rename(folder)
            (tmp_path / "beside").rename(other)
            is_followed = found.keep_lock()
            followed.append(is_followed and found.lock and state.is_lock_of(str(folder), found.lock))
        another = state.take_lock(str(other))
        own = state.take_lock(str(folder))

    assert followed == [True, True, True]
    assert another is not None
    assert own is None
    os.close(another)


def test_a_mount_that_ends_in_a_write_is_no_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ESTALE, "stale")

    file = begun(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refused)
        assert not file.write(durable=False)
        assert state.unwritten(str(tmp_path)) == ""
    assert file.write(durable=False)


def test_a_mount_that_has_ended_is_neither_a_request_to_stop_nor_a_removed_folder(tmp_path: Path) -> None:
    with rclone_mount(tmp_path / "mnt") as mount:
        folder = mount.point / "learner-1"
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            mount.end()
            assert state.read_stop(str(folder)) == {}
            assert not state.is_removed(str(folder), descriptor)

            mount.unmount()
            assert not folder.exists()
            assert not state.is_removed(str(folder), descriptor)
        finally:
            os.close(descriptor)


def test_one_that_is_given_up_leaves_what_takes_its_folders_place_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "learner"
    folder.mkdir()
    file = begun(folder)
    file.write(durable=False)
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    file.give_up()
    (tmp_path / "copy").rename(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    assert file.update(phase="stopping", stopped="kill")
    assert file.write(durable=True)
    file.clear()

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
