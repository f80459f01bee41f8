"""Queues of Kueue: found in the version that is served, and the reason of a wait in Kueue's own words.

Kueue itself is not in the test cluster: its kinds are, and what it would do is done by hand.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.contract.cluster import Absent, AlreadyThere
from backends.kubernetes.api import Request
from runners.pod.kueue import check_queue, waiting_text
from tests.kubernetes.jobs import Pods, configure
from tests.kubernetes.server import Answer, Server, serve, status
from tests.support.cluster import Space
from tests.support.cluster_health import SCRIPT
from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.errors import FabricError, LaunchRefused

GROUP = "kueue.x-k8s.io"
SECONDS = 60.0
JOB = {
    "metadata": {"uid": "1234", "labels": {"kueue.x-k8s.io/queue-name": "team-a"}},
    "spec": {"suspend": True},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path) as server:
        yield server


def serves(server: Server, *versions: str) -> None:
    server.says(
        f"/apis/{GROUP}", Answer({"kind": "APIGroup", "versions": [{"version": one} for one in versions]})
    )


def lists(server: Server, version: str, plural: str, *items: dict[str, Any]) -> None:
    path = f"/apis/{GROUP}/{version}/namespaces/default/{plural}"
    server.says(path, Answer({"kind": "List", "metadata": {}, "items": list(items)}))


@pytest.mark.parametrize(
    ("versions", "used", "spec"),
    [
        (("v1beta1",), "v1beta1", {"priorityClassName": "urgent"}),
        (("v1beta2",), "v1beta2", {"priorityClassRef": {"name": "urgent", "kind": "WorkloadPriorityClass"}}),
        (("v1beta1", "v1beta2"), "v1beta2", {"priorityClassRef": {"name": "urgent"}}),
    ],
)
def test_queue_and_reason_are_found_in_the_version_that_is_served(
    server: Server, versions: tuple[str, ...], used: str, spec: dict[str, Any]
) -> None:
    message = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu, 1 more needed."
    conditions = [{"type": "QuotaReserved", "status": "False", "message": message}]
    serves(server, *versions)
    lists(server, used, "localqueues", {"metadata": {"name": "team-a"}})
    lists(server, used, "workloads", {"metadata": {}, "spec": spec, "status": {"conditions": conditions}})
    cluster = server.cluster()

    check_queue(cluster, "team-a")

    assert waiting_text(cluster, JOB) == (
        "waits in the queue team-a of the cluster, with the priority class urgent: " + message.rstrip(".")
    )
    with pytest.raises(LaunchRefused, match="no queue team-b") as caught:
        check_queue(cluster, "team-b")
    assert "team-a" in caught.value.hint


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([], "waits in the queue team-a of the cluster"),
        (
            [
                {"type": "QuotaReserved", "status": "False", "message": "no room"},
                {"type": "Evicted", "status": "True", "message": "Preempted to accommodate a workload"},
            ],
            "waits in the queue team-a of the cluster: Preempted to accommodate a workload",
        ),
        (
            [
                {"type": "QuotaReserved", "status": "True", "message": "Quota reserved in ClusterQueue all"},
                {"type": "Admitted", "status": "False", "message": "The workload has no reservation"},
            ],
            "waits in the queue team-a of the cluster: The workload has no reservation",
        ),
    ],
)
def test_the_condition_that_explains_the_wait_is_shown(
    server: Server, conditions: list[dict[str, str]], message: str
) -> None:
    serves(server, "v1beta2")
    lists(server, "v1beta2", "workloads", {"metadata": {}, "status": {"conditions": conditions}})

    assert waiting_text(server.cluster(), JOB) == message


def test_a_queue_in_a_cluster_without_kueue_is_refused_and_found_once_it_is_there(server: Server) -> None:
    server.says(f"/apis/{GROUP}", status(404, "NotFound", "the server could not find the requested resource"))
    cluster = server.cluster()

    with pytest.raises(LaunchRefused, match="the cluster has no Kueue"):
        check_queue(cluster, "team-a")
    assert waiting_text(cluster, JOB) == "waits in the queue team-a of the cluster"
    serves(server, "v1beta2")
    lists(server, "v1beta2", "localqueues", {"metadata": {"name": "team-a"}})
    check_queue(cluster, "team-a")


def test_versions_that_are_not_understood_are_named(server: Server) -> None:
    serves(server, "v2")

    with pytest.raises(Absent, match="serves v2 of its API") as caught:
        server.cluster().list("LocalQueue")
    assert "v1beta2 and v1beta1" in caught.value.hint


def _definition(plural: str, kind: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1beta2", "schema": schema}
        for name in ("v1beta1", "v1beta2")
    ]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue"},
        },
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": versions},
    }


@pytest.fixture
def kueue(space: Space) -> Space:
    """A namespace with the queue ``team-a``, which its user may see, in a cluster with Kueue's kinds."""
    admin = space.admin
    for plural, kind in (("localqueues", "LocalQueue"), ("workloads", "Workload")):
        try:
            admin.list(kind)
        except FabricError:
            if not SCRIPT:
                pytest.skip("no Kueue: it is made in the tests' own cluster alone")
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            request = Request("POST", path, "define a kind", body=_definition(plural, kind), creates=True)
            with contextlib.suppress(AlreadyThere):
                admin._api.call(request)
    until(lambda: _listed(admin), "the kinds to be served", seconds=SECONDS)
    rule = {"apiGroups": [GROUP], "resources": ["localqueues", "workloads"], "verbs": ["list"]}
    role = admin.read("Role", "fabric")
    assert role is not None
    admin.replace({**role, "rules": [*role["rules"], rule]})
    admin.create({"apiVersion": f"{GROUP}/v1beta2", "kind": "LocalQueue", "metadata": {"name": "team-a"}})
    return space


