"""A silent learner costs nothing: its agent is notified of changes and polls nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, kill
from tests.learner.collecting import Rig, context
from tests.support.waiting import patience, until
from workbench.learner.collectors import make
from workbench.learner.collectors.emetrics import EmetricsCollector
from workbench.learner.collectors.regex.collector import RegexCollector
from workbench.learner.collectors.report import ReportCollector
from workbench.learner.platform import folder_signal, process_table, processes, system
from workbench.learner.scribe import usage
from workbench.learner.scribe.transcriber import IDLE_POLL_SECONDS, Transcriber

Make = Callable[..., Learner]

SILENT = 'echo ready; until [ -e "$WORK/go" ]; do read -r < "$WORK/pipe"; done; echo done'
QUIET_SECONDS = 1.5 * IDLE_POLL_SECONDS
"""Longer than an agent that has to look by itself lets pass between two looks."""

pytestmark = pytest.mark.skipif(not system.LINUX, reason="other systems report less of what changes")


def silent(learner: Make, command: str = SILENT, **document: Any) -> Learner:
    one = learner(command, **document)
    os.mkfifo(one.work / "pipe")
    one.start()
    if "ready" in command:
        one.until_printed(b"ready\n")
    else:
        until(lambda: one.state().get("command_pid"))
    return one


def agents(one: Learner) -> list[int]:
    state = one.state()
    return [state["pid"], state["scribe_pid"]]


def switches(pids: list[int]) -> int:
    """How often the processes have gone to sleep so far."""
    count = 0
    for pid in pids:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            for line in status.read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    count += int(line.split()[1])
    return count


def sleeps_for(pids: list[int], seconds: float) -> bool:
    """Wait until the processes have slept for so long without waking up."""
    since, before = time.monotonic(), switches(pids)

    def slept() -> bool:
        nonlocal since, before
        now = switches(pids)
        if now != before:
            since, before = time.monotonic(), now
        return time.monotonic() - since >= seconds

    until(slept)
    return True


@pytest.mark.parametrize(
    "metrics", [None, {"type": "tensorboard"}, {"type": "regex_extractor", "groups": {}}]
)
def test_an_agent_sleeps_while_nothing_happens(
    learner: Make, metrics: dict[str, Any] | None, python: str
) -> None:
    groups = {
        "train": {"regex": "loss=%{FLOAT:loss}", "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}}}
    }
    if metrics is not None and "groups" in metrics:
        metrics = {**metrics, "groups": groups}
    one = silent(learner, metrics=metrics, usage_seconds=0, python=python)

    assert sleeps_for(agents(one), QUIET_SECONDS)

    one.stop()
    assert one.wait()["stopped"] == "halt"


@pytest.mark.parametrize("metrics", [None, {"type": "auto"}])
def test_a_silent_learner_takes_no_instance_of_inotify(learner: Make, metrics: dict[str, Any] | None) -> None:
    one = silent(learner, SILENT.replace("echo ready; ", ""), metrics=metrics)
    sleeps_for(agents(one), QUIET_SECONDS)

    held = [str(entry.readlink()) for pid in agents(one) for entry in Path(f"/proc/{pid}/fd").iterdir()]

    assert [name for name in held if "inotify" in name] == []
    one.stop()
    one.wait()


def test_files_of_metrics_that_a_silent_learner_writes_late_are_found(learner: Make) -> None:
    one = learner(SILENT.replace("echo ready; ", ""), metrics={"type": "auto"})
    os.mkfifo(one.work / "pipe")
    one.start_with(
        "from workbench.learner.scribe import transcriber",
        "transcriber.AUTO_SECONDS, transcriber.AUTO_LONGEST_SECONDS = 0.05, 0.5",
    )
    until(lambda: one.state().get("command_pid"))
    sleeps_for(agents(one)[:1], 1.0)

    (Path(one.launch["log_dir"]) / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.25\n")

    until(lambda: one.records("metrics"))
    one.stop()
    one.wait()


REPORT = json.dumps({"kind": "metrics", "time": 1, "step": 1, "values": {"loss": 0.5}})
REPORTS_LATE = f"""
exec 3<> "$WORK/pipe"  # open for both: a reader that comes anew would find the end that the last writer left
echo ready; read -r <&3
echo '{REPORT}' >> "$FABRIC_REPORT"; read -r <&3
"""


@pytest.mark.parametrize("metrics", [None, {"type": "tensorboard"}])
def test_a_report_after_a_long_silence_is_collected_at_once(
    learner: Make, metrics: dict[str, Any] | None
) -> None:
    one = silent(learner, REPORTS_LATE, metrics=metrics)
    sleeps_for(agents(one), 1.0)

    (one.work / "pipe").write_text("go\n")

    until(lambda: one.records("metrics"))
    assert sleeps_for(agents(one), QUIET_SECONDS)
    (one.work / "pipe").write_text("go\n")
    assert one.wait()["exit_code"] == 0


def test_a_report_after_the_scribe_was_replaced_is_collected(learner: Make) -> None:
    one = silent(learner, REPORTS_LATE)
    before = one.scribe()
    sleeps_for(agents(one), 0.5)
    kill(before)
    until(lambda: one.scribe() not in (0, before))

    (one.work / "pipe").write_text("go\n")

    until(lambda: one.records("metrics"))
    (one.work / "pipe").write_text("go\n")
    assert one.wait()["exit_code"] == 0


@pytest.mark.parametrize("lacking", ["signals", "signals and inotify"])
def test_where_folders_signal_nothing_halts_and_reports_are_noticed(learner: Make, lacking: str) -> None:
    one = learner(REPORTS_LATE)
    os.mkfifo(one.work / "pipe")
    preparation = [
        "from workbench.learner.platform import folder_signal, watch",
        "folder_signal.signal_changes = lambda _: False",
    ]
    if "inotify" in lacking:
        preparation.append("watch.open_inotify = lambda: None")
    one.start_with(*preparation)
    one.until_printed(b"ready\n")

    (one.work / "pipe").write_text("go\n")
    until(lambda: one.records("metrics"))
    one.stop()

    assert one.wait()["stopped"] == "halt"


def test_a_folder_signals_what_is_made_renamed_and_removed(tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(folder_signal.NUMBER, lambda number, _: received.append(number))
    folder = folder_signal.open_signalling(str(tmp_path))
    try:
        if folder is None:
            pytest.skip("this file system signals no changes")
        changes: list[Callable[[], object]] = [
            (tmp_path / "new").touch,
            lambda: (tmp_path / "new").rename(tmp_path / "file"),
            (tmp_path / "file").unlink,
        ]
        for change in changes:
            received.clear()
            change()
            until(lambda: received)
    finally:
        signal.signal(folder_signal.NUMBER, before)
        if folder is not None:
            os.close(folder)


def test_a_folder_that_is_not_there_signals_nothing(tmp_path: Path) -> None:
    assert folder_signal.open_signalling(str(tmp_path / "missing")) is None


# Usage


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses CPU for each line that it is given."""
    code = (
        "import sys\nprint('ready', flush=True)\nfor _ in sys.stdin: print(sum(range(10 ** 7)), flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    yield process
    process.communicate(timeout=patience())


def work(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()


def test_clocks_say_whether_processes_have_used_cpu(waiting: subprocess.Popen[bytes]) -> None:
    clocks = processes.CpuClocks()
    assert clocks.have_moved()

    def settle() -> bool:
        clocks.note([waiting.pid])
        return not clocks.have_moved()

    until(settle)
    work(waiting)
    assert clocks.have_moved()

    until(settle)
    waiting.kill()
    waiting.wait()
    assert clocks.have_moved()


class CountingTree:
    """A tree of one process that counts how often it is searched."""

    def __init__(self, pid: int) -> None:
        self.searches = 0
        self._pid = pid

    def pids(self) -> list[int]:
        self.searches += 1
        return [self._pid]


def test_processes_that_sleep_are_not_searched_at_every_sample(waiting: subprocess.Popen[bytes]) -> None:
    tree = CountingTree(waiting.pid)
    sampler = usage.Sampler(tree, [], 0.02)  # type: ignore[arg-type] # stands in for a tree
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 1.5)
    searches = tree.searches
    assert searches <= 1.5 / (0.02 * usage.IDLE_SAMPLE) + 5

    sampler.take()
    work(waiting)
    until(lambda: any(one["cpu_percent"] > 0 for one in sampler.take()))
    sampler.close()


def test_the_list_of_processes_wakes_no_guard(learner: Make) -> None:
    one = learner("echo ready; while :; do :; done", usage_seconds=0.05)
    one.start()
    one.until_printed(b"ready\n")
    file = one.folder / "processes.json"
    until(file.exists)
    until(lambda: len(one.records("usage")) > 3)
    guard = [one.state()["pid"]]
    before, samples = switches(guard), len(one.records("usage"))

    until(lambda: len(one.records("usage")) > samples + 10)

    assert switches(guard) - before < 5

    def cpu_percent() -> float:
        (row,) = json.loads(file.read_text().split("\n")[0])["processes"]
        return float(row["cpu_percent"])

    # On a busy machine it may have run in none of the last 50 milliseconds.
    until(
        lambda: cpu_percent() > 0,
        lambda: f"its share of a processor: {file.read_text()}",
        despite=(ValueError,),
    )
    one.stop("kill")
    one.wait()
    assert not file.exists()


@pytest.mark.parametrize("fork", ["main", "thread"])
def test_descendants_are_those_of_every_thread(fork: str) -> None:
    code = (
        "import subprocess, sys, threading\n"
        "def start():\n"
        "    code = 'import sys; print(1, flush=True); sys.stdin.read()'\n"
        "    child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "    child.stdout.readline()\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
        f"start() if {fork!r} == 'main' else threading.Thread(target=start).start()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if process_table.descendants(parent.pid) is None:
            pytest.skip("this kernel does not list children")

        assert process_table.descendants(parent.pid) == {child}
        found = process_table.descendants(os.getpid(), without=[parent.pid])
        assert found is not None and not found & {parent.pid, child}
    finally:
        parent.communicate(timeout=patience())


# Files of metrics

GROUPS = {"train": {"regex": "loss=%{FLOAT:loss}", "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}}}}


def readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


@pytest.mark.parametrize("source", ["", "$LOG_DIR/sub", "$LOG_DIR/sub/train.log"])
def test_an_expression_gets_the_files_that_are_written(tmp_path: Path, source: str) -> None:
    where = context(tmp_path)
    found = Rig(lambda: RegexCollector({"groups": GROUPS, "source": source}, where))
    path = Path(where.log_dir, "sub", "train.log") if source else Path(where.log_dir, "user_log.txt")
    path.parent.mkdir(exist_ok=True)
    path.write_text("loss=1\n")
    found.step(milliseconds=600)
    found.step(milliseconds=600)
    descriptor = found.collector.descriptor
    assert descriptor is not None and not readable(descriptor)
    assert found.collector.is_watched

    with path.open("a") as file:
        file.write("loss=2\n")

    assert readable(descriptor)
    found.step(milliseconds=200)
    assert not readable(descriptor)
    found.step(milliseconds=200)
    found.finish()
    assert [value for _, value in found.points["train", path.parent.name if source else "", "loss"]] == [
        1.0,
        2.0,
    ]


def by_symbolic_link(path: Path, other: Path) -> None:
    path.symlink_to(other)


def by_hard_link(path: Path, other: Path) -> None:
    path.hardlink_to(other)


@pytest.mark.parametrize("link", [by_symbolic_link, by_hard_link])
def test_a_file_with_another_name_is_polled(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    where = context(tmp_path)
    other = tmp_path / "elsewhere.txt"
    other.write_text("")
    link(Path(where.log_dir, "evaluation-metrics.txt"), other)
    found = Rig(lambda: EmetricsCollector({}, where))
    found.step()

    assert not found.collector.is_watched


def test_files_are_polled_where_the_user_has_no_instance_of_inotify_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.learner.collectors import folder_watch

    monkeypatch.setattr(folder_watch, "open_inotify", lambda: None)
    found = Rig(lambda: EmetricsCollector({}, context(tmp_path)))
    found.step()

    assert found.collector.descriptor is None and not found.collector.is_watched


def test_files_on_network_file_systems_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.learner.collectors import followed_file

    monkeypatch.setattr(followed_file, "_is_remote", lambda _device: True)
    found = Rig(lambda: EmetricsCollector({}, context(tmp_path)))
    found.step()

    assert not found.collector.is_watched


def test_a_learner_is_notified_of_its_turn_to_read(tmp_path: Path) -> None:
    def collector(learner: int) -> EmetricsCollector:
        where = context(tmp_path, learner=learner, owns_log_dir=learner == 1)
        folder = tmp_path / "attempt-1" / f"learner-{learner}"
        folder.mkdir(parents=True)
        return EmetricsCollector({}, where._replace(learner_dir=str(folder), learners=2, marker="home/job/1"))

    first, second = collector(1), collector(2)
    first.poll(1_000_000)
    second.poll(1_000_000)
    assert first.may_read_files() and not second.may_read_files()
    assert second.is_watched
    descriptor = second.descriptor
    assert descriptor is not None and not readable(descriptor)

    first.close()

    assert readable(descriptor)
    second.poll(2_000_000)
    assert second.may_read_files()
    second.close()


def test_reports_are_watched_and_not_polled(tmp_path: Path) -> None:
    report = tmp_path / "learner" / "report.jsonl"
    where = context(tmp_path)
    report.write_text("")
    found = Rig(lambda: ReportCollector({}, where))
    found.step()
    assert found.collector.is_watched
    descriptor = found.collector.descriptor
    assert descriptor is not None and not readable(descriptor)

    report.write_text('{"kind": "progress", "time": 1}\n')

    assert readable(descriptor)


def test_a_transcriber_waits_long_while_every_collector_is_watched(tmp_path: Path) -> None:
    where = context(tmp_path)
    launch = {"log_dir": where.log_dir, "env": {}, "learner": 1, "metrics": {"type": "emetrics_file"}}
    Path(where.learner_dir, "report.jsonl").touch()
    one = Transcriber(where.learner_dir, launch, reports_announced=True)

    def quiet() -> bool:
        one.step()
        due_seconds = one.due_seconds()
        return due_seconds is not None and due_seconds > 2 * IDLE_POLL_SECONDS

    until(quiet)
    one.close()


def test_a_collector_that_was_put_aside_is_not_polled(tmp_path: Path) -> None:
    aside, _reports = make({"type": "nothing-like-it"}, context(tmp_path))
    assert aside.is_watched
