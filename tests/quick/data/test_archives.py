from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.quick.data.support import make_tree, packed_content, packed_names
from workbench.data.code.snapshot import take_snapshot
from workbench.errors import CannotWrite, InputMissing
from workbench.paths import Home

FILES = {"train.py": "print(1)\n", "lib/a.py": "a\n"}


def zip_of(path: Path, *members: tuple[str, bytes, int]) -> Path:
    """Write a zip of names, contents and modes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            # Without a mode as DOS wrote it: only the archive bit.
            info.external_attr = mode << 16 or 0x20
            archive.writestr(info, content)
    return path


def tar_of(path: Path, *members: tuple[str, bytes, bytes, str]) -> Path:
    """Write a tar of names, types, contents and link targets."""
    with tarfile.open(path, "w") as archive:
        for name, kind, content, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(content), target, 0o644
            archive.addfile(info, io.BytesIO(content))
    return path


def link(name: str, target: str) -> tuple[str, bytes, int]:
    return name, target.encode(), stat.S_IFLNK | 0o777


def file(name: str, content: bytes = b"x") -> tuple[str, bytes, int]:
    return name, content, stat.S_IFREG | 0o644


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def packed(folder: Path, tree: Path, name: str) -> Path:
    """Pack a tree by a program of the standard library, as a user would."""
    path = folder / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside in sorted(tree.rglob("*")):
                archive.write(inside, inside.relative_to(tree))
    else:
        plain = folder / "plain.tar"
        with tarfile.open(plain, "w") as archive:
            archive.add(tree, ".")
        path.write_bytes(COMPRESSED[path.suffix](plain.read_bytes()))
        plain.unlink()
    return path


@pytest.fixture
def tree(clean_environment: Path) -> Path:
    tree = make_tree(clean_environment / "code", FILES)
    (tree / "lib" / "a.py").chmod(0o755)
    return tree


@pytest.mark.parametrize("name", ["code.zip", "code.tar", "code.tar.gz", "code.tar.bz2", "code.tar.xz"])
def test_an_archive_is_the_same_snapshot_as_its_folder(
    tree: Path, home: Home, clean_environment: Path, name: str
) -> None:
    snapshot = take_snapshot(packed(clean_environment, tree, name), home)

    assert snapshot.code_hash == take_snapshot(tree, home).code_hash
    assert (snapshot.files, snapshot.size_bytes) == (2, 11)


def test_an_archive_is_known_by_its_content_not_its_name(
    tree: Path, home: Home, clean_environment: Path
) -> None:
    path = packed(clean_environment, tree, "code.zip").rename(clean_environment / "model.bin")

    assert take_snapshot(path, home).code_hash == take_snapshot(tree, home).code_hash


@pytest.mark.usefixtures("settled")
def test_an_unchanged_archive_is_not_unpacked_again(
    tree: Path, home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(clean_environment, tree, "code.zip")
    first = take_snapshot(path, home)

    def never(*_: object) -> list[str]:
        raise AssertionError("unpacked again")

    monkeypatch.setattr("workbench.data.code.archives.extract", never)
    second = take_snapshot(path, home)

    assert (second.code_hash, second.files, second.cached) == (first.code_hash, 2, True)


def test_a_changed_archive_is_seen(tree: Path, home: Home, clean_environment: Path) -> None:
    first = take_snapshot(packed(clean_environment, tree, "code.zip"), home)
    (tree / "train.py").write_text("print(2)\n")

    assert take_snapshot(packed(clean_environment, tree, "code.zip"), home).code_hash != first.code_hash


def test_ignore_files_do_not_count_in_an_archive_but_git_stays_out(
    home: Home, clean_environment: Path
) -> None:
    path = zip_of(
        clean_environment / "c.zip", file(".gitignore", b"*.log\n"), file("a.log"), file(".git/config")
    )

    assert packed_names(home.snapshot(take_snapshot(path, home).code_hash)) == [".gitignore", "a.log"]


def test_scripts_of_an_archive_without_modes_can_be_executed(home: Home, clean_environment: Path) -> None:
    path = zip_of(
        clean_environment / "c.zip", ("run.sh", b"#!/bin/sh\n", 0), ("a.py", b"a", 0), ("x\\y.py", b"b", 0)
    )

    with tarfile.open(home.snapshot(take_snapshot(path, home).code_hash)) as archive:
        modes = {member.name: member.mode for member in archive if member.isfile()}

    assert modes == {"run.sh": 0o755, "a.py": 0o644, "x/y.py": 0o644}


ESCAPES: list[tuple[str, Callable[[Path], Path], str]] = [
    ("zip up", lambda folder: zip_of(folder / "c.zip", file("ok"), file("../evil")), "../evil"),
    ("zip inner up", lambda folder: zip_of(folder / "c.zip", file("a/../../evil")), "a/../../evil"),
    ("zip absolute", lambda folder: zip_of(folder / "c.zip", file("/tmp/evil")), "/tmp/evil is absolute"),
    ("zip drive", lambda folder: zip_of(folder / "c.zip", file("C:\\evil")), "is absolute"),
    ("zip backslash up", lambda folder: zip_of(folder / "c.zip", file("..\\evil")), "../evil"),
    ("zip link out", lambda folder: zip_of(folder / "c.zip", link("l", "../out")), "l is a link to ../out"),
    ("zip link absolute", lambda folder: zip_of(folder / "c.zip", link("l", "/etc/passwd")), "/etc/passwd"),
    (
        "zip through link",
        lambda folder: zip_of(folder / "c.zip", link("l", "."), file("l/x")),
        "goes through a link",
    ),
    ("tar up", lambda folder: tar_of(folder / "c.tar", ("../evil", tarfile.REGTYPE, b"x", "")), "../evil"),
    (
        "tar absolute",
        lambda folder: tar_of(folder / "c.tar.gz", ("/evil", tarfile.REGTYPE, b"x", "")),
        "absolute",
    ),
    (
        "tar chain of links out",
        lambda folder: tar_of(
            folder / "c.tar",
            ("a/b/c", tarfile.SYMTYPE, b"", "../.."),
            ("l", tarfile.SYMTYPE, b"", "a/b/c/.."),
        ),
        "l is a link to a/b/c/.., which is outside",
    ),
    (
        "zip chain of links out",
        lambda folder: zip_of(folder / "c.zip", link("a/b/c", "../.."), link("l", "a/b/c/..")),
        "l is a link to a/b/c/.., which is outside",
    ),
    (
        "tar link out",
        lambda folder: tar_of(folder / "c.tar", ("l", tarfile.SYMTYPE, b"", "../x")),
        "which is outside",
    ),
    (
        "tar copy out",
        lambda folder: tar_of(folder / "c.tar", ("l", tarfile.LNKTYPE, b"", "/etc/passwd")),
        "outside",
    ),
    (
        "tar through link",
        lambda folder: tar_of(
            folder / "c.tar", ("l", tarfile.SYMTYPE, b"", "."), ("l/x", tarfile.REGTYPE, b"x", "")
        ),
        "goes through a link",
    ),
]


@pytest.mark.parametrize(
    ("make", "message"), [case[1:] for case in ESCAPES], ids=[case[0] for case in ESCAPES]
)
def test_an_archive_that_would_write_outside_is_refused_and_leaves_nothing(
    home: Home, clean_environment: Path, make: Callable[[Path], Path], message: str
) -> None:
    path = make(clean_environment)
    before = {path.name for path in clean_environment.iterdir()}

    with pytest.raises(InputMissing) as caught:
        take_snapshot(path, home)

    assert message in caught.value.message
    assert list(home.code.iterdir()) == []
    assert {path.name for path in clean_environment.iterdir()} - {"fabric"} == before


def test_links_inside_an_archive_are_kept(home: Home, clean_environment: Path) -> None:
    path = zip_of(clean_environment / "c.zip", file("lib/a.py", b"a"), link("lib/b.py", "../lib/a.py"))

    with tarfile.open(home.snapshot(take_snapshot(path, home).code_hash)) as archive:
        assert archive.getmember("lib/b.py").linkname == "../lib/a.py"


def test_a_tar_s_hard_links_become_files_and_its_devices_a_warning(
    home: Home, clean_environment: Path
) -> None:
    path = tar_of(
        clean_environment / "c.tar",
        ("./a", tarfile.REGTYPE, b"content", ""),
        ("./b", tarfile.LNKTYPE, b"", "./a"),
        ("pipe", tarfile.FIFOTYPE, b"", ""),
    )

    snapshot = take_snapshot(path, home)

    assert packed_content(home.snapshot(snapshot.code_hash), "b") == b"content"
    assert "pipe" in snapshot.warnings[0]


def test_a_name_that_comes_twice_has_its_later_content(home: Home, clean_environment: Path) -> None:
    path = tar_of(
        clean_environment / "c.tar", ("a", tarfile.REGTYPE, b"old", ""), ("a", tarfile.REGTYPE, b"new", "")
    )

    assert packed_content(home.snapshot(take_snapshot(path, home).code_hash), "a") == b"new"


def damaged_zip(folder: Path) -> Path:
    path = zip_of(folder / "c.zip", file("a", b"hello hello hello"))
    path.write_bytes(path.read_bytes().replace(b"hello hello hello", b"HELLO hello hello"))
    return path


def cut_tar(folder: Path) -> Path:
    whole = tar_of(folder / "whole", ("a", tarfile.REGTYPE, os.urandom(100_000), "")).read_bytes()
    path = folder / "c.tar.gz"
    path.write_bytes(gzip.compress(whole)[:50_000])
    return path


def file_and_folder(folder: Path) -> Path:
    return zip_of(folder / "c.zip", file("a"), file("a/b"))


def lost_copy(folder: Path) -> Path:
    return tar_of(folder / "c.tar", ("b", tarfile.LNKTYPE, b"", "gone"))


@pytest.mark.parametrize("make", [damaged_zip, cut_tar, file_and_folder, lost_copy])
def test_a_damaged_archive_is_a_sentence_and_leaves_nothing(
    home: Home, clean_environment: Path, make: Callable[[Path], Path]
) -> None:
    path = make(clean_environment)

    with pytest.raises(InputMissing, match="damaged"):
        take_snapshot(path, home)

    assert list(home.code.iterdir()) == []


def test_an_archive_larger_than_the_disk_is_refused_beforehand(
    tree: Path, home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(clean_environment, tree, "code.zip")
    free = shutil.disk_usage(clean_environment)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)

    with pytest.raises(CannotWrite, match=r"needs 11 bytes unpacked, and .* has 10 left"):
        take_snapshot(path, home)

    assert list(home.code.iterdir()) == []
