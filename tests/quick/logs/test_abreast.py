from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.cli.journals import write_output
from workbench.errors import FabricError, PatternTooSlow
from workbench.logs import parallel_search
from workbench.logs.grep import Pattern
from workbench.paths import LearnerFolder


@pytest.fixture
def folders(tmp_path: Path) -> list[LearnerFolder]:
    made = []
    for number in range(7):
        folder = LearnerFolder(tmp_path / str(number))
        folder.path.mkdir()
        write_output(folder, [f"line {line} of {number}\n".encode() for line in range(1200)])
        made.append(folder)
    (tmp_path / "nothing").mkdir()
    return [*made, LearnerFolder(tmp_path / "nothing")]


@pytest.mark.parametrize("worth", [1, 1 << 40], ids=["several processes", "one process"])
@pytest.mark.parametrize("most", [None, 2])
def test_hits_come_in_the_order_of_the_folders_however_many_search(
    folders: list[LearnerFolder], monkeypatch: pytest.MonkeyPatch, worth: int, most: int | None
) -> None:
    monkeypatch.setattr(parallel_search, "PARALLEL_BYTES_MIN", worth)

    found = [
        (number, line) for number, (_, line) in parallel_search.search(folders, Pattern("line .* of"), most)
    ]

    kept = 1200 if most is None else most
    assert found == [
        (number, f"line {line} of {number}".encode()) for number in range(7) for line in range(kept)
    ]


def test_a_search_that_is_left_leaves_no_process(
    folders: list[LearnerFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_search, "PARALLEL_BYTES_MIN", 1)
    before = set(psutil.Process().children())

    with closing(parallel_search.search(folders, Pattern("line"))) as found:
        assert next(found)[0] == 0
        assert set(psutil.Process().children()) > before

    assert set(psutil.Process().children()) <= before


def test_a_log_that_cannot_be_read_is_reported(
    folders: list[LearnerFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_search, "PARALLEL_BYTES_MIN", 1)
    folders[3].index.unlink()
    # A folder in memory is as large as what is in it, and an empty index is not read.
    for number in range(20):
        (folders[3].index / str(number)).mkdir(parents=True)

    with pytest.raises(FabricError, match="cannot be read"):
        list(parallel_search.search(folders, Pattern("line")))


def test_an_expression_that_runs_on_ends_the_search_by_its_name(
    folders: list[LearnerFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_search, "PARALLEL_BYTES_MIN", 1)
    monkeypatch.setattr("workbench.expression.SECONDS_MAX", 0.2)
    write_output(folders[3], [b"loss step " * 800 + b"\n"])

    with pytest.raises(PatternTooSlow, match=r"/loss\.\*step\.\*x\$/ takes too long"):
        list(parallel_search.search(folders, Pattern("loss.*step.*x$")))
