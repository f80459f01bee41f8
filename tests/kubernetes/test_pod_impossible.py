"""What a cluster can never give: refused in one sentence with a hint, and nothing is left there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runners.pod.admission import above, needs, unschedulable_reason
from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure, configure_in
from tests.kubernetes.pods import start_pod
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import DEBIAN
from tests.support.waiting import until

NOWHERE = (
    " no new claims to deallocate, preemption: 0/{n} nodes are available: "
    "{n} Preemption is not helpful for scheduling."
)


@pytest.fixture
def pods(shared_pods: Pods) -> Iterator[Pods]:
    configure_in(shared_pods.fabric.config_file, shared_pods.space, unfit_seconds=2)
    yield shared_pods.anew()
    for kind in ("ResourceQuota", "LimitRange"):
        shared_pods.space.admin.delete(kind, "few")
    shared_pods.space.give_rights()
    for one in shared_pods.space.admin.list("Pod").items:
        shared_pods.space.admin.delete("Pod", one["metadata"]["name"], grace_seconds=0)


def refused(pods: Pods, *args: str) -> tuple[dict[str, Any], str]:
    """Run a job that is refused; return its document and its messages."""
    ran = pods.run(*args, "--", "true", expect=69)
    shown = pods.show()
    assert shown["state"] == "FAILED"
    assert shown["reason_code"] == "C104"
    assert "Traceback" not in ran.stderr
    until(lambda: not pods.pods(), "its pods to be gone", every=IN_CLUSTER_SECONDS)
    return shown, ran.stderr


def limit(space: Space, kind: str, spec: dict[str, Any]) -> None:
    """Make a quota or limit range, and wait until it counts."""
    space.admin.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "few"}, "spec": spec})
    if kind == "ResourceQuota":
        until(
            lambda: (space.admin.read(kind, "few") or {}).get("status", {}).get("hard"), "the quota to count"
        )


@pytest.mark.parametrize(
    "args",
    [
        ("--gpus", "900"),
        pytest.param(("--set", "memory=900Ti"), marks=pytest.mark.soak("the gate asks for too many GPUs")),
    ],
)
def test_what_no_node_has_is_given_up_in_the_schedulers_words(pods: Pods, args: tuple[str, ...]) -> None:
    shown, message = refused(pods, *args)

    assert "no node of the cluster can run it" in shown["reason"]
    assert "Insufficient" in message
    assert "ask for less" in message


def test_several_learners_that_no_node_could_hold_do_not_go_round_for_ever(pods: Pods) -> None:
    shown, _ = refused(pods, "--gpus", "900", "--set", "learners=2")

    assert "Insufficient nvidia.com/gpu" in shown["reason"]
    assert pods.objects() == []


def test_more_than_the_quota_has_in_all_is_refused_before_anything_is_made(pods: Pods) -> None:
    limit(pods.space, "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "2"}})

    shown, message = refused(pods, "--gpus", "2", "--set", "learners=2")

    assert "4 requests.nvidia.com/gpu" in shown["reason"]
    assert "quota few" in message
    assert pods.objects() == []


def test_a_quota_that_counts_what_the_job_does_not_say_is_named(pods: Pods) -> None:
    limit(pods.space, "ResourceQuota", {"hard": {"limits.cpu": "1"}})

    shown, message = refused(pods)

    assert "must specify limits.cpu" in shown["reason"]
    assert "cpus:" in message
    assert pods.objects() == []


@pytest.mark.parametrize("asked", [True, False], ids=["asked before", "found by events"])
def test_more_than_a_limit_range_lets_a_container_have_is_refused(pods: Pods, asked: bool) -> None:
    limit(pods.space, "LimitRange", {"limits": [{"type": "Container", "max": {"memory": "150Mi"}}]})
    if not asked:
        pods.space.take_rights("pods", verbs=["create"])

    shown, message = refused(pods)

    assert "maximum memory usage per Container is 150Mi" in shown["reason"]
    assert "memory:" in message


def test_a_claim_that_is_not_there_is_named(fabric: Fabric, space: Space) -> None:
    configure(space, volumes=["datasets:/data:ro"])
    pods = Pods(fabric, space)

    shown, message = refused(pods)

    assert "There is no PersistentVolumeClaim datasets" in shown["reason"]
    assert "volumes" in message
    assert pods.objects() == []


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("service_account", "nobody", 'serviceaccount "nobody" not found'),
        ("priority_class", "nobody", "PriorityClass with name nobody"),
        ("priority_classes", "50=nobody", "PriorityClass with name nobody"),
    ],
)
def test_what_the_settings_name_and_is_not_there_is_named(
    fabric: Fabric, space: Space, option: str, value: str, words: str
) -> None:
    configure(space, **{option: value})
    pods = Pods(fabric, space)

    shown, message = refused(pods)

    assert words in shown["reason"]
    assert option in message
    assert pods.objects() == []


def test_a_place_on_a_queue_is_kept_while_others_use_the_quota(pods: Pods) -> None:
    limit(pods.space, "ResourceQuota", {"hard": {"pods": "1"}})
    start_pod(pods.space.admin, "other", "sleep 1000")
    job = pods.start("--", "echo", "at last")

    shown = pods.until(job, lambda shown: "quota" in shown["reason"], "a reason in words")
    assert shown["state"] in ("PENDING", "DOWNLOADING")
    pods.space.admin.delete("Pod", "other", grace_seconds=0)

    assert pods.until_state(job, "COMPLETED")["attempt"] == 1


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        (
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu." + NOWHERE.format(n=2),
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu",
        ),
        (
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated"
            " taint {gpu: yes}." + NOWHERE.format(n=3),
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated"
            " taint {gpu: yes}",
        ),
        # Somebody uses it, and will end.
        (
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available:"
            " 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.",
            "",
        ),
        # The node comes back.
        (
            "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
            + NOWHERE.format(n=1),
            "",
        ),
        ("0/1 nodes are available: 1 node(s) were unschedulable." + NOWHERE.format(n=1), ""),
        ('0/1 nodes are available: persistentvolumeclaim "nope" not found. not found', ""),
        ("", ""),
    ],
)
def test_a_wait_that_ends_by_itself_is_distinguished_from_one_that_never_does(
    message: str, meant: str
) -> None:
    assert unschedulable_reason(message) == meant


def test_a_pod_counts_for_its_containers_its_side_cars_and_an_init_container_that_needs_more() -> None:
    def container(memory: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"memory": memory}}, **more}

    pod = {
        "initContainers": [container("3Gi"), container("1Gi", restartPolicy="Always"), container("1Gi")],
        "containers": [container("1Gi")],
    }

    assert needs(pod, "requests") == {"memory": 3.0 * (1 << 30)}
    assert list(above({"requests.memory": "5Gi", "pods": "1"}, pod, 2)) == [
        ("requests.memory", 6.0 * (1 << 30), "5Gi"),
        ("pods", 2.0, "1"),
    ]


def test_a_quota_that_is_full_is_one_line_however_often_the_cluster_tries(pods: Pods) -> None:
    start_pod(pods.space.admin, "fills", "sleep 600")
    limit(pods.space, "ResourceQuota", {"hard": {"pods": "1"}})

    def tries() -> int:
        events = pods.space.admin.list("Event", fields="reason=FailedCreate").items
        return sum("exceeded quota" in str(event.get("message")) for event in events)

    before = tries()

    args = ("--backend", "cluster", "--image", DEBIAN, "--on-interrupt", "kill", "--", "true")
    with pods.fabric.start("run", *args) as process:
        try:
            until(lambda: tries() >= before + 4, "some tries")
        finally:
            process.terminate()
        assert process.stderr is not None
        message = process.stderr.read().decode()

    lines = [line for line in message.splitlines() if "quota" in line and "is being killed" not in line]
    assert [line.partition("waits for ")[2] for line in lines] == [
        "the namespace's quota few: asks for pods=1, the limit is pods=1"
    ]
