"""Snapshots of code that cannot be taken: a sentence each, and nothing half made."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.quick.data.support import make_tree, packed_content, packed_names, unprivileged
from workbench.data.code import pack as packing
from workbench.data.code import scan as scanning
from workbench.data.code.snapshot import Snapshot, take_snapshot
from workbench.errors import CannotWrite, InputMissing
from workbench.learner.platform.beneath import Root
from workbench.paths import Home


def test_folders_nested_beyond_all_measure_are_a_sentence(home: Home, clean_environment: Path) -> None:
    folder = make_tree(clean_environment / "deep", {})
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)

    try:
        with pytest.raises(InputMissing, match="nested too deep"):
            take_snapshot(folder, home)
    finally:
        # Python's own way of removing a tree gives up at this depth.
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_code_that_is_not_there_is_a_sentence(home: Home, clean_environment: Path) -> None:
    with pytest.raises(InputMissing, match="is not there"):
        take_snapshot(clean_environment / "absent", home)


def test_a_file_that_is_no_archive_is_a_sentence(tree: Path, home: Home) -> None:
    with pytest.raises(InputMissing, match="neither a folder nor a zip nor a tar"):
        take_snapshot(tree / "train.py", home)


def test_an_unreadable_file_is_a_sentence(tree: Path, home: Home, clean_environment: Path) -> None:
    (tree / "train.py").chmod(0)

    with (
        unprivileged(clean_environment),
        pytest.raises(InputMissing, match=r"train\.py cannot be read: Permission denied"),
    ):
        take_snapshot(tree, home)


def test_an_unreadable_folder_is_a_sentence(tree: Path, home: Home, clean_environment: Path) -> None:
    (tree / "lib").chmod(0)

    with (
        unprivileged(clean_environment),
        pytest.raises(InputMissing, match=r"lib(/\.gitignore)? cannot be read"),
    ):
        take_snapshot(tree, home)

    (tree / "lib").chmod(0o700)


def test_a_home_that_cannot_be_written_is_a_sentence(tree: Path, clean_environment: Path) -> None:
    (clean_environment / "occupied").write_text("")

    with pytest.raises(CannotWrite):
        take_snapshot(tree, Home(clean_environment / "occupied" / "home"))


def test_nothing_half_made_is_left(tree: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    take_snapshot(tree, home)
    (tree / "new.py").write_text("x")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="No space left"):
        take_snapshot(tree, home)

    assert not [path for path in home.code.iterdir() if path.name.startswith(".")]


def test_a_file_that_changes_while_it_is_read_is_looked_at_again(
    tree: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = scanning.file_digest
    changes = iter(["print(2)\n", "print(33)\n"])

    def changing(root: Root, path: str) -> tuple[str, int]:
        found = digest(root, path)
        if path == "train.py" and (text := next(changes, "")):
            (tree / path).write_text(text)
        return found

    monkeypatch.setattr(scanning, "file_digest", changing)

    snapshot = take_snapshot(tree, home)

    assert packed_content(home.snapshot(snapshot.code_hash), "train.py") == b"print(33)\n"


SECRET = "a password of somebody else"


def to_a_link(file: Path, outside: Path) -> None:
    file.unlink()
    file.symlink_to(outside / file.name)


def to_a_pipe(file: Path, outside: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder_to_a_link(file: Path, outside: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.symlink_to(outside)


REPLACED = pytest.mark.parametrize("replaced", [to_a_link, to_a_pipe, folder_to_a_link])


@pytest.fixture
def outside(clean_environment: Path) -> Path:
    """A folder beside the code, with a secret under the name of a file of the code."""
    return make_tree(clean_environment / "outside", {"a.py": SECRET})


@REPLACED
def test_a_file_that_is_replaced_while_the_folder_is_scanned_leads_nowhere(
    tree: Path,
    home: Home,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
    replaced: Callable[[Path, Path], None],
) -> None:
    digest = scanning.file_digest
    waiting = [tree / "lib" / "a.py"]

    def replacing(root: Root, path: str) -> tuple[str, int]:
        if waiting:
            replaced(waiting.pop(), outside)
        return digest(root, path)

    monkeypatch.setattr(scanning, "file_digest", replacing)

    assert_without_secret(tree, home)


@REPLACED
def test_a_file_that_is_replaced_before_it_is_packed_leads_nowhere(
    tree: Path,
    home: Home,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
    replaced: Callable[[Path, Path], None],
) -> None:
    (tree / "lib" / "a.py").write_text(SECRET)  # the same content: only what was opened can tell
    pack = packing.pack
    waiting = [tree / "lib" / "a.py"]

    def replacing(*arguments: Any, **options: Any) -> None:
        if waiting:
            replaced(waiting.pop(), outside)
        pack(*arguments, **options)

    monkeypatch.setattr(packing, "pack", replacing)

    assert_without_secret(tree, home)


def assert_without_secret(tree: Path, home: Home) -> None:
    """Take a snapshot, which is refused where a link leads out, or is of what is there now; never of the secret."""
    try:
        taken: Snapshot | None = take_snapshot(tree, home)
    except InputMissing as error:
        assert "out of the code folder" in error.message
        taken = None
    for pack in home.code.glob("*.tar.gz"):
        with tarfile.open(pack) as archive:
            for member in archive:
                assert not member.isfile() or SECRET.encode() not in packed_content(pack, member.name)
    assert (taken is None) == any(path.is_symlink() for path in tree.rglob("*"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [".gitignore", ".fabricignore", ".detignore", "home.json", "lib/.gitignore"])
def test_a_pipe_with_a_name_that_means_something_is_waited_for_by_nobody(
    tree: Path, home: Home, name: str
) -> None:
    os.mkfifo(tree / name)

    snapshot = take_snapshot(tree, home)

    assert any(name in warning for warning in snapshot.warnings)
    assert name not in packed_names(home.snapshot(snapshot.code_hash))


@pytest.mark.timeout(20)
def test_a_pipe_as_code_is_a_sentence(home: Home, clean_environment: Path) -> None:
    os.mkfifo(clean_environment / "code.tar")

    with pytest.raises(InputMissing, match="neither a folder nor a file"):
        take_snapshot(clean_environment / "code.tar", home)
