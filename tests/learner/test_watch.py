"""The watcher sees every way in which a file changes, by inotify and by polling alike."""

from __future__ import annotations

import errno
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.learner import few_instances
from tests.learner.collecting import NOW_US, context, instances_held, points_of
from tests.support.processes import open_descriptors
from tests.support.waiting import patience, until
from workbench.learner import collectors
from workbench.learner.platform import watch
from workbench.learner.platform.inotify import LEFT_TO_OTHERS, open_inotify
from workbench.learner.platform.watch import Watcher

DEADLINE_SECONDS = patience()
NEVER_SECONDS = 3600.0


@pytest.fixture(params=[False, True], ids=["inotify", "polling"])
def watcher(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    with Watcher(polling=request.param) as made:
        yield made


def replace(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.rename(path)


def test_nothing_is_reported_when_nothing_changed(watcher: Watcher, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    watcher.add(str(path))

    assert watcher.wait(0.1) == []


def test_a_file_that_appears_is_reported(watcher: Watcher, tmp_path: Path) -> None:
    path = tmp_path / "file"
    watcher.add(str(path))

    path.write_text("x")

    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]


def test_a_file_in_folders_that_do_not_exist_yet_is_reported(watcher: Watcher, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    watcher.add(str(path))

    path.parent.mkdir(parents=True)
    path.write_text("x")

    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]


def test_an_append_is_reported_and_its_neighbour_is_not(watcher: Watcher, tmp_path: Path) -> None:
    path, neighbour = tmp_path / "file", tmp_path / "neighbour"
    path.write_text("x")
    neighbour.write_text("x")
    watcher.add(str(path))

    with neighbour.open("a") as stream:
        stream.write("y")
    assert watcher.wait(0.1) == []
    with path.open("a") as stream:
        stream.write("y")

    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]


def test_a_rename_over_a_file_is_reported_and_the_new_file_is_watched(
    watcher: Watcher, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("first")
    watcher.add(str(path))

    replace(path, "second")
    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]
    watcher.wait(0.1)
    with path.open("a") as stream:
        stream.write("third")

    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]


def test_a_removed_file_is_reported_and_awaited_again(watcher: Watcher, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_text("x")
    watcher.add(str(path))

    path.unlink()
    path.parent.rmdir()
    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]
    watcher.wait(0.1)
    path.parent.mkdir()
    path.write_text("again")

    assert watcher.wait(DEADLINE_SECONDS) == [str(path)]


def test_entries_of_a_watched_folder_are_reported(watcher: Watcher, tmp_path: Path) -> None:
    watcher.add(str(tmp_path))

    (tmp_path / "entry").write_text("x")

    assert watcher.wait(DEADLINE_SECONDS) == [str(tmp_path)]


