"""Learners that share LOG_DIR: files are read until the last has ended, and a point belongs to who wrote it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner import event_files as tf
from tests.learner.collecting import NOW_US, Rig, context
from workbench.learner import collectors
from workbench.learner.collectors.auto.files.found import FilesCollector
from workbench.learner.collectors.emetrics import EmetricsCollector
from workbench.learner.collectors.interface import Collector, Context
from workbench.learner.collectors.regex.collector import RegexCollector
from workbench.learner.collectors.tensorboard.collector import TensorboardCollector
from workbench.learner.pod.config import PodConfig
from workbench.learner.pod.entrypoint import write_launch

MARKER = "home/job/1"


def shared_context(root: Path, learner: int) -> Context:
    folder = root / "attempt-1" / f"learner-{learner}"
    folder.mkdir(parents=True, exist_ok=True)
    found = context(root, learner=learner, owns_log_dir=learner == 1)
    return found._replace(learner_dir=str(folder), learners=3, marker=MARKER)


class Learner:
    """One of three learners, with the journal that its collector's records are written to."""

    def __init__(self, root: Path, number: int) -> None:
        where = shared_context(root, number)

        def make() -> Collector:
            return TensorboardCollector({}, where)

        self.rig = Rig(make)
        self._journal = Path(where.learner_dir) / "records.jsonl"
        self.has_ended = False

    def step(self) -> None:
        self.rig.step(milliseconds=600)
        self._write()

    def kill(self, lost: int) -> None:
        self.rig.step(milliseconds=600, lost=lost)
        self._write()
        self.rig.collector.close()
        self.rig.kill()

    def end(self) -> None:
        self.rig.finish()
        self._write()
        self.rig.collector.close()
        self.has_ended = True

    def _write(self) -> None:
        self._journal.write_text("".join(json.dumps(record) + "\n" for record in self.rig.written))


def learners(root: Path) -> list[Learner]:
    return [Learner(root, number) for number in (1, 2, 3)]


def logs(root: Path, name: str, steps: range) -> None:
    path = root / "job" / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(tf.scalars({step: {"loss": step / 2} for step in steps}))


def points(found: list[Learner]) -> dict[tuple[int, str, str], list[int | None]]:
    """The steps by learner, group and subid, whoever read them."""
    series: dict[tuple[int, str, str], list[int | None]] = {}
    for one in found:
        for record in one.rig.written:
            if record["kind"] == "metrics":
                key = (record["learner"], record["group"], record["subid"])
                series.setdefault(key, []).extend(record["steps"])
    return series


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_files_are_read_until_the_last_learner_has_ended(tmp_path: Path, order: tuple[int, ...]) -> None:
    found = learners(tmp_path)
    written: dict[int, list[int]] = {1: [], 2: [], 3: []}

    def write(writers: tuple[int, ...], steps: range) -> None:
        for writer in writers:
            logs(tmp_path, f"learner-{writer + 1}/tfevents", steps)
            written[writer + 1] += steps

    for turn, which in enumerate(order):
        write(order[turn:], range(turn * 20, turn * 20 + 10))
        for one in found:
            if not one.has_ended:
                one.step()
        write(order[turn:], range(turn * 20 + 10, turn * 20 + 20))  # just before one of them ends
        found[which].end()

    steps = {key[0]: sorted(step or 0 for step in value) for key, value in points(found).items()}
    assert steps == written


