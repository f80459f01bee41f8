"""Packs of code: parts that can be taken over and sent alone, and the same bytes whoever packs."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from workbench.data.code import pack as packing
from workbench.data.code.pack import MEMBER_BYTES, listing_of, read_listing, remove_pack
from workbench.data.code.scan import CodeEntry
from workbench.data.code.snapshot import take_snapshot
from workbench.paths import Home


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two large files, one of which gains nothing by compression, and many small ones."""
    folder = tmp_path / "tree"
    (folder / "small").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(os.urandom(2 * MEMBER_BYTES))
    (folder / "table.csv").write_bytes(b"1,2,3\n" * MEMBER_BYTES)
    for number in range(400):
        (folder / "small" / f"m{number:03}.py").write_text(f"x = {number}\n" * 1000)
    (folder / "link").symlink_to("table.csv")
    return folder


def pack_of(tree: Path, home: Home) -> Path:
    return home.snapshot(take_snapshot(tree, home).code_hash)


def content_of(pack: Path) -> dict[str, bytes]:
    with tarfile.open(pack) as archive:
        files = [member for member in archive if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in files}  # type: ignore[union-attr]


def test_each_member_of_a_pack_can_be_read_alone(tree: Path, home: Home) -> None:
    pack = pack_of(tree, home)
    members = read_listing(pack)
    data = pack.read_bytes()

    assert len(members) > 4
    for member in members:
        part = gzip.decompress(data[member.offset : member.offset + member.size_bytes])
        with tarfile.open(fileobj=io.BytesIO(part)) as archive:
            assert archive.getnames() == [entry.path for entry in member.entries]
    large = [member for member in members if any(entry.size > MEMBER_BYTES for entry in member.entries)]
    assert [len(member.entries) for member in large] == [1, 1]
    assert {entry.path: entry.size for member in members for entry in member.entries}["table.csv"] == 6 << 20
    assert content_of(pack)["weights.bin"] == (tree / "weights.bin").read_bytes()


def test_a_pack_of_changed_code_reads_only_what_changed_and_has_the_bytes_of_a_new_one(
    tree: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_of(tree, home)
    (tree / "small" / "m007.py").write_text("changed\n")
    read: list[str] = []
    add = packing._add

    def noted(archive: tarfile.TarFile, folder: Path, entry: CodeEntry, progress: object) -> None:
        read.append(entry.path)
        add(archive, folder, entry, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(packing, "_add", noted)
    changed = pack_of(tree, home)

    assert "small/m007.py" in read
    assert not {"weights.bin", "table.csv"} & set(read)
    assert changed.read_bytes() == pack_of(tree, Home(tmp_path / "other")).read_bytes()


@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_an_earlier_pack_that_is_damaged_is_not_relied_upon(tree: Path, home: Home, harm: str) -> None:
    before = pack_of(tree, home)
    if harm == "cut":
        os.truncate(before, 100)
    else:
        before.unlink()
    (tree / "new.py").write_text("x\n")

    found = content_of(pack_of(tree, home))

    assert found["weights.bin"] == (tree / "weights.bin").read_bytes()
    assert found["new.py"] == b"x\n"


def test_what_says_what_a_pack_holds_goes_with_it(tree: Path, home: Home) -> None:
    pack = pack_of(tree, home)
    assert listing_of(pack).exists()

    remove_pack(pack)

    assert not [path for path in home.code.iterdir() if path.is_file()]
