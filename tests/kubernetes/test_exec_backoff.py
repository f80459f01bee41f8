"""Commands that no node or right lets through are tried seldom: once a node, not once a pod, and ever later."""

from __future__ import annotations

from typing import Any, cast

import pytest

from backends.contract.cluster import Cluster, Denied, NodeUnreachable
from backends.kubernetes.errors import ApiCall, refusal
from runners.interface import LearnerRef
from runners.pod.journals import ExecBackoff, Journals
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