def _listed(admin: Any) -> bool:
    try:
        return admin.list("LocalQueue") is not None and admin.list("Workload") is not None
    except FabricError:
        return False


def test_a_job_in_a_queue_waits_until_it_is_admitted_and_then_gets_its_code(
    fabric: Fabric, kueue: Space
) -> None:
    configure(kueue, queue="team-a", queue_priority_class="urgent")
    pods = Pods(fabric, kueue)
    (pods.fabric.folder / "big.bin").write_bytes(os.urandom(2_000_000))
    job = pods.start("--set", "learners=2", "--set", "ends_when=all", "--", "sh", "-c", "wc -c <big.bin")

    shown = pods.until(job, lambda shown: "team-a" in shown["reason"], "the queue to be named")
    assert shown["state"] in ("PENDING", "DOWNLOADING")
    (there,) = kueue.admin.list("Job").items
    assert there["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert there["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    assert there["spec"]["suspend"] is True and pods.pods() == []
    # What Kueue does: it explains, and starts the Job when there is room.
    name = there["metadata"]["name"]
    labels = {"kueue.x-k8s.io/job-uid": there["metadata"]["uid"]}
    conditions = [{"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota"}]
    kueue.admin.create(
        {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": "Workload",
            "metadata": {"name": f"job-{name}", "labels": labels},
            "status": {"conditions": conditions},
        }
    )
    pods.until(
        job, lambda shown: "insufficient unused quota" in shown["reason"], "Kueue's reason to be shown"
    )
    kueue.admin.patch("Job", name, {"spec": {"suspend": False}})

    assert pods.until_state(job, "COMPLETED")["attempt"] == 1
    assert pods.fabric("logs", job, "--no-prefix").stdout.split() == ["2000000", "2000000"]


def test_a_queue_that_is_not_there_is_refused(fabric: Fabric, kueue: Space) -> None:
    configure(kueue)
    pods = Pods(fabric, kueue)

    ran = pods.run("--set", "kubernetes.queue=team-b", "--", "true", expect=None)

    assert ran.returncode in (65, 69)
    assert "no queue team-b" in ran.stderr and "team-a" in ran.stderr
