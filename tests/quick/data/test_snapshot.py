from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tarfile
from pathlib import Path

import pytest

from tests.quick.data.support import make_tree, packed_content, packed_names
from workbench.data.code import scan as scanning
from workbench.data.code.snapshot import LARGE_BYTES, SnapshotOptions, take_snapshot, unpack
from workbench.errors import InputMissing
from workbench.learner.platform.beneath import Root
from workbench.paths import Home


def watch_reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with every file that is read."""
    read: list[str] = []
    digest = scanning.file_digest

    def watched(root: Root, path: str) -> tuple[str, int]:
        read.append(path)
        return digest(root, path)

    monkeypatch.setattr(scanning, "file_digest", watched)
    return read


def test_a_snapshot_holds_the_folder_and_is_named_by_its_content(tree: Path, home: Home) -> None:
    snapshot = take_snapshot(tree, home)

    file = home.snapshot(snapshot.code_hash)
    assert packed_names(file) == ["data.bin", "lib/", "lib/a.py", "lib/empty/", "train.py"]
    assert packed_content(file, "train.py") == b"print(1)\n"
    assert (snapshot.files, snapshot.size_bytes, snapshot.cached, snapshot.warnings) == (3, 13, False, ())
    assert len(snapshot.code_hash) == 64
    assert file.stat().st_mode & 0o777 == 0o600
    assert home.code.stat().st_mode & 0o777 == 0o700


def test_the_same_content_is_the_same_snapshot_wherever_and_whenever(
    tree: Path, home: Home, clean_environment: Path
) -> None:
    other = clean_environment / "elsewhere" / "copy"
    shutil.copytree(tree, other)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
    second_home = Home(clean_environment / "other-home")
    previous = os.umask(0o077)
    try:
        (other / "train.py").chmod(0o600)
        first, second = take_snapshot(tree, home), take_snapshot(other, second_home)
    finally:
        os.umask(previous)

    assert first.code_hash == second.code_hash
    assert home.snapshot(first.code_hash).read_bytes() == second_home.snapshot(second.code_hash).read_bytes()


@pytest.mark.parametrize("change", ["content", "name", "mode", "folder", "link"])
def test_any_change_is_another_snapshot(tree: Path, home: Home, change: str) -> None:
    before = take_snapshot(tree, home)
    if change == "content":
        (tree / "train.py").write_text("print(2)\n")
    elif change == "name":
        (tree / "train.py").rename(tree / "main.py")
    elif change == "mode":
        (tree / "train.py").chmod(0o755)
    elif change == "folder":
        (tree / "results").mkdir()
    else:
        (tree / "link.py").symlink_to("train.py")

    assert take_snapshot(tree, home).code_hash != before.code_hash


def test_a_slash_at_the_end_and_a_relative_name_are_no_matter(
    tree: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    whole = take_snapshot(tree, home).code_hash

    assert take_snapshot(Path(f"{tree}/"), home).code_hash == whole
    assert take_snapshot(Path(), home).code_hash == whole
    assert take_snapshot(Path("lib/.."), home).code_hash == whole


@pytest.mark.usefixtures("settled")
def test_an_unchanged_folder_is_neither_read_nor_packed_again(
    tree: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = take_snapshot(tree, home)
    inode = home.snapshot(first.code_hash).stat().st_ino
    read = watch_reading(monkeypatch)

    second = take_snapshot(tree, home)

    assert (second.code_hash, second.cached) == (first.code_hash, True)
    assert read == []
    assert home.snapshot(first.code_hash).stat().st_ino == inode


@pytest.mark.usefixtures("settled")
def test_only_what_changed_is_read(tree: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    first = take_snapshot(tree, home)
    read = watch_reading(monkeypatch)
    (tree / "lib" / "a.py").write_text("b\n")

    second = take_snapshot(tree, home)

    assert second.code_hash != first.code_hash
    assert read == ["lib/a.py"]


def test_a_change_that_leaves_size_and_times_is_seen(tree: Path, home: Home) -> None:
    """A file that is written twice within the clock's grain, and whose times are put back."""
    file = tree / "train.py"
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    first = take_snapshot(tree, home)

    file.write_text("print(2)\n")
    os.utime(file, ns=times)

    assert take_snapshot(tree, home).code_hash != first.code_hash


@pytest.mark.usefixtures("settled")
def test_a_damaged_memory_is_forgotten(tree: Path, home: Home) -> None:
    first = take_snapshot(tree, home)
    (memory,) = (home.code / "scans").iterdir()

    for text in ("", "{", "[]", '{"format": 99}', '{"format": 1, "files": 3}'):
        memory.write_text(text)
        assert take_snapshot(tree, home).code_hash == first.code_hash


