"""A stop that meets a connection which was lost is sent again at once; one that hangs delays no other."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO, cast

import psutil
import pytest

from backends.contract.cluster import Cluster
from runners.interface import AttemptRef, LearnerRef, StopRequest
from runners.pod.journals import Journals
from runners.pod.names import SIDE_CAR
from runners.pod.sh_files import ShellFiles
from runners.pod.stop import StopRequests
from runners.pod.upload import send_code_without_python
from runners.pod.watch import StopTries
from tests.kubernetes.jobs import Pods as Jobs
from tests.kubernetes.jobs import configure
from tests.kubernetes.test_pod_deletion import first_processes
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX, DEBIAN
from tests.support.waiting import patience, until
from workbench.errors import AnswerPending, BackendUnreachable

LEARNER = LearnerRef("home", "training-abcdefghj", 1, 1)
RUNNING = {
    "metadata": {"name": "pod", "uid": "1"},
    "status": {
        "phase": "Running",
        "initContainerStatuses": [{"name": SIDE_CAR, "state": {"running": {}}}],
        "containerStatuses": [{"name": "learner", "state": {"running": {}}}],
    },
}


class Sidecar:
    """What reaches a pod: the first calls find their connection lost."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.written: list[Any] = []

    def host(self, ref: LearnerRef, pod: Any, *, connect_seconds: float) -> Sidecar:
        return self

    def call(self, name: str, **more: Any) -> Any:
        if self.lost:
            self.lost -= 1
            raise BackendUnreachable("The connection broke.")
        if name == "ask_to_stop":
            self.written.append(more["request"])
        return None


