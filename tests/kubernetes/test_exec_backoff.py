"""Commands that no node or right lets through are tried seldom: once a node, not once a pod, and ever later."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from backends.contract.cluster import Absent, Cluster, Denied, NodeUnreachable
from backends.kubernetes.errors import ApiCall, refusal
from runners.interface import LearnerRef
from runners.pod.journals import ExecBackoff, Journals
from runners.pod.names import SIDE_CAR
from runners.pod.watch import ClusterCache
from tests.support.waiting import until
from workbench.errors import BackendUnreachable, FabricError

AWAY = NodeUnreachable("error dialing backend")


class Refusing:
    """A cluster that runs no command."""

    def __init__(self, error: FabricError) -> None:
        self.error = error
        self.tried: list[str] = []

    def exec(self, pod: str, *_: Any, **__: Any) -> Any:
        self.tried.append(pod)
        raise self.error


def try_all(journals: Journals, nodes: int, pods: int) -> None:
    """Ask for the side-car of each of some pods on each of some nodes."""
    for number in range(nodes * pods):
        pod = {"metadata": {"name": f"p{number}"}, "spec": {"nodeName": f"n{number % nodes}"}}
        with pytest.raises((BackendUnreachable, Denied)):
            journals.host(LearnerRef("home", f"training-{number}", 1, 1), pod)


def journals_of(cluster: Refusing) -> Journals:
    return Journals(cast(Cluster, cluster), cast(ClusterCache, None), "reader")


@pytest.mark.parametrize(("error", "tries"), [(AWAY, 3), (Denied("may not get pods/exec"), 1)])
def test_one_pod_of_a_node_is_tried_and_one_of_all_where_the_right_is_missing(
    monkeypatch: pytest.MonkeyPatch, error: FabricError, tries: int
) -> None:
    monkeypatch.setattr(ExecBackoff, "FIRST_SECONDS", 600.0)
    monkeypatch.setattr(ExecBackoff, "LONGEST_SECONDS", 600.0)
    cluster = Refusing(error)

    try_all(journals_of(cluster), nodes=3, pods=50)

    assert len(cluster.tried) == tries


def test_a_pod_that_does_not_answer_keeps_no_other_from_being_tried() -> None:
    cluster = Refusing(BackendUnreachable("its side-car is starting"))

    try_all(journals_of(cluster), nodes=1, pods=5)

    assert len(cluster.tried) == 5


def test_tries_come_ever_later_and_at_once_after_one_that_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExecBackoff, "FIRST_SECONDS", 0.05)
    backoff = ExecBackoff()

    def is_due() -> bool:
        try:
            backoff.check("node")
        except NodeUnreachable:
            return False
        return True

    pauses = []
    for _ in range(3):
        assert is_due()
        backoff.failed("node", AWAY)
        backoff.failed("node", AWAY)  # a thread that began at the same time
        pauses.append(backoff._pauses["node"][1])
        assert not is_due()
        backoff.check("another")
        until(is_due, "the next try to be due")
    assert pauses == [0.05, 0.1, 0.2]

    backoff.failed("node", AWAY)
    backoff.worked("node")
    assert is_due()


def test_a_node_that_the_api_cannot_reach_is_known_by_its_message() -> None:
    call = ApiCall("https://lab", "k8s://lab/x", "run a command in pod p")
    body = b'{"message": "error dialing backend: dial tcp 10.0.0.9:10250: connect: connection refused"}'

    assert isinstance(refusal(call, 500, body), NodeUnreachable)
    assert not isinstance(refusal(call, 503, b'{"message": "etcd is away"}'), NodeUnreachable)


class OnePod:
    """What is known of a cluster: one pod, whose side-car is reported to run until :meth:`end` is called."""

    def __init__(self) -> None:
        self.turn = 0
        self.changed = threading.Condition()
        self.pod: dict[str, Any] | None = {
            "metadata": {"name": "p", "uid": "1"},
            "status": {"initContainerStatuses": [{"name": SIDE_CAR, "state": {"running": {}}}]},
        }

    def ready(self) -> None:
        """It always is."""

    def pod_of(self, *_: object) -> dict[str, Any] | None:
        return self.pod

    def wait(self, seconds: float, *, turn: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.turn != turn, seconds)

    def end(self) -> None:
        """Report that the pod has gone."""
        with self.changed:
            self.pod = None
            self.turn += 1
            self.changed.notify_all()


def read_to_its_end(cluster: Refusing, cache: OnePod) -> dict[LearnerRef, Any]:
    journals = Journals(cast(Cluster, cluster), cast(ClusterCache, cache), "reader")
    try:
        return journals.follow({LearnerRef("home", "training-1", 1, 1): {"output": 0}}, 0)
    finally:
        journals.close()


def test_a_side_car_that_has_ended_unreported_is_asked_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.pod.journals.END_SECONDS", 1.0)
    cluster = Refusing(Absent("container not running"))

    with pytest.raises(Absent):
        read_to_its_end(cluster, OnePod())

    assert 2 <= len(cluster.tried) <= 6  # after 0, 0.1, 0.3, 0.7 and 1.5 seconds


def test_news_of_a_side_car_that_did_not_answer_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.pod.journals.LOOK_SECONDS", 600.0)
    cluster, cache = Refusing(Absent("container not running")), OnePod()

    def end() -> None:
        until(lambda: cluster.tried, "the first try")
        cache.end()

    threading.Thread(target=end).start()

    assert read_to_its_end(cluster, cache) == {}
