"""The code that a host keeps by content: each job gets its own, and nothing lands outside it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from workbench.learner.host import code_store
from workbench.learner.platform.errors import Failure

HASH = "c0de"


def entry(path: str, content: bytes = b"", kind: str = "file", target: str = "") -> list[Any]:
    digest = hashlib.sha256(content).hexdigest() if kind == "file" else ""
    return [path, kind, path.endswith(".sh"), len(content), digest, target]


def archive(folder: Path, *contents: bytes) -> str:
    path = folder / "part.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number, content in enumerate(contents):
            info = tarfile.TarInfo(f"f{number}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "code")


def test_only_what_is_lacking_is_asked_for(store: str, tmp_path: Path) -> None:
    contents = [b"one", b"two"]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    assert code_store.find_missing(store, digests) == [0, 1]

    code_store.keep(store, HASH, [entry("a", b"one")], archive(tmp_path, b"one"))

    assert code_store.find_missing(store, digests) == [1]
    assert not list(tmp_path.glob("part*"))


def test_each_job_has_code_of_its_own_to_write_to(store: str, tmp_path: Path) -> None:
    entries = [
        entry("pkg", kind="folder"),
        entry("pkg/run.sh", b"echo\n"),
        entry("l", kind="link", target="pkg/run.sh"),
    ]
    code_store.keep(store, HASH, entries, archive(tmp_path, b"echo\n"))
    first, second, third = (tmp_path / "jobs" / name for name in ("1", "2", "3"))
    assert code_store.copy_code(store, HASH, [str(first), str(second)])

    with (first / "pkg" / "run.sh").open("r+b") as stream:  # in place, as an editor may
        stream.write(b"harm")
    (first / "pkg" / "run.sh").chmod(0o777)
    assert code_store.copy_code(store, HASH, [str(third)])

    for folder in (second, third):
        assert (folder / "pkg" / "run.sh").read_bytes() == b"echo\n"
        assert (folder / "pkg" / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (folder / "l").readlink() == Path("pkg/run.sh")


def test_code_that_is_not_all_there_is_not_placed_at_all(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "1"
    assert not code_store.copy_code(store, HASH, [str(folder)])
    code_store.keep(store, HASH, [entry("a", b"one"), entry("b", b"two")], archive(tmp_path, b"one", b"two"))
    (gone,) = Path(store).rglob(hashlib.sha256(b"two").hexdigest())
    gone.unlink()

    assert not code_store.copy_code(store, HASH, [str(folder)])
    assert not list(folder.parent.iterdir())


def test_a_content_that_did_not_arrive_is_refused(store: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="'b' has not arrived"):
        code_store.keep(store, HASH, [entry("b", b"two")], archive(tmp_path, b"forged"))
    assert code_store.read_listing(store, HASH) is None


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../out", b"x")],
        [entry("/tmp/out", b"x")],
        [entry("l", kind="link", target="../../out")],
        [entry("l", kind="link", target="."), entry("l/a", b"x")],
    ],
)
def test_nothing_lands_or_leads_outside(store: str, tmp_path: Path, entries: list[list[Any]]) -> None:
    code_store.keep(store, HASH, entries, archive(tmp_path, b"x"))
    folder = tmp_path / "jobs" / "1"

    with pytest.raises((Failure, OSError)):
        code_store.copy_code(store, HASH, [str(folder)])

    assert not folder.exists()
    assert not list(tmp_path.rglob("out"))


def test_a_damaged_archive_leaves_nothing(store: str, tmp_path: Path) -> None:
    path = Path(archive(tmp_path, b"one" * 10_000))
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(Failure):
        code_store.keep(store, HASH, [entry("a", b"one")], str(path))

    assert not path.exists()
    assert not list(Path(store).rglob(".taking-*"))
    assert code_store.read_listing(store, HASH) is None


def test_two_launches_that_send_the_same_archive_both_succeed(store: str, tmp_path: Path) -> None:
    part = archive(tmp_path, b"one")
    code_store.keep(store, HASH, [entry("a", b"one")], part)
    code_store.keep(store, HASH, [entry("a", b"one")], part)

    assert not Path(part).exists()
    assert code_store.copy_code(store, HASH, [str(tmp_path / "job")])


def test_a_content_that_was_cut_short_is_sent_again(store: str, tmp_path: Path) -> None:
    entries = [entry("a", b"one"), entry("b", b"two")]
    code_store.keep(store, HASH, entries, archive(tmp_path, b"one", b"two"))
    digests = [each[4] for each in entries]
    (content,) = Path(store, "files").glob(f"*/{digests[1]}")
    content.write_bytes(b"")

    assert not code_store.copy_code(store, HASH, [str(tmp_path / "job")])
    assert not (tmp_path / "job").exists()
    assert code_store.find_missing(store, digests) == [1]


def test_names_of_files_are_checked(store: str) -> None:
    with pytest.raises(Failure):
        code_store.find_missing(store, ["../../../etc/passwd"])
    with pytest.raises(Failure):
        code_store.copy_code(store, "../x", [])


def test_a_listing_that_is_damaged_counts_as_none(store: str, tmp_path: Path) -> None:
    code_store.keep(store, HASH, [entry("a", b"one")], archive(tmp_path, b"one"))
    (Path(store) / f"{HASH}.list").write_text(json.dumps({"no": "list"}))

    assert not code_store.copy_code(store, HASH, [str(tmp_path / "job")])
