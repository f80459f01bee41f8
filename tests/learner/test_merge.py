"""What was made elsewhere goes into a job's folders: never outside of them, and never over what is newer there."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.learner.host.merge import merge_sent, merge_tree, remove_deleted
from workbench.learner.platform.errors import Failure
from workbench.learner.pod import config, init_container

OLD, NEW = 1_000_000_000_123_456_789, 2_000_000_000_123_456_789


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """Where files are sent to."""
    folder = tmp_path / "sent"
    folder.mkdir()
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The job's folder for checkpoints."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def write(path: Path, text: str, changed_ns: int = OLD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(changed_ns, changed_ns))


def pack(archive: Path, folder: Path, names: Iterable[str]) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            tar.add(folder / name, name)


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_small_and_large_files_and_links_go_where_they_belong_with_their_times(
    sent: Path, job: Path, tmp_path: Path
) -> None:
    write(tmp_path / "made" / "checkpoints" / "a" / "small", "small")
    (tmp_path / "made" / "checkpoints" / "last").symlink_to("a")
    pack(sent / "small.tar.gz", tmp_path / "made", ["checkpoints"])
    write(sent / "large" / "checkpoints" / "a" / "large", "large")
    times = {"checkpoints/a/small": OLD, "checkpoints/a/large": OLD}

    merge_sent(str(sent), {"checkpoints": str(job)}, times)

    assert content(job) == {"a/small": "small", "a/large": "large", "last": "a"}
    assert [(job / "a" / name).stat().st_mtime_ns for name in ("small", "large")] == [OLD, OLD]
    assert not sent.exists()


def test_what_is_newer_stays_and_what_is_older_goes(sent: Path, job: Path) -> None:
    write(job / "newer", "there", NEW)
    write(job / "older", "there", OLD - 1)
    write(job / "folder" / "inside", "there", OLD - 1)
    for name in ("newer", "older", "folder"):
        write(sent / name, "sent")

    merge_tree(str(sent), str(job))

    assert content(job) == {"newer": "there", "older": "sent", "folder/inside": "there"}


def test_what_a_merge_has_left_that_was_cut_off_is_not_taken(sent: Path, job: Path, tmp_path: Path) -> None:
    write(sent / "small" / "checkpoints" / "half", "ha")
    write(tmp_path / "made" / "checkpoints" / "whole", "whole")
    pack(sent / "small.tar.gz", tmp_path / "made", ["checkpoints"])

    merge_sent(str(sent), {"checkpoints": str(job)}, {})

    assert content(job) == {"whole": "whole"}


def test_nothing_is_written_through_a_link_that_a_job_has_put_into_the_way(
    sent: Path, job: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (job / "a").symlink_to(tmp_path / "elsewhere")
    write(sent / "a" / "file", "sent")

    with pytest.raises(OSError, match="it leads out of its folder"):
        merge_tree(str(sent), str(job))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_archive_with_a_link_that_leads_out_is_refused(sent: Path, job: Path, tmp_path: Path) -> None:
    (tmp_path / "made" / "checkpoints").mkdir(parents=True)
    (tmp_path / "made" / "checkpoints" / "out").symlink_to("/etc")
    pack(sent / "small.tar.gz", tmp_path / "made", ["checkpoints"])

    with pytest.raises(Failure, match="link out of its folder"):
        merge_sent(str(sent), {"checkpoints": str(job)}, {})
    assert content(job) == {}


def test_a_pod_on_a_volume_that_has_something_newer_keeps_that(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "made" / "checkpoints" / "a" / "old", "sent")
    write(tmp_path / "made" / "checkpoints" / "a" / "same", "sent")
    write(tmp_path / "made" / "results" / "table", "sent")
    write(job / "a" / "same", "there", NEW)
    (tmp_path / "results").mkdir()
    made = tmp_path / "made.tar.gz"
    pack(made, tmp_path / "made", ["checkpoints", "results"])
    monkeypatch.setattr(init_container, "MADE", str(made))
    monkeypatch.setattr(config, "JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setattr(config, "CHECKPOINTS", str(job))
    monkeypatch.setattr(config, "RESULTS", str(tmp_path / "results"))

    init_container.restore(SimpleNamespace(document={"restores": True}, number=lambda _: 1.0))  # type: ignore[arg-type]

    assert content(job) == {"a/old": "sent", "a/same": "there"}
    assert content(tmp_path / "results") == {"table": "sent"}
    assert not made.exists()


def test_what_was_deleted_elsewhere_goes_with_the_folders_that_it_leaves_empty(
    job: Path, tmp_path: Path
) -> None:
    write(job / "1" / "rank" / "weights", "old")
    write(job / "2" / "weights", "old")
    write(job / "2" / "more", "kept")
    write(tmp_path / "theirs" / "weights", "not the job's")
    (job / "out").symlink_to(tmp_path / "theirs")

    remove_deleted(
        {"checkpoints": str(job)},
        {"checkpoints": ["1/rank/weights", "2/weights", "out/weights", "../theirs/weights", "none"]},
    )

    assert content(job) == {"2/more": "kept", "out": str(tmp_path / "theirs")}
    assert not (job / "1").exists()
    assert (tmp_path / "theirs" / "weights").exists()
