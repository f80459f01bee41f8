"""What a killed run has left goes before the next one; what is another's, or in use, stays."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate import leftovers
from tests.support.waiting import until


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which folders of tests lie, in place of the machine's."""
    monkeypatch.setattr(leftovers, "FOLDERS", {str(tmp_path): re.compile(r"fab-[a-z0-9_]{8}")})
    return tmp_path


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of sessions of this test's own."""
    file = tmp_path / "lock"
    monkeypatch.setattr(leftovers, "LOCK", file)
    return file


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been removed: this run's own things carry marks, too."""
    calls: list[str] = []

    def remove_marked() -> list[str]:
        calls.append("removed")
        return calls

    monkeypatch.setattr(leftovers, "remove_marked", remove_marked)
    return calls


def test_folders_that_carry_a_mark_are_found_and_others_are_not(temporary: Path) -> None:
    for name in ("fab-abc_1234", "fab-abcdefgh", "fab-longer-name", "fabric-0", "home"):
        (temporary / name).mkdir()
    (temporary / "fab-12345678").symlink_to("/")

    assert [path.name for path in leftovers.marked_folders()] == ["fab-abc_1234", "fab-abcdefgh"]


def test_a_process_is_found_by_the_session_that_started_it_or_the_folder_it_names(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name != leftovers.SESSION}
    argv = [sys.executable, "-c", "input()"]
    started = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, env=clean | {leftovers.SESSION: "1"}),
        subprocess.Popen([*argv, str(tmp_path / "fab-abcdefgh")], stdin=subprocess.PIPE, env=clean),
        subprocess.Popen(argv, stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"]}),
    ]
    try:
        by_session, by_folder, another = (process.pid for process in started)
        until(
            lambda: (
                {by_session, by_folder} <= set(leftovers.marked_processes([tmp_path / "fab-abcdefgh"], []))
            ),
            "both to be found",
        )
        assert another not in leftovers.marked_processes([tmp_path / "fab-abcdefgh"], [])
        assert os.getpid() not in leftovers.marked_processes([tmp_path], [])
    finally:
        for process in started:
            process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: something is mounted")
def test_a_folder_in_which_something_is_mounted_stays(tmp_path: Path) -> None:
    folder, source = tmp_path / "fab-abcdefgh", tmp_path / "source"
    (folder / "inside").mkdir(parents=True)
    source.mkdir()
    (source / "precious").touch()
    subprocess.run(["mount", "--bind", source, folder / "inside"], check=True)
    try:
        assert not leftovers.remove_folder(folder)
        assert (source / "precious").exists()
    finally:
        subprocess.run(["umount", folder / "inside"], check=True)
    assert leftovers.remove_folder(folder)
    assert (source / "precious").exists()


def test_a_session_that_is_alone_removes_and_one_beside_another_does_not(
    lock: Path, removed: list[str]
) -> None:
    first = leftovers.Session()
    second = leftovers.Session()

    assert removed == ["removed"]
    assert leftovers.remove_when_alone() == []
    first.pytest_unconfigure()
    assert leftovers.remove_when_alone() == []
    second.pytest_unconfigure()
    assert leftovers.remove_when_alone() == ["removed", "removed"]


def test_a_session_holds_its_lock_for_as_long_as_it_lives(lock: Path, removed: list[str]) -> None:
    session = leftovers.Session()
    with lock.open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        session.pytest_unconfigure()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_this_session_holds_the_lock_and_its_tests_may_not_remove_anything() -> None:
    assert leftovers.SESSION in os.environ
    assert leftovers.remove_when_alone() == []
