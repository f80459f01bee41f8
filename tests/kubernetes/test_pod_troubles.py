"""What goes wrong with pods: each in one sentence, with its code, and nothing left in the cluster."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.kubernetes.harms import kill_container
from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.kubernetes.pods import start_pod
from tests.support.cluster import Space
from tests.support.cluster_health import SCRIPT
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX
from tests.support.waiting import until


@pytest.fixture
def pods(shared_pods: Pods) -> Pods:
    return shared_pods.anew()


def of_job(pods: Pods, kind: str, job: str) -> list[dict[str, Any]]:
    """Return what the cluster has of a kind for one job."""
    return [dict(one) for one in pods.space.admin.list(kind, f"fabric.job={job}").items]


def test_an_image_that_is_nowhere_is_reported_at_once_and_no_pod_is_left(pods: Pods) -> None:
    ran = pods.run("--set", "image_pull=never", "--", "true", image="localhost/no/such:1", expect=75)

    shown = pods.show()
    assert (shown["state"], shown["reason_code"]) == ("FAILED", "S103")
    assert "localhost/no/such:1" in ran.stderr
    until(lambda: not pods.pods(), "its pod to be gone", every=IN_CLUSTER_SECONDS)


class TestNoNode:
    """What is seen of jobs that no node can run."""

    def test_a_gpu_that_no_node_has_is_waited_for_in_the_schedulers_words(self, shared_pods: Pods) -> None:
        job = shared_pods.start("--gpus", "900", "--", "true")

        shown = shared_pods.until(job, lambda shown: "nvidia.com/gpu" in shown["reason"], "a reason in words")

        assert shown["state"] in ("PENDING", "DOWNLOADING")
        assert "nodes are available" in shown["reason"]
        shared_pods.fabric("kill", job)
        shared_pods.until_state(job, "HALTED")
        until(lambda: not of_job(shared_pods, "Pod", job), "its pod to be gone")

    def test_a_job_of_which_nothing_is_left_before_it_began_fails_at_once(self, shared_pods: Pods) -> None:
        # So much code is sent to the pod: its launch waits until that runs.
        (shared_pods.fabric.folder / "big.bin").write_bytes(os.urandom(2_000_000))
        job = shared_pods.start("--gpus", "900", "--set", "max_platform_restarts=0", "--", "true")
        shared_pods.until(job, lambda shown: "nvidia.com/gpu" in shown["reason"], "it to wait for a node")

        (found,) = of_job(shared_pods, "Job", job)
        shared_pods.space.admin.delete("Job", found["metadata"]["name"])

        shown = shared_pods.until_state(job, "FAILED")
        assert shown["exit_code"] == 75
        assert shown["reason_code"].startswith("S")


class TestDeletedFromOutside:
    """What is seen of jobs that run at once and of which something is deleted."""

    @pytest.fixture(scope="class")
    @classmethod
    def running(cls, shared_pods: Pods) -> tuple[str, str]:
        once = shared_pods.start(
            "--set", "max_platform_restarts=0", "--", "sh", "-c", "echo ready; sleep 100"
        )
        command = "case $LEARNER_NAME_PREFIX in *-a1) sleep 100 ;; esac; echo second"
        again = shared_pods.start("--", "sh", "-c", command)
        for job in (once, again):
            shared_pods.until_state(job, "PROCESSING")
        return once, again

    @pytest.mark.parametrize(
        "kind",
        [
            pytest.param(
                "Pod", marks=pytest.mark.soak("the gate deletes a pod that is followed by another attempt")
            ),
            "Job",
        ],
    )
    def test_what_is_deleted_from_outside_is_the_platforms_fault(
        self, shared_pods: Pods, running: tuple[str, str], kind: str
    ) -> None:
        job, _ = running
        if shared_pods.show(job)["state"] == "FAILED":  # the other kind was deleted of it
            shared_pods.fabric("resume", job)
            shared_pods.until_state(job, "PROCESSING")
        (found,) = of_job(shared_pods, kind, job)
        shared_pods.space.admin.delete(kind, found["metadata"]["name"], grace_seconds=1)

        shown = shared_pods.until_state(job, "FAILED")
        assert shown["exit_code"] == 75
        assert shown["reason_code"].startswith("S")

    def test_a_pod_that_is_deleted_is_followed_by_another_attempt(
        self, shared_pods: Pods, running: tuple[str, str]
    ) -> None:
        _, job = running
        (found,) = of_job(shared_pods, "Pod", job)
        shared_pods.space.admin.delete("Pod", found["metadata"]["name"], grace_seconds=1)

        shown = shared_pods.until_state(job, "COMPLETED")
        assert shown["attempt"] == 2


@pytest.mark.soak(
    "an image without Python that fails; the gate brings files in and out of one in test_pod_files"
)
def test_an_image_without_python_works_all_the_same(pods: Pods) -> None:
    ran = pods.run("--", "sh", "-c", "echo $LEARNER_ID; ls /job; exit 4", image=BUSYBOX, expect=4)

    assert ran.stdout.split()[0] == "1"
    assert "model-code" in ran.stdout
    assert pods.show()["reason_code"] == "C201"


def test_a_learners_failure_stops_the_others_with_nobody_watching(pods: Pods) -> None:
    command = "until [ -e /tmp/fail ]; do sleep 0.1; done; exit 5"
    job = pods.start("--set", "learners=2", "--set", "ends_when=all", "--", "sh", "-c", command)
    pods.until_state(job, "PROCESSING")
    pods.fabric("controller", "stop")
    until(lambda: not pods.fabric.json("controller", "status", "--json", expect=None)["running"], "its end")
    second = next(pod["metadata"]["name"] for pod in pods.pods() if _index(pod) == 1)

    assert pods.space.admin.exec(second, "learner", ["touch", "/tmp/fail"]).wait() == 0

    phases: list[str] = []

    def have_failed() -> bool:
        phases[:] = [pod["status"]["phase"] for pod in pods.pods()]
        return phases == ["Failed", "Failed"]

    until(have_failed, lambda: f"both pods to end: {phases}", seconds=60)

    pods.fabric("wait", job, expect=None)
    shown = pods.show(job)
    assert (shown["state"], shown["exit_code"]) == ("FAILED", 5)


@pytest.mark.skipif(
    not SCRIPT, reason="containers are killed on the node, which only the test cluster permits"
)
def test_a_side_car_that_is_killed_costs_no_byte_of_a_running_learner(pods: Pods) -> None:
    lines = "i=0; while [ $i -lt 80 ]; do printf 'part %03d\\r\\n' $i; i=$((i+1)); sleep 0.1; done"
    job = pods.start("--", "sh", "-c", lines)
    output = pods.fabric.jobs_home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and output.stat().st_size > 100, "the first lines to be here")

    # The cluster's log drops carriage returns: whoever reads on there by offsets loses and doubles bytes.
    kill_container("journal")(pods.space, job)

    pods.until_state(job, "COMPLETED")
    assert output.read_bytes() == b"".join(b"part %03d\r\n" % number for number in range(80))


def _index(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def test_learners_that_do_not_come_together_go_back_into_the_line(fabric: Fabric, space: Space) -> None:
    configure(space, gang_seconds=3)
    pods = Pods(fabric, space)
    hard = {"pods": "2"}
    document = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "one"},
        "spec": {"hard": hard},
    }
    space.admin.create(document)
    until(
        lambda: (space.admin.read("ResourceQuota", "one") or {}).get("status", {}).get("hard"),
        "the quota to count",
    )
    start_pod(space.admin, "other", "sleep 1000")
    job = pods.start("--set", "learners=2", "--set", "ends_when=all", "--", "echo", "together")

    shown = pods.until(job, lambda shown: "2 learners" in shown["reason"], "the job to be back in the line")
    assert shown["state"] in ("QUEUED", "PENDING")
    space.admin.delete("ResourceQuota", "one")

    assert pods.until_state(job, "COMPLETED")["attempt"] == 1
