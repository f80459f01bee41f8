"""Files that are replaced, truncated, removed or live shortly: every point of theirs comes out, once."""

from __future__ import annotations

import json
import select
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.learner.collecting import Rig, context
from tests.support.processes import open_descriptors
from workbench.learner.collectors.emetrics import EmetricsCollector

Replace = Callable[[Path, bytes], None]


def rig(tmp_path: Path) -> Rig:
    where = context(tmp_path)
    return Rig(lambda: EmetricsCollector({}, where))


def metrics_file(tmp_path: Path, folder: str = "") -> Path:
    path = tmp_path / "job" / "logs" / folder / "evaluation-metrics.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def lines(first: int, last: int) -> bytes:
    def line(step: int) -> str:
        return json.dumps({"etimes": {"step": step}, "values": {"loss": step / 2}})

    return "".join(line(step) + "\n" for step in range(first, last + 1)).encode()


def steps(found: Rig, subid: str = "") -> list[int | None]:
    return [step for step, _value in found.points.get(("", subid, "loss"), [])]


def by_rename(path: Path, data: bytes) -> None:
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def by_truncating(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def by_removing(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


EVERY_WAY = pytest.mark.parametrize("replace", [by_rename, by_truncating, by_removing])


@EVERY_WAY
@pytest.mark.parametrize("last", [150, 199, 200, 220])
def test_other_content_is_read_from_its_beginning_whatever_its_length(
    tmp_path: Path, replace: Replace, last: int
) -> None:
    path = metrics_file(tmp_path)
    path.write_bytes(lines(100, 199))
    found = rig(tmp_path)
    found.step()
    replace(path, lines(101, last))
    found.step()
    found.finish()

    assert steps(found) == [*range(100, 200), *range(101, last + 1)]
    assert len(found.notes) == 1
    assert "it is read from its beginning again" in found.notes[0]


@EVERY_WAY
def test_a_file_written_anew_with_more_lines_is_read_on(tmp_path: Path, replace: Replace) -> None:
    path = metrics_file(tmp_path)
    found = rig(tmp_path)
    for last in (10, 20, 300):
        if path.exists():
            replace(path, lines(1, last))
        else:
            path.write_bytes(lines(1, last))
        found.step()
    found.finish()

    assert steps(found) == list(range(1, 301))
    assert found.notes == []


@EVERY_WAY
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("half", [b"", lines(1, 5), lines(1, 5)[:-9], lines(1, 80)])
def test_a_file_that_is_seen_while_it_is_written_anew_gives_no_point_twice(
    tmp_path: Path, replace: Replace, half: bytes, killed: bool
) -> None:
    path = metrics_file(tmp_path)
    path.write_bytes(lines(1, 100))
    found = rig(tmp_path)
    found.step()
    replace(path, half)
    found.step()
    if killed:
        found.kill()
        found.step()
    replace(path, lines(1, 200))
    found.step()
    found.finish()

    assert steps(found) == list(range(1, 201))
    assert found.notes == []


@EVERY_WAY
def test_a_file_that_stays_shorter_gives_what_is_new_in_the_end(tmp_path: Path, replace: Replace) -> None:
    path = metrics_file(tmp_path)
    path.write_bytes(lines(1, 100))
    found = rig(tmp_path)
    found.step()
    replace(path, lines(1, 50) + lines(501, 520))
    found.step()
    assert steps(found) == list(range(1, 101))
    found.finish()

    assert steps(found) == [*range(1, 101), *range(1, 51), *range(501, 521)]
    assert len(found.notes) == 1


@EVERY_WAY
@pytest.mark.parametrize("rest", [b"", lines(1, 5)])
def test_what_is_left_of_a_shorter_file_is_not_read_twice(
    tmp_path: Path, replace: Replace, rest: bytes
) -> None:
    path = metrics_file(tmp_path)
    path.write_bytes(lines(1, 10))
    found = rig(tmp_path)
    found.step()
    replace(path, rest)
    found.step()
    found.finish()

    assert steps(found) == list(range(1, 11))


@EVERY_WAY
def test_what_was_replaced_while_the_scribe_was_dead_is_read_from_its_beginning(
    tmp_path: Path, replace: Replace
) -> None:
    path = metrics_file(tmp_path)
    path.write_bytes(lines(1, 50))
    found = rig(tmp_path)
    found.step()
    replace(path, lines(51, 150))
    found.kill()
    found.step()
    found.kill()
    found.finish()

    assert steps(found) == list(range(1, 151))


@pytest.mark.parametrize("ending", [by_rename, by_removing])
def test_the_last_lines_before_a_file_is_replaced_are_read(tmp_path: Path, ending: Replace) -> None:
    path = metrics_file(tmp_path)
    path.write_bytes(lines(1, 5))
    found = rig(tmp_path)
    found.step()
    with path.open("ab") as file:
        file.write(lines(6, 9))
    ending(path, lines(10, 30))
    found.step()
    found.finish()

    assert steps(found) == list(range(1, 31))


def test_a_file_found_in_time_is_read_after_its_folder_is_gone(tmp_path: Path) -> None:
    found = rig(tmp_path)
    found.step()
    descriptor = found.collector.descriptor
    assert descriptor is not None
    assert not readable(descriptor)

    path = metrics_file(tmp_path, "short")
    path.write_bytes(lines(1, 5))
    assert readable(descriptor)
    found.step(milliseconds=200)
    with path.open("ab") as file:
        file.write(lines(6, 9))
    shutil.rmtree(path.parent)
    found.step()
    found.finish()

    assert steps(found, "short") == list(range(1, 10))


def test_nothing_stays_open_at_the_end(tmp_path: Path) -> None:
    before = open_descriptors()
    metrics_file(tmp_path).write_bytes(lines(1, 5))
    found = rig(tmp_path)
    found.step()
    assert open_descriptors() - before
    found.finish()
    found.collector.close()

    assert open_descriptors() - before == set()


def readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