def test_a_removed_path_is_watched_no_more(watcher: Watcher, tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    watcher.add(str(path))
    watcher.add(str(other))
    watcher.remove(str(path))

    path.write_text("x")
    other.write_text("x")

    assert watcher.wait(DEADLINE_SECONDS) == [str(other)]
    assert watcher.paths() == [str(other)]


def test_what_changed_before_the_wait_is_reported(watcher: Watcher, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        watcher.add(str(path))
    for path in paths:
        path.write_text("x")

    seen: set[str] = set()

    def all_are_seen() -> bool:
        seen.update(watcher.wait(0.1))
        return len(seen) >= 3

    until(all_are_seen, lambda: f"all to be reported: {seen}")
    assert seen == {str(path) for path in paths}


def test_wake_from_another_thread_ends_the_wait(watcher: Watcher, tmp_path: Path) -> None:
    watcher.add(str(tmp_path / "file"))
    waker = threading.Timer(0.05, watcher.wake)
    waker.start()

    changed = watcher.wait(NEVER_SECONDS)
    waker.join()

    assert changed == []


def test_wake_before_the_wait_is_not_lost(watcher: Watcher) -> None:
    for _ in range(100_000):
        watcher.wake()

    assert watcher.wait(NEVER_SECONDS) == []


def test_a_path_added_while_another_thread_waits_is_seen(watcher: Watcher, tmp_path: Path) -> None:
    path = tmp_path / "late"
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.extend(watcher.wait(DEADLINE_SECONDS)))
    waiting.start()
    watcher.add(str(path))
    path.write_text("x")
    waiting.join()

    assert found in ([str(path)], [])  # adding a polled path wakes the waiter
    if not found:
        assert watcher.wait(DEADLINE_SECONDS) == [str(path)]


def test_the_descriptor_is_readable_only_when_there_is_news(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with Watcher([str(path)]) as watcher:
        descriptor = watcher.fileno()
        if descriptor is None:
            pytest.skip("no inotify here: there is no descriptor to wait on")
        assert select.select([descriptor], [], [], 0)[0] == []

        path.write_text("x")

        assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0] == [descriptor]
        assert watcher.wait(0) == [str(path)]


def test_an_instance_of_inotify_that_is_dropped_is_given_back() -> None:
    opened = open_inotify()
    if opened is None:
        pytest.skip("no inotify here: there is nothing to give back")
    descriptor = opened.fd

    del opened

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_agents_leave_instances_of_inotify_to_others_and_still_find_every_point(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode:
        pytest.skip("no user namespace can be made here, and the limit of this user is everybody's")

    ran = subprocess.run(
        ["unshare", "-Ur", sys.executable, "-m", few_instances.__name__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["free"] == LEFT_TO_OTHERS
    assert answer["held"] == few_instances.LIMIT - LEFT_TO_OTHERS
    every = list(range(few_instances.STEPS))
    assert answer["steps"] == [{"loss": every, "reported": every}] * few_instances.LEARNERS


def test_the_collectors_of_a_learner_share_one_instance(tmp_path: Path) -> None:
    where = context(tmp_path)
    metrics, reports = Path(where.log_dir, "evaluation-metrics.txt"), tmp_path / "learner" / "report.jsonl"
    metrics.touch()
    reports.touch()
    before = instances_held()
    found = collectors.make({"type": "emetrics_file"}, where)
    for collector in found:
        collector.poll(NOW_US)

    assert [collector.descriptor for collector in found] == [found[0].descriptor] * 2
    assert instances_held() == before + 1

    for collector in found:
        collector.close()
    assert instances_held() == before


def test_a_change_that_another_collector_has_read_is_looked_for_soon(tmp_path: Path) -> None:
    where = context(tmp_path)
    metrics, reports = Path(where.log_dir, "evaluation-metrics.txt"), tmp_path / "learner" / "report.jsonl"
    metrics.touch()
    reports.touch()
    found = collectors.make({"type": "emetrics_file"}, where)
    for collector in found:
        collector.poll(NOW_US)
    if found[0].descriptor is None:
        pytest.skip("no inotify here: files are polled")
    assert all(collector.is_watched for collector in found)

    metrics.write_text('{"values": {"loss": {"type": "FLOAT", "value": 1}}}\n')
    found[1].poll(NOW_US + 200_000)

    assert not found[0].is_watched
    found[0].poll(NOW_US + 400_000)
    assert found[0].is_watched
    found[0].poll(NOW_US + 600_000)
    assert [record["kind"] for record in found[0].take()] == ["metrics"]
    for collector in found:
        collector.close()


def test_who_polls_is_notified_again_once_there_are_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    monkeypatch.setattr(watch, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(watch, "open_inotify", lambda: None)
    with Watcher([str(path)]) as watcher:
        assert watcher.wait(0) == [] and watcher.fileno() is None

        monkeypatch.undo()
        path.write_text("x")  # by the time it is watched it is there

        assert watcher.wait(DEADLINE_SECONDS) == [str(path)]
        descriptor = watcher.fileno()
        if descriptor is None:
            pytest.skip("no inotify here: it polls for ever")
        with path.open("a") as stream:
            stream.write("y")
        assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0] == [descriptor]
        assert watcher.wait(0) == [str(path)]


def test_a_change_is_reported_again_where_a_mount_cannot_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(watch, "AGAIN_SECONDS", (0.05, 0.1, 0.15))
    path = tmp_path / "file"
    with Watcher() as watcher:
        monkeypatch.setattr(watcher, "_arm_inotify", fails)
        watcher.add(str(path))
        until(lambda: not watcher.wait(0.2), "what was reported of its beginning to be over")

        path.write_text("x")
        reports = [watcher.wait(DEADLINE_SECONDS) for _ in range(4)]

        assert reports == [[str(path)]] * 4
        assert watcher.wait(0.3) == []


def test_polling_has_no_descriptor(tmp_path: Path) -> None:
    with Watcher([str(tmp_path)], polling=True) as watcher:
        assert watcher.fileno() is None


def test_closing_gives_every_descriptor_back(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("descriptors are found in /proc")
    before = open_descriptors()
    watcher = Watcher([str(tmp_path / "file")])
    assert open_descriptors() - before
    watcher.close()
    watcher.wake()
    watcher.close()

    assert open_descriptors() - before == set()


def test_nothing_is_watched_for_a_learner_that_has_ended(tmp_path: Path) -> None:
    where = context(tmp_path)
    line = '{"values": {"loss": {"type": "FLOAT", "value": 1}}, "etimes": {"iteration": {"value": 1}}}\n'
    Path(where.log_dir, "evaluation-metrics.txt").write_text(line)
    before = instances_held()

    found = collectors.make({"type": "emetrics_file"}, where, is_over=True)
    for collector in found:
        collector.poll(NOW_US)
        collector.finish(NOW_US)
    written = points_of(record for collector in found for record in collector.take())
    assert instances_held() == before
    assert written["", "", "loss"] == [(1, 1)]
