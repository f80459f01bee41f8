"""Snapshots of code that cannot be taken: a sentence each, and nothing half made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.data.support import make_tree, packed_content, unprivileged
from workbench.data.code import scan as scanning
from workbench.data.code.snapshot import take_snapshot
from workbench.errors import CannotWrite, InputMissing
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

    def changing(path: str) -> tuple[str, int]:
        found = digest(path)
        if path.endswith("train.py") and (text := next(changes, "")):
            Path(path).write_text(text)
        return found

    monkeypatch.setattr(scanning, "file_digest", changing)

    snapshot = take_snapshot(tree, home)

    assert packed_content(home.snapshot(snapshot.code_hash), "train.py") == b"print(33)\n"
