"""Unpacking code: whole or not at all, and nothing lands or leads outside the folder."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from workbench.learner.host.unpack import unpack
from workbench.learner.platform import system
from workbench.learner.platform.errors import Failure

Member = tuple[str, str, bytes]
"""Name, kind (``file``, a link's target after ``sym:`` or ``hard:``, ``fifo``), content."""


def pack(path: Path, members: list[Member]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            if kind == "file":
                info.size = len(content)
            elif kind == "fifo":
                info.type = tarfile.FIFOTYPE
            else:
                info.type = tarfile.SYMTYPE if kind.startswith("sym:") else tarfile.LNKTYPE
                info.linkname = kind.partition(":")[2]
            tar.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize(
    "members",
    [
        [("../outside", "file", b"x")],
        [("a/../../outside", "file", b"x")],
        [("/etc/outside", "file", b"x")],
        [("link", "sym:../outside", b"")],
        [("link", "sym:/etc/passwd", b"")],
        [("link", "hard:../outside", b"")],
        [("deep/a/b/c", "sym:../../..", b""), ("link", "sym:deep/a/b/c/../..", b"")],
        [("a/b/c", "sym:../..", b""), ("l", "sym:a/b/c/..", b""), ("l/../outside", "hard:good", b"")],
        [("a/b/c", "sym:../..", b""), ("l", "sym:a/b/c/..", b""), ("l/outside", "hard:good", b"")],
        [("a/b/c", "sym:../..", b""), ("l", "sym:a/b/c/..", b""), ("l/outside", "sym:good", b"")],
        [("folder/f", "file", b"x"), ("l", "sym:folder", b""), ("l/g", "file", b"x")],
        [("pipe", "fifo", b"")],
    ],
)
def test_what_would_leave_the_folder_is_refused_and_nothing_is_left(
    tmp_path: Path, members: list[Member]
) -> None:
    (tmp_path / "place").mkdir()
    archive = pack(tmp_path / "code.tar.gz", [("good", "file", b"good"), *members])

    with pytest.raises(Failure) as failure:
        unpack(archive, str(tmp_path / "place" / "code"))

    assert failure.value.kind == "bad_input"
    assert list((tmp_path / "place").iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_a_folder_that_was_not_put_there_whole_is_unpacked_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pack(tmp_path / "code.tar.gz", [(f"package/{name}", "file", b"x") for name in "abc"])
    folder = tmp_path / "place" / "code"
    left = [2]
    rename = os.rename

    def is_killed(source: str, target: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        rename(source, target)

    monkeypatch.setattr(system, "loses_moved_folders", lambda path: True)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(os, "rename", is_killed)
        unpack(archive, str(folder))
    assert len(list(folder.rglob("[abc]"))) == 2

    assert unpack(archive, str(folder))

    assert sorted(path.name for path in folder.rglob("[abc]")) == ["a", "b", "c"]
    assert list(folder.parent.iterdir()) == [folder]
    assert not unpack(archive, str(folder))


def test_links_inside_are_kept_and_never_written_through(tmp_path: Path) -> None:
    members = [
        ("link", "sym:folder", b""),
        ("folder/file", "file", b"content"),
        ("copy", "hard:folder/file", b""),
    ]
    archive = pack(tmp_path / "code.tar.gz", members)

    assert unpack(archive, str(tmp_path / "code"))

    assert (tmp_path / "code" / "link").readlink() == Path("folder")
    assert (tmp_path / "code" / "link" / "file").read_bytes() == b"content"
    assert (tmp_path / "code" / "copy").read_bytes() == b"content"
    assert (tmp_path / "code" / "copy").stat().st_nlink == 1


@pytest.mark.parametrize("cut", [0, 10, 100])
def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    archive = Path(pack(tmp_path / "code.tar.gz", [("file", "file", os.urandom(5000))]))
    archive.write_bytes(archive.read_bytes()[: cut or 3])

    with pytest.raises(Failure, match="cannot be unpacked"):
        unpack(str(archive), str(tmp_path / "code"))

    assert not (tmp_path / "code").exists()


def test_no_archive_is_an_empty_folder(tmp_path: Path) -> None:
    assert unpack("", str(tmp_path / "code"))
    assert not unpack("", str(tmp_path / "code"))

    assert list((tmp_path / "code").iterdir()) == []
