"""``fabric download`` copies whole folders or nothing, and over nothing unless an option allows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from tests.support.command import Fabric
from workbench.errors import CannotWrite
from workbench.job import State
from workbench.learner.platform.files import MOVING, put_folder
from workbench.paths import Home
from workbench.services.transfer.extract import write_folder
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow


@pytest.fixture
def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        row = add_job(store, "done", State.COMPLETED)
    folder = home.job(row.id)
    (folder.results / "deep").mkdir(parents=True)
    (folder.results / "deep" / "model.bin").write_bytes(b"\x00\x01")
    (folder.results / "link").symlink_to("deep/model.bin")
    folder.checkpoints.mkdir(exist_ok=True)
    (folder.checkpoints / "step-1").write_text("1")
    write_output(folder_of(home, row), [b"printed\n"])
    return row


def test_results_come_to_a_folder_named_after_the_job(fabric: Fabric, row: JobRow) -> None:
    output = fabric("download", "done").stdout

    there = fabric.folder / row.id / "results"
    assert output == f"{row.id}/results\n"
    assert (there / "deep" / "model.bin").read_bytes() == b"\x00\x01"
    assert (there / "link").is_symlink()


def test_several_kinds_at_once(fabric: Fabric, row: JobRow) -> None:
    written = fabric.json("download", "done", "checkpoints", "logs", "--to", "out", "--json")["folders"]

    assert (Path(written["checkpoints"]) / "step-1").read_text() == "1"
    assert (Path(written["logs"]) / "learner-1.log").read_bytes() == b"printed\n"


def test_what_is_there_is_kept_unless_it_may_be_overwritten(fabric: Fabric, row: JobRow) -> None:
    fabric("download", "done")
    kept = fabric.folder / row.id / "results" / "mine"
    kept.write_text("mine")

    refused = fabric("download", "done", expect=73)
    assert "already exists" in refused.stderr
    assert "--force" in refused.stderr
    assert kept.exists()

    fabric("download", "done", "--force")
    assert not kept.exists()
    assert sorted(path.name for path in (fabric.folder / row.id).iterdir()) == ["results"]


def test_what_a_job_does_not_have_is_reported(fabric: Fabric, row: JobRow) -> None:
    assert "has no code" in fabric("download", "done", "code", expect=66).stderr
    assert not (fabric.folder / row.id / "code").exists()


def test_a_failure_on_the_way_leaves_everything_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "results"
    target.mkdir()
    (target / "old").write_text("old")

    def fail(place: Path) -> None:
        (place / "half").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CannotWrite, match="No space left on device"):
        write_folder(target, fail, force=True)

    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert (target / "old").read_text() == "old"


def old_folder(parent: Path) -> Path:
    folder = parent / "results"
    folder.mkdir()
    (folder / "old").write_text("old")
    return folder


def write_new(folder: Path) -> None:
    (folder / "new").write_text("new")


def put_and_interrupt(made: str, folder: str) -> None:
    put_folder(made, folder)
    raise KeyboardInterrupt


def put_half(made: str, folder: str) -> None:
    Path(folder + MOVING).touch()
    Path(folder).mkdir()
    (Path(folder) / "half").write_text("half")
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize(
    ("put", "raises"),
    [(put_and_interrupt, KeyboardInterrupt), (put_half, CannotWrite)],
    ids=["ctrl-c", "half"],
)
def test_what_was_there_comes_back_where_the_last_step_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[str, str], None],
    raises: type[BaseException],
) -> None:
    target = old_folder(tmp_path)
    monkeypatch.setattr("workbench.services.transfer.extract.put_folder", put)

    with pytest.raises(raises):
        write_folder(target, write_new, force=True)

    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert [path.name for path in target.iterdir()] == ["old"]


def test_what_somebody_else_puts_there_meanwhile_stays_and_the_error_names_where_the_old_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = old_folder(tmp_path)

    def put_second(made: str, folder: str) -> None:
        Path(folder).mkdir()
        (Path(folder) / "theirs").write_text("theirs")
        put_folder(made, folder)

    monkeypatch.setattr("workbench.services.transfer.extract.put_folder", put_second)

    with pytest.raises(CannotWrite, match="what was there is in ") as refused:
        write_folder(target, write_new, force=True)

    kept = Path(str(refused.value).rpartition(" is in ")[2])
    assert (kept / "old").read_text() == "old"
    assert [path.name for path in target.iterdir()] == ["theirs"]