class Pods:
    """A cluster with one job, of which one pod runs."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def read(self, kind: str, name: str) -> Any:
        labels = {"fabric.home": "home", "fabric.job": LEARNER.job_id, "fabric.attempt": "1"}
        metadata = {"name": name, "uid": "2", "labels": labels, "annotations": labels}
        return RUNNING if kind == "Pod" else {"metadata": metadata, "spec": {}}

    def delete(self, kind: str, name: str, **_: Any) -> None:
        self.deleted.append(name)

    def pods_of(self, attempt: AttemptRef) -> Any:
        return {1: RUNNING}


def stop(requests: StopRequests, pods: Pods, side_car: Sidecar) -> None:
    attempt = AttemptRef("home", LEARNER.job_id, 1, 1)
    requests.stop(attempt, StopRequest("halt", 30.0, "me"), cast(Any, pods), cast(Journals, side_car))


def test_a_halt_whose_connection_was_lost_is_sent_once_more_at_once() -> None:
    pods, side_car = Pods(), Sidecar(lost=1)

    stop(StopRequests(cast(Cluster, pods)), pods, side_car)

    assert len(side_car.written) == 1
    assert pods.deleted == []


def test_a_halt_that_does_not_get_through_counts_as_not_sent() -> None:
    pods, side_car = Pods(), Sidecar(lost=2)
    requests = StopRequests(cast(Cluster, pods))

    with pytest.raises(BackendUnreachable, match="broke"):
        stop(requests, pods, side_car)
    assert side_car.written == [] and pods.deleted == []

    stop(requests, pods, side_car)
    assert len(side_car.written) == 1


def test_a_pod_whose_agent_a_halt_does_not_reach_for_long_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.pod.stop.UNREACHED_SECONDS", 0.0)
    pods = Pods()

    stop(StopRequests(cast(Cluster, pods)), pods, Sidecar(lost=2))

    assert pods.deleted == ["pod"]


LEARNERS = 5
NUMBERS = range(1, LEARNERS + 1)


class ManyPods(Pods):
    """A cluster with one job of several learners."""

    def pods_of(self, attempt: AttemptRef) -> Any:
        return {number: with_uid(number) for number in NUMBERS}


def with_uid(number: int) -> Any:
    return RUNNING | {"metadata": {"name": f"pod-{number}", "uid": str(number)}}


class Sidecars:
    """What reaches the pods of a job; those of ``silent`` learners do not answer until they are released."""

    def __init__(self, silent: set[int]) -> None:
        self.silent = silent
        self.release = threading.Event()
        self.asked: list[int] = []
        self.meeting: threading.Barrier | None = None

    def host(self, ref: LearnerRef, pod: Any, *, connect_seconds: float) -> Sidecar:
        self.asked.append(ref.learner)
        if self.meeting is not None:
            self.meeting.wait(patience())
        if ref.learner in self.silent:
            self.release.wait()
        return Sidecar(lost=0)


@pytest.fixture
def sidecars() -> Iterator[Sidecars]:
    made = Sidecars(set())
    yield made
    made.release.set()


def stop_all(tries: StopTries, pods: Pods, sidecars: Sidecars, kind: Any = "kill") -> None:
    attempt = AttemptRef("home", LEARNER.job_id, 1, LEARNERS)
    requests = StopRequests(cast(Cluster, pods), tries)
    requests.stop(attempt, StopRequest(kind, 30.0, "me"), cast(Any, pods), cast(Journals, sidecars))


def test_all_learners_of_a_job_are_asked_to_stop_at_once(sidecars: Sidecars) -> None:
    sidecars.meeting = threading.Barrier(LEARNERS)

    stop_all(StopTries(), ManyPods(), sidecars)

    assert sorted(sidecars.asked) == list(NUMBERS)


def test_learners_that_do_not_answer_are_left_behind_and_asked_once(
    sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecars.silent = set(NUMBERS)
    pods, tries = ManyPods(), StopTries()

    with monkeypatch.context() as impatient:
        impatient.setattr("runners.pod.stop.ANSWER_SECONDS", 0.05)
        for _ in range(2):
            with pytest.raises(AnswerPending, match="has not answered"):
                stop_all(tries, pods, sidecars, "halt")
    sidecars.release.set()
    monkeypatch.setattr("runners.pod.stop.ANSWER_SECONDS", patience())
    stop_all(tries, pods, sidecars, "halt")

    assert len(sidecars.asked) in range(LEARNERS, 2 * LEARNERS + 1)
    assert pods.deleted == []


def test_pods_whose_agents_do_not_answer_a_kill_are_deleted(
    sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.pod.stop.ANSWER_SECONDS", 0.05)
    sidecars.silent = set(NUMBERS)
    pods, tries = ManyPods(), StopTries()
    with pytest.raises(BackendUnreachable):
        stop_all(tries, pods, sidecars)

    stop_all(tries, pods, sidecars)

    assert pods.deleted == [f"pod-{number}" for number in NUMBERS]


class CalledOff(Exception):
    pass


class Receiver:
    """A container that takes what it is sent, and whose shell has tar."""

    def __init__(self) -> None:
        self.received = 0

    def exec(self, *_: Any, **__: Any) -> Receiver:
        return self

    def write(self, data: bytes) -> None:
        self.received += len(data)

    def read(self, seconds: float) -> None:
        return None

    def wait(self) -> int:
        return 0


def test_a_launch_that_is_called_off_sends_no_more_to_its_pods(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.shared.code.PROGRESS_SECONDS", 0.0)
    receiver, size = Receiver(), 8 << 20
    archive = tmp_path / "code.tar"
    archive.write_bytes(bytes(size))

    def progress(text: str, *, stage: str) -> None:
        if receiver.received:
            raise CalledOff

    with pytest.raises(CalledOff):
        send_code_without_python(cast(Cluster, receiver), "pod", archive, cast(Any, progress))

    assert 0 < receiver.received < size


def test_a_stream_that_cannot_be_read_twice_is_sent_whole() -> None:
    class Once(io.BytesIO):
        def seekable(self) -> bool:
            return False

    receiver = Receiver()

    ShellFiles(cast(Cluster, receiver), "pod", "learner").put("/file", cast(BinaryIO, Once(b"abc")), 0o600)

    assert receiver.received == len(b"abc")


@pytest.fixture
def jobs(fabric: Fabric, space: Space) -> Iterator[Jobs]:
    configure(space)
    yield Jobs(fabric, space)


def agents_below(first: int) -> list[psutil.Process]:
    """Find a learner's agent; parts of one that is a shell script have its words, too."""
    below = psutil.Process(first).children(recursive=True)
    agents = [each for each in below if "guard" in words_of(each)]
    return [each for each in agents if each.ppid() not in [other.pid for other in agents]]


def words_of(process: psutil.Process) -> list[str]:
    """Return the words of a process; none of one that has ended meanwhile."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.mark.parametrize(
    "image", [pytest.param(DEBIAN, id="python"), pytest.param(BUSYBOX, id="only a shell")]
)
def test_a_halt_wakes_an_agent_that_a_signal_has_stopped(jobs: Jobs, image: str) -> None:
    job = jobs.start(
        "--", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done", image=image
    )
    until(lambda: "up" in jobs.fabric("logs", job).stdout, "the command to run")
    (found,) = jobs.pods()
    (first,) = first_processes(found, "learner")
    (agent,) = agents_below(first)
    agent.suspend()

    jobs.fabric("halt", job)

    assert jobs.show(job)["state"] == "HALTED"
    assert "saved" in jobs.fabric("logs", job).stdout
