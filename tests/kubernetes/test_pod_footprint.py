"""What a job takes from its cluster besides its learners: little CPU and memory."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from runners.conformance.harness import request_of
from runners.pod.runner import PodRunner
from tests.kubernetes.jobs import Pods
from tests.support.cluster import Space
from tests.support.waiting import until


def quota(space: Space, **hard: str) -> None:
    spec = {"hard": {key.replace("_", "."): value for key, value in hard.items()}}
    document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": spec}
    space.admin.create(document)
    until(
        lambda: (space.admin.read("ResourceQuota", "few") or {}).get("status", {}).get("hard"),
        "the quota to count",
    )


class TestSideCars:
    """What is seen of two jobs in a namespace with one quota and with another."""

    @pytest.fixture(scope="class")
    @classmethod
    def free(cls, shared_pods: Pods) -> tuple[str, dict[str, Any]]:
        """What a job printed where a quota demands requests of CPU alone, and its pod."""
        quota(shared_pods.space, requests_cpu="70m")
        ran = shared_pods.run("--set", "cpus=0.05", "--", "echo", "small")
        (pod,) = shared_pods.pods()
        return ran.stdout, pod

    def test_a_job_of_a_twentieth_of_a_cpu_runs_where_little_more_is_left(
        self, free: tuple[str, dict[str, Any]]
    ) -> None:
        assert free[0] == "small\n"

    def test_side_cars_have_a_cpu_limit_only_where_a_quota_demands_one(
        self, shared_pods: Pods, free: tuple[str, dict[str, Any]]
    ) -> None:
        before = free[1]["metadata"]["name"]
        shared_pods.space.admin.delete("ResourceQuota", "few")
        quota(shared_pods.space, limits_cpu="1")

        ran = shared_pods.run("--set", "cpus=0.05", "--", "echo", "limited")

        (limited,) = (pod for pod in shared_pods.pods() if pod["metadata"]["name"] != before)
        assert ran.stdout == "limited\n"
        for container in free[1]["spec"]["initContainers"]:
            assert "cpu" not in container["resources"]["limits"]
        for container in limited["spec"]["initContainers"]:
            assert container["resources"]["limits"]["cpu"] == "250m"


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, ["journal"]),
        ({"learners": 2}, ["prepare", "journal"]),
        ({"python": "requirements", "requirements": ("six",)}, ["prepare", "journal"]),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_pod_has_an_init_container_only_where_there_may_be_something_to_wait_for(
    spec: dict[str, Any], names: list[str]
) -> None:
    request = request_of("true", home=str(uuid.uuid4()), image="busybox", **spec)

    plan = PodRunner.plan_unconnected(request, {})

    pod = next(one for one in plan.objects if one["kind"] == "Job")["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == names