@settings(max_examples=examples(60), deadline=None)
@given(
    actions=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["write", "write", "write", "step", "kill", "end"]),
            st.integers(0, 2),
        ),
        max_size=30,
    )
)
def test_no_point_is_lost_or_doubled_whoever_is_killed_or_ends(
    actions: list[tuple[int, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("shared")
    found = learners(root)
    written = [0, 0, 0]
    for which, action, lost in [*actions, (0, "end", 0), (1, "end", 0), (2, "end", 0)]:
        if found[which].has_ended:
            continue
        if action == "write":
            logs(root, f"learner-{which + 1}/tfevents", range(written[which], written[which] + 5))
            written[which] += 5
        elif action == "step":
            found[which].step()
        elif action == "kill":
            found[which].kill(lost)
        else:
            found[which].end()

    steps = {key[0]: sorted(step or 0 for step in value) for key, value in points(found).items()}
    assert steps == {n + 1: list(range(count)) for n, count in enumerate(written) if count}


def test_one_that_ended_awaits_the_last_reading_of_the_reader(tmp_path: Path) -> None:
    first, second, _third = learners(tmp_path)
    first.step()
    assert first.rig.collector.finish(first.rig.now_us) is False  # nothing was there
    logs(tmp_path, "learner-2/tfevents", range(5))

    assert second.rig.collector.finish(second.rig.now_us) is True
    first.rig.collector.close()
    second.end()
    assert points([second]) == {(2, "learner-2", "learner-2"): [0, 1, 2, 3, 4]}


def test_only_the_collector_of_metrics_claims_the_files(tmp_path: Path) -> None:
    made = collectors.make({"type": "tensorboard"}, shared_context(tmp_path, 1))
    others = collectors.make({"type": "tensorboard"}, shared_context(tmp_path, 2))
    logs(tmp_path, "learner-2/tfevents", range(5))
    for collector in [*reversed(made), *others]:
        collector.poll(NOW_US)
        collector.finish(NOW_US)

    assert [len(collector.take()) for collector in made] == [1, 0]
    assert [collector.take() for collector in others] == [[], []]
    for collector in [*made, *others]:
        collector.close()


WRITE = """
import sys
file = open(sys.argv[1], "ab", buffering=0)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_file_belongs_to_the_learner_whose_process_has_it_open(tmp_path: Path) -> None:
    found = learners(tmp_path)
    logs(tmp_path, "tb/events.out.tfevents.1700000000.box", range(5))
    path = tmp_path / "job" / "logs" / "tb" / "events.out.tfevents.1700000000.box"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)],
        env={**os.environ, "FABRIC_LEARNER": f"{MARKER}/3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"open\n"
    found[0].step()
    writer.communicate()
    logs(tmp_path, "tb/events.out.tfevents.1700000000.box", range(5, 9))
    found[0].kill(0)
    found[0].end()
    found[1].end()

    assert points(found) == {(3, "tb", ""): list(range(9))}


def test_a_file_belongs_to_the_learner_whose_container_has_it_open(tmp_path: Path) -> None:
    found = learners(tmp_path)
    logs(tmp_path, "tb/tfevents", range(5))
    processes = tmp_path / "processes"
    processes.write_text(f"{os.getpid()}\n")
    (tmp_path / "attempt-1" / "learner-2" / "cgroup").write_text(str(processes))
    with (tmp_path / "job" / "logs" / "tb" / "tfevents").open("ab"):
        found[0].step()
    found[0].end()

    assert points(found) == {(2, "tb", ""): list(range(5))}


def test_a_file_waits_for_the_processes_of_a_container_that_starts(tmp_path: Path) -> None:
    found = learners(tmp_path)
    folder = tmp_path / "attempt-1" / "learner-2"
    (folder / "container.json").write_text("{}")
    logs(tmp_path, "tb/tfevents", range(5))
    with (tmp_path / "job" / "logs" / "tb" / "tfevents").open("ab"):
        found[0].step()
        assert points(found) == {}
        processes = tmp_path / "processes"
        processes.write_text(f"{os.getpid()}\n")
        (folder / "cgroup").write_text(str(processes))
        found[0].step()

    assert points(found) == {(2, "tb", ""): list(range(5))}


def test_the_host_name_in_an_event_files_name_says_which_container_wrote_it(tmp_path: Path) -> None:
    found = learners(tmp_path)
    container = tmp_path / "attempt-1" / "learner-2" / "container.json"
    container.write_text(json.dumps({"name": "learner-q9zh69j3g-a1-1"}))
    processes = tmp_path / "attempt-1" / "learner-3" / "cgroup"
    processes.write_text(f"/sys/fs/cgroup/docker-4f5e6d7c8b9a{'0' * 52}.scope/cgroup.procs")
    logs(tmp_path, "tb/events.out.tfevents.1700000000.learner-q9zh69j3g-a1-1.7.0", range(5))
    logs(tmp_path, "tb/events.out.tfevents.1700000000.4f5e6d7c8b9a.7.0", range(5))
    found[0].step()
    found[0].end()

    assert points(found) == {(2, "tb", ""): list(range(5)), (3, "tb", ""): list(range(5))}


def test_what_has_no_known_writer_is_kept_apart_by_file_and_noted(tmp_path: Path) -> None:
    found = learners(tmp_path)
    for host in ("red.11.0", "blue.12.0"):
        logs(tmp_path, f"tb/events.out.tfevents.1700000000.{host}", range(5))
    found[1].step()
    found[1].end()

    assert points(found) == {(1, "tb", "red.11"): list(range(5)), (1, "tb", "blue.12"): list(range(5))}
    assert sum("is not known" in text for text in found[1].rig.notes) == 2


def test_that_a_writer_is_not_known_is_noted_once_however_often_reading_begins_anew(tmp_path: Path) -> None:
    found = learners(tmp_path)
    for which in (0, 0, 1, 1, 2):
        logs(tmp_path, "tb/events.out.tfevents.1700000000.red.11.0", range(5))
        found[which].step()
        found[which].kill(0)
    for one in found:
        logs(tmp_path, "tb/events.out.tfevents.1700000000.red.11.0", range(5))
        one.end()

    notes = [text for one in found for text in one.rig.notes]
    assert len(notes) == 1 and "red.11.0 is not known" in notes[0]


@pytest.mark.parametrize(
    "folders", [["learner-1", "learner-2", "learner-3"], ["learner-1/tb", "learner-2/tb", "learner-3/tb"]]
)
def test_learners_whose_files_lie_in_their_own_folders_have_one_name_each(
    tmp_path: Path, folders: list[str]
) -> None:
    for folder in folders:
        logs(tmp_path, f"{folder}/tfevents", range(5))
    where = shared_context(tmp_path, 1)
    one = Rig(lambda: FilesCollector({}, where))
    one.step(milliseconds=600)
    one.finish()

    found = {
        (record["learner"], record["group"], record["subid"], *record["values"]): record["steps"]
        for record in one.written
    }
    assert found == {(number, "", f"learner-{number}", "loss"): [0, 1, 2, 3, 4] for number in (1, 2, 3)}


# Files that are opened, appended to and closed for each line: no process is found that has them open.

GROUPS = {
    "train": {
        "regex": "step %{INT:step} loss=%{FLOAT:loss}",
        "etimes": {"step": {"type": "INT", "value": "$step"}},
        "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
    }
}


def append(root: Path, name: str, steps: range, line: str = "step {step} loss={step}") -> None:
    path = root / "job" / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for step in steps:
        with path.open("a") as file:
            file.write(line.replace("{step}", str(step)) + "\n")


def steps_of(collector: Collector) -> dict[tuple[int, str], list[int | None]]:
    """Return the steps that one collector reads, by learner and subid."""
    rig = Rig(lambda: collector)
    rig.step(milliseconds=600)
    rig.finish()
    collector.close()
    found: dict[tuple[int, str], list[int | None]] = {}
    for record in rig.written:
        if record["kind"] == "metrics":
            found.setdefault((record["learner"], record["subid"]), []).extend(record["steps"])
    return found


def test_a_files_own_name_says_whose_it_is(tmp_path: Path) -> None:
    for name in ("learner-2.log", "loss.learner-3.txt", "learner-30.log"):
        append(tmp_path, f"runs/{name}", range(3))
    where = shared_context(tmp_path, 1)

    found = steps_of(RegexCollector({"groups": GROUPS, "source": "$LOG_DIR/runs"}, where))

    # There is no learner 30.
    assert {key[0]: value for key, value in found.items()} == {number: [0, 1, 2] for number in (1, 2, 3)}


def test_lines_say_whose_they_are_in_a_file_that_all_append_to(tmp_path: Path) -> None:
    for learner in (1, 2, 3):
        line = json.dumps(
            {
                "meta": {"subid": f"learner-{learner}"},
                "etimes": {"step": {"value": "STEP"}},
                "values": {"loss": {"value": learner}},
            }
        ).replace('"STEP"', "{step}")
        append(tmp_path, "evaluation-metrics.txt", range(4), line)

    found = steps_of(EmetricsCollector({}, shared_context(tmp_path, 1)))

    assert found == {(learner, f"learner-{learner}"): [0, 1, 2, 3] for learner in (1, 2, 3)}


def test_logs_of_one_folder_that_have_no_known_writer_are_kept_apart(tmp_path: Path) -> None:
    for name in ("runs/red.log", "runs/blue.log"):
        append(tmp_path, name, range(3))
    where = shared_context(tmp_path, 1)

    found = steps_of(RegexCollector({"groups": GROUPS, "source": "$LOG_DIR/runs"}, where))

    assert found == {(1, "runs/red.log"): [0, 1, 2], (1, "runs/blue.log"): [0, 1, 2]}


# Pods that share LOG_DIR by a claim: they see each other's files, and nothing else of each other.

HOSTS = ("digits-a1-0", "digits-a1-1", "digits-a1-2")


def read_in_pod(root: Path, learner: int) -> dict[str, list[int | None]]:
    """Return the steps that a learner's own agent reads, by subid: all of them are its own."""
    where = shared_context(root, learner)._replace(hosts=HOSTS, owns_log_dir=True)
    rig = Rig(lambda: TensorboardCollector({}, where))
    rig.step(milliseconds=600)
    rig.finish()
    found: dict[str, list[int | None]] = {}
    for record in rig.written:
        if record["kind"] == "metrics":
            assert "learner" not in record
            found.setdefault(record["subid"], []).extend(record["steps"])
    return found


def test_each_pod_reads_its_own_files_and_the_first_the_rest(tmp_path: Path) -> None:
    for learner, host in enumerate(HOSTS, 1):
        logs(tmp_path, f"tb/events.out.tfevents.1700000000.{host}.7.0", range(learner))
        logs(tmp_path, f"learner-{learner}/tfevents", range(10, 10 + learner))
    logs(tmp_path, "tb/events.out.tfevents.1700000000.laptop.7.0", range(20, 22))

    assert read_in_pod(tmp_path, 1) == {"": [0, 20, 21], "learner-1": [10]}
    assert read_in_pod(tmp_path, 2) == {"": [0, 1], "learner-2": [10, 11]}
    assert read_in_pod(tmp_path, 3) == {"": [0, 1, 2], "learner-3": [10, 11, 12]}


@pytest.mark.parametrize("is_shared", [True, False])
def test_pods_own_their_files_whether_or_not_they_share_a_claim(tmp_path: Path, is_shared: bool) -> None:
    launch = {"learner": 2, "learners": 3, "log_dir_shared": is_shared, "learner_hosts": list(HOSTS)}

    found = Context.from_launch(launch, str(tmp_path))

    assert found.owns_log_dir
    assert found.hosts == (HOSTS if is_shared else ())


def test_a_pods_launch_document_has_the_host_names_of_all(tmp_path: Path) -> None:
    pod = PodConfig({"launch": {"learners": 2, "log_dir_shared": True}, "stem": "digits-a1"}, 1)
    pod.folder = str(tmp_path)

    write_launch(pod, {})

    found = Context.from_launch(json.loads((tmp_path / "launch.json").read_text()), str(tmp_path))
    assert (found.learner, found.hosts) == (2, ("digits-a1-0", "digits-a1-1"))
