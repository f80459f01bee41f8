"""How much code is taken without asking."""

from __future__ import annotations

import random
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.quick.data.support import make_tree, packed_names
from workbench.data.code import pack
from workbench.data.code import scan as scanning
from workbench.data.code.bounds import Bounds, CodeExcess
from workbench.data.code.snapshot import SnapshotOptions, take_snapshot
from workbench.errors import UsageError
from workbench.paths import Home

SMALL = Bounds(size_bytes=60_000)


@pytest.fixture
def large(clean_environment: Path) -> Path:
    files: dict[str, str | bytes] = {f"d/{number:02}.bin": bytes(1000 * number) for number in range(1, 13)}
    return make_tree(clean_environment / "large", files)


def test_more_than_the_bound_is_refused_with_the_ten_largest(
    large: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(scanning, "file_digest", read.append)

    with pytest.raises(UsageError) as caught:
        take_snapshot(large, home, SnapshotOptions(bounds=SMALL))

    first, *lines = caught.value.message.splitlines()
    assert first == (
        f"the code in {large} is 12 files of 78 kB, which is more than is taken without asking; the largest:"
    )
    assert [line.split() for line in lines] == [
        [f"{number}", "kB", f"d/{number:02}.bin"] for number in range(12, 2, -1)
    ]
    assert "--code-anyway" in caught.value.hint
    assert read == []
    assert not list(home.code.iterdir())


def test_it_is_taken_on_request_or_when_somebody_agrees(large: Path, home: Home) -> None:
    asked: list[CodeExcess] = []

    def agree(found: CodeExcess) -> bool:
        asked.append(found)
        return True

    agreed = take_snapshot(large, home, SnapshotOptions(bounds=SMALL, agree=agree))
    snapshot = take_snapshot(large, home, SnapshotOptions(bounds=SMALL, anyway=True))

    assert agreed.files == snapshot.files == 12
    assert [(each.files, each.size_bytes, each.is_whole) for each in asked] == [(12, 78_000, True)]


def test_many_small_files_are_refused_too(large: Path, home: Home) -> None:
    assert take_snapshot(large, home, SnapshotOptions(bounds=Bounds(files=12))).files == 12

    with pytest.raises(UsageError, match="is 12 files of 78 kB"):
        take_snapshot(large, home, SnapshotOptions(bounds=Bounds(files=11)))


def test_what_is_left_out_does_not_count(large: Path, home: Home) -> None:
    make_tree(large, {".fabricignore": "1*.bin\n"})

    assert (
        packed_names(home.snapshot(take_snapshot(large, home, SnapshotOptions(bounds=SMALL)).code_hash))[-1]
        == "d/09.bin"
    )


def test_a_folder_that_takes_long_to_look_through_is_refused(
    large: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_ENTRIES_A_REPORT", 5)
    never = Bounds(seconds=-1)

    with pytest.raises(UsageError, match=r"at least 4 files of 10 kB.*\n +4 kB  d/04\.bin\n"):
        take_snapshot(large, home, SnapshotOptions(bounds=never))

    assert take_snapshot(large, home, SnapshotOptions(bounds=never, agree=lambda _: True)).files == 12


def test_an_archive_is_weighed_before_it_is_unpacked(
    large: Path, home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Path(shutil.make_archive(str(clean_environment / "large"), "zip", large))
    assert archive.stat().st_size < SMALL.size_bytes

    with pytest.raises(UsageError, match=r"12 files of 78 kB"):
        take_snapshot(archive, home, SnapshotOptions(bounds=SMALL))

    assert not list(home.code.iterdir())
    assert take_snapshot(archive, home, SnapshotOptions(bounds=SMALL, anyway=True)).files == 12


def test_progress_of_a_scan_is_reported(large: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_ENTRIES_A_REPORT", 5)
    reports: list[tuple[str, int, int]] = []

    take_snapshot(large, home, SnapshotOptions(progress=lambda *how_far: reports.append(how_far)))

    assert reports[:2] == [("look", 5, 0), ("look", 10, 0)]
    assert reports[-1] == ("pack", 78_000, 78_000)


def test_code_that_is_only_looked_at_leaves_the_home_as_it_is(
    large: Path, home: Home, clean_environment: Path
) -> None:
    scratch = clean_environment / "scratch"
    archive = Path(shutil.make_archive(str(clean_environment / "large"), "zip", large))

    looked = [
        take_snapshot(source, home, SnapshotOptions(scratch=scratch)) for source in (large, archive, large)
    ]

    assert not home.path.exists()
    assert [each.cached for each in looked] == [False, True, True]
    assert Home(scratch).snapshot(looked[0].code_hash).is_file()
    assert take_snapshot(large, home).code_hash == looked[0].code_hash


def test_of_very_much_only_the_beginning_is_packed_to_look_at(
    home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "PREVIEW_BYTES", 3_000_000)
    monkeypatch.setattr(pack, "PREVIEW_PACKED_BYTES", 1_000_000)
    scratch = Home(clean_environment / "scratch")
    noise = random.Random(1).randbytes(9_000_000)
    tree = make_tree(clean_environment / "much", {"a.py": "text", "b.bin": noise})

    looked = take_snapshot(tree, home, SnapshotOptions(scratch=scratch.path))

    beginning = scratch.snapshot(looked.code_hash)
    assert 1_000_000 < beginning.stat().st_size < 5_000_000
    with tarfile.open(beginning) as archive:
        assert (member := archive.next()) is not None
        assert member.name == "a.py"
    assert packed_names(home.snapshot(take_snapshot(tree, home).code_hash)) == ["a.py", "b.bin"]
