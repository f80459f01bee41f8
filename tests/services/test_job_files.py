"""Files of a job, listed, read, copied and downloaded; and what is left of a copy that is called off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from runners.process.runner import ProcessRunner
from tests.cli.jobs import add_job
from workbench.errors import InputMissing
from workbench.job import State
from workbench.paths import Home
from workbench.services.cancel import Cancelled
from workbench.services.transfer.download import DownloadOptions, download_job
from workbench.services.transfer.job_copy import WhichLearner, copy_here, copy_there
from workbench.services.transfer.job_files import files_here, list_files, read_beginning
from workbench.services.transfer.store_upload import upload_folder
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow


@pytest.fixture
def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        row = add_job(store, "done", State.COMPLETED)
    folder = home.job(row.id)
    (folder.results / "deep").mkdir(parents=True)
    (folder.results / "deep" / "model.bin").write_bytes(b"weights")
    (folder.results / "notes.txt").write_text("the best so far")
    return row


def test_files_are_listed_with_the_folders_that_they_lie_in(row: JobRow) -> None:
    found = list_files(row.id, "results")

    assert (found.job_id, found.attempt, found.learner) == (row.id, 1, 1)
    assert [(each.path, each.kind, each.is_asked) for each in found.files] == [
        ("results", "folder", True),
        ("results/deep", "folder", False),
        ("results/deep/model.bin", "file", False),
        ("results/notes.txt", "file", False),
    ]


def test_a_path_that_is_not_there_is_named(row: JobRow) -> None:
    with pytest.raises(InputMissing, match="has no results/none"):
        list_files(row.id, "results/none")


def test_files_of_this_machine_are_found_without_asking_anybody(home: Home, row: JobRow) -> None:
    found = files_here(home.job(row.id), 10)

    assert {(each.path, each.size_bytes) for each in found} == {
        ("results/deep/model.bin", 7), ("results/notes.txt", 15),
    }  # fmt: skip
    assert len(files_here(home.job(row.id), 1)) == 1


def test_of_a_file_only_the_beginning_is_read(home: Home, row: JobRow) -> None:
    found = read_beginning(home, row.id, "results/notes.txt", 8)

    assert (found.data, found.size_bytes) == (b"the best", 15)


def test_a_file_that_is_not_in_the_home_is_read_at_the_backend(
    home: Home, row: JobRow, tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text("step 1\n")
    copy_there(WhichLearner(row.id), tmp_path / "train.log", "code/")

    assert read_beginning(home, row.id, "code/train.log", 100).data == b"step 1\n"


def test_a_copy_that_was_called_off_leaves_nothing(row: JobRow, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()

    for path in ("results/notes.txt", "results"):
        with pytest.raises(Cancelled):
            copy_here(WhichLearner(row.id), path, str(tmp_path / "copy"), cancel=cancel)

    assert list(tmp_path.iterdir()) == []


def cancelled_in_the_middle(monkeypatch: pytest.MonkeyPatch, cancel: threading.Event) -> None:
    """Have ``cancel`` set when the first bytes of a job's files have come."""
    fetch = ProcessRunner.fetch

    def slow(self: ProcessRunner, learner: Any, path: str, receive: Callable[[BinaryIO], None]) -> None:
        def take(stream: BinaryIO) -> None:
            cancel.set()
            receive(stream)

        fetch(self, learner, path, take)

    monkeypatch.setattr(ProcessRunner, "fetch", slow)


@pytest.mark.parametrize("path", ["results/notes.txt", "results"])
def test_a_copy_that_is_called_off_in_its_middle_leaves_nothing(
    row: JobRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    cancel = threading.Event()
    cancelled_in_the_middle(monkeypatch, cancel)

    with pytest.raises(Cancelled):
        copy_here(WhichLearner(row.id), path, str(tmp_path / "copy"), cancel=cancel)

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_put_into_a_job_once_that_was_called_off(home: Home, row: JobRow, tmp_path: Path) -> None:
    cancel = threading.Event()
    (tmp_path / "more.txt").write_text("more")
    copied = copy_there(WhichLearner(row.id), tmp_path / "more.txt", "results/")
    cancel.set()

    with pytest.raises(Cancelled):
        copy_there(WhichLearner(row.id), tmp_path / "more.txt", "results/again.txt", cancel=cancel)

    assert (copied.job_id, copied.files, copied.size_bytes) == (row.id, 1, 4)
    assert (home.job(row.id).results / "more.txt").is_file()
    assert not (home.job(row.id).results / "again.txt").exists()


def test_kinds_are_downloaded_into_folders_of_their_names(row: JobRow, tmp_path: Path) -> None:
    done = download_job(row.id, ["results"], str(tmp_path / "out"), DownloadOptions())

    assert done.row.id == row.id
    assert done.folders == {"results": tmp_path / "out" / "results"}
    assert (tmp_path / "out" / "results" / "deep" / "model.bin").read_bytes() == b"weights"


def test_a_download_that_is_called_off_in_its_middle_leaves_nothing(
    row: JobRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = threading.Event()
    names: list[str] = []

    def copy(folder: int, name: str, above: int, to: str) -> None:
        names.append(name)
        cancel.set()

    monkeypatch.setattr("workbench.learner.platform.beneath.copy_file", copy)

    with pytest.raises(Cancelled):
        download_job(row.id, ["results"], str(tmp_path / "out"), DownloadOptions(cancel=cancel))

    assert len(names) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_an_upload_that_was_called_off_reaches_no_store(tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()

    with pytest.raises(Cancelled):
        upload_folder(tmp_path, "nowhere:data", cancel=cancel)