def test_a_folder_that_goes_while_it_is_looked_through_is_as_if_never_there(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_tree(tmp_path / "whole", {"a/first.py": "1\n"})
    losing = make_tree(tmp_path / "losing", {"a/first.py": "1\n", "b/c/deep.py": "2\n"})
    expected = take_snapshot(whole, home).code_hash
    digest = scanning.file_digest

    def removing(root: Root, path: str) -> tuple[str, int]:
        shutil.rmtree(losing / "b", ignore_errors=True)
        return digest(root, path)

    monkeypatch.setattr(scanning, "file_digest", removing)
    assert take_snapshot(losing, home).code_hash == expected
    assert not (losing / "b").exists()


def test_a_snapshot_that_is_gone_is_packed_again(tree: Path, home: Home) -> None:
    first = take_snapshot(tree, home)
    home.snapshot(first.code_hash).unlink()

    second = take_snapshot(tree, home)

    assert second.cached is False
    assert home.snapshot(second.code_hash).exists()


def test_git_s_own_folder_is_never_in_it(tree: Path, home: Home) -> None:
    make_tree(
        tree, {".git/config": "x", "sub/.git": "gitdir: ../x", "sub/b.py": "b", ".fabricignore": "!.git\n"}
    )

    names = packed_names(home.snapshot(take_snapshot(tree, home).code_hash))

    assert not [name for name in names if ".git" in name.split("/")]
    assert "sub/b.py" in names


def test_a_home_inside_the_folder_is_left_out(tree: Path) -> None:
    home = Home(tree / ".fabric")

    first, second = take_snapshot(tree, home), take_snapshot(tree, home)

    assert first.code_hash == second.code_hash
    assert first.excluded == (".fabric/",)


def test_virtual_environments_and_bytecode_are_left_out(tree: Path, home: Home) -> None:
    make_tree(tree, {".venv/pyvenv.cfg": "", ".venv/lib/x.py": "", "lib/__pycache__/a.pyc": ""})

    snapshot = take_snapshot(tree, home)

    assert set(snapshot.excluded) == {".venv/", "lib/__pycache__/"}


def test_links_inside_are_kept_as_links(tree: Path, home: Home) -> None:
    (tree / "same.py").symlink_to("train.py")
    (tree / "lib" / "up").symlink_to("../data.bin")
    (tree / "absolute").symlink_to(tree / "lib" / "a.py")
    (tree / "lib" / "around").symlink_to(f"../../{tree.name}/train.py")
    (tree / "dangling").symlink_to("not-there")
    (tree / "folder").symlink_to("lib", target_is_directory=True)

    with tarfile.open(home.snapshot(take_snapshot(tree, home).code_hash)) as archive:
        links = {member.name: member.linkname for member in archive if member.issym()}

    assert links == {
        "same.py": "train.py",
        "lib/up": "../data.bin",
        "absolute": "lib/a.py",
        "lib/around": "../train.py",
        "dangling": "not-there",
        "folder": "lib",
    }


def test_links_that_lead_out_are_refused_by_name(tree: Path, home: Home) -> None:
    (tree / "data").symlink_to("/usr/share")
    (tree / "lib" / "up").symlink_to("../../outside")

    with pytest.raises(InputMissing) as caught:
        take_snapshot(tree, home)

    assert "data -> /usr/share" in caught.value.message
    assert "lib/up -> ../../outside" in caught.value.message
    assert ".fabricignore" in caught.value.hint
    make_tree(tree, {".fabricignore": "/data\nup\n"})
    assert set(take_snapshot(tree, home).excluded) == {"data", "lib/up"}


def test_pipes_and_sockets_are_left_out_with_a_warning(tree: Path, home: Home) -> None:
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "socket"))
        snapshot = take_snapshot(tree, home)

    (warning,) = snapshot.warnings
    assert "pipe, socket" in warning
    assert snapshot.files == 3


def test_names_of_any_bytes_are_kept(tree: Path, home: Home, clean_environment: Path) -> None:
    names = [b"caf\xe9.txt", "naïve name.txt".encode(), b"new\nline", b"-r", b"x" * 200]
    for name in names:
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_bytes(name)
    target = clean_environment / "unpacked"

    unpack(home.snapshot(take_snapshot(tree, home).code_hash), target)

    assert set(names) <= {os.fsencode(path.name) for path in target.iterdir()}
    assert take_snapshot(tree, home).cached


def test_the_largest_files_are_named_above_100_mb(tree: Path, home: Home) -> None:
    for name, size in (("big.bin", LARGE_BYTES), ("lib/second.bin", 2_000_000)):
        with (tree / name).open("wb") as stream:
            stream.truncate(size)

    snapshot = take_snapshot(tree, home)

    (warning,) = snapshot.warnings
    assert snapshot.largest[:2] == (("big.bin", LARGE_BYTES), ("lib/second.bin", 2_000_000))
    assert "102 MB" in warning
    assert "big.bin (100 MB)" in warning


def test_progress_is_reported(tree: Path, home: Home) -> None:
    reports: list[tuple[str, int, int]] = []

    take_snapshot(tree, home, SnapshotOptions(progress=lambda *how_far: reports.append(how_far)))

    assert reports[-1] == ("pack", 13, 13)
    assert ("read", 13, 13) in reports


def test_an_empty_folder_is_a_snapshot_of_nothing(home: Home, clean_environment: Path) -> None:
    folder = make_tree(clean_environment / "empty", {})

    snapshot = take_snapshot(folder, home)

    assert (snapshot.files, packed_names(home.snapshot(snapshot.code_hash))) == (0, [])


def test_unpacking_gives_the_folder_back(tree: Path, home: Home, clean_environment: Path) -> None:
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "same").symlink_to("lib/a.py")
    target = clean_environment / "unpacked"

    unpack(home.snapshot(take_snapshot(tree, home).code_hash), target)

    assert take_snapshot(target, home).code_hash == take_snapshot(tree, home).code_hash
    assert os.access(target / "run.sh", os.X_OK)
    assert (target / "same").read_text() == "a\n"


def test_the_hash_is_not_that_of_the_file(tree: Path, home: Home) -> None:
    """Who sends a snapshot and checks it by its bytes must hash the file itself."""
    snapshot = take_snapshot(tree, home)

    assert hashlib.sha256(home.snapshot(snapshot.code_hash).read_bytes()).hexdigest() != snapshot.code_hash
