"""What is left of a job in its cluster when it has ended: no Secret, and the rest for a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.support.cluster import Space, cluster_held
from tests.support.cluster_health import control
from tests.support.command import Fabric
from tests.support.waiting import ended, until
from workbench.paths import Home
from workbench.store.db.identity import make_home


def kinds(pods: Pods) -> set[str]:
    return {one.split()[0] for one in pods.objects()}


def test_secrets_go_when_a_job_has_ended_and_the_rest_stays_for_a_time(
    fabric: Fabric, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(space)
    monkeypatch.setenv("TOKEN", "hush-hush")
    pods = Pods(fabric, space)

    pods.run("--set", "secrets=[TOKEN]", "--", "sh", "-c", "echo $TOKEN | wc -c", expect=0)

    until(lambda: "Secret" not in kinds(pods), "the job's Secrets to be gone", every=IN_CLUSTER_SECONDS)
    (job,) = space.admin.list("Job", "fabric.job").items
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600
    assert {"Job", "Pod", "Service"} <= kinds(pods)


def test_nothing_is_left_after_the_time_to_live_and_all_of_the_job_is_here(
    fabric: Fabric, space: Space, home: Home
) -> None:
    configure(space, ttl_seconds=0)
    pods = Pods(fabric, space)
    job = pods.start("--", "sh", "-c", "echo kept; echo made > $RESULT_DIR/r")

    assert pods.wait(job)["state"] == "COMPLETED"

    until(lambda: pods.objects() == [], "the cluster to have removed all of it", every=IN_CLUSTER_SECONDS)
    assert pods.fabric("logs", job).stdout == "kept\n"
    assert (home.job(job).results / "r").read_text() == "made\n"
    pods.fabric("delete", job, "--yes")


def test_what_ends_while_nobody_is_there_stays_until_it_is_here(
    fabric: Fabric, space: Space, home: Home
) -> None:
    configure(space, ttl_seconds=0, results_hold_seconds=120)
    pods = Pods(fabric, space)
    command = "until [ -e /tmp/go ]; do sleep 0.1; done; echo late; echo made > $RESULT_DIR/r"
    job = pods.start("--", "sh", "-c", command)
    pods.until_state(job, "PROCESSING")
    fabric("controller", "stop")
    until(lambda: not fabric.json("controller", "status", "--json", expect=None)["running"], "its end")
    (pod,) = pods.pods()
    assert space.admin.exec(pod["metadata"]["name"], "learner", ["touch", "/tmp/go"]).wait() == 0
    until(lambda: "late" in str(pods.log(pods.pods()[0]["metadata"]["name"])), "the job to end")
    assert {"Job", "Pod", "Secret"} <= kinds(pods)

    assert pods.wait(job)["state"] == "COMPLETED"

    until(lambda: pods.objects() == [], "the cluster to have removed all of it", every=IN_CLUSTER_SECONDS)
    assert pods.fabric("logs", job).stdout == "late\n"
    assert (home.job(job).results / "r").read_text() == "made\n"


def learner_is_over(pods: Pods) -> bool:
    """Say whether the cluster reports the end of the only learner."""
    (pod,) = pods.pods()
    containers = pod["status"].get("containerStatuses", ())
    return any(one["name"] == "learner" and "terminated" in one["state"] for one in containers)


@pytest.mark.soak("stops the node of all pods; the gate has this end in controller/test_trouble")
@pytest.mark.parametrize("command", ["halt", "kill"])
def test_a_job_whose_node_is_lost_after_its_end_can_be_stopped(
    fabric: Fabric, unheld_space: Space, command: str
) -> None:
    configure(unheld_space, journal_hold_seconds=300)
    pods = Pods(fabric, unheld_space)
    with cluster_held(alone=True):
        job = pods.start("--", "sh", "-c", "sleep 5; echo late")
        pods.until_state(job, "PROCESSING")
        fabric("controller", "stop")
        until(lambda: learner_is_over(pods), "the cluster to report the learner's end")
        control("stop", "kubelet", "KILL")
        try:
            fabric(command, job)
            reason = pods.show(job)["reason"]
        finally:
            control("start", "kubelet")

    assert "its last output and files stay on the backend" in reason


CONTROLLER = """
import os, signal, sys
from backends.kubernetes.cluster import KubernetesCluster
from runners.pod.runner import PodRunner
from workbench.controller.main import main

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def killed_after_the_first(self, kind, *more, **options):
    delete(self, kind, *more, **options)
    if kind == "Secret":
        killed()

delete = KubernetesCluster.delete
{harm}
main(["--home", sys.argv[1], "--wait"])
"""


@contextmanager
def controller(fabric: Fabric, home: Home, harm: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a controller to which a line of code does harm."""
    make_home(home)
    fabric("controller", "stop", expect=None)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", CONTROLLER.format(harm=harm), str(home.path)]
    ) as process:
        try:
            until(
                lambda: "not running" not in fabric("controller", "status").stdout,
                "the controller",
            )
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(
            "PodRunner.release = killed",
            id="before any Secret is deleted",
            marks=pytest.mark.soak("the gate kills it between two Secrets"),
        ),
        pytest.param("KubernetesCluster.delete = killed_after_the_first", id="after the first one"),
    ],
)
def test_secrets_go_though_the_controller_is_killed_between_collection_and_release(
    fabric: Fabric, space: Space, home: Home, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    configure(space)
    monkeypatch.setenv("TOKEN", "hush-hush")
    pods = Pods(fabric, space)
    with controller(fabric, home, harm) as process:
        job = pods.start("--set", "secrets=[TOKEN]", "--", "sh", "-c", "echo made > $RESULT_DIR/r")
        assert ended(process, seconds=120) == -signal.SIGKILL
    assert (home.job(job).results / "r").read_text() == "made\n"
    assert "Secret" in kinds(pods)

    assert pods.wait(job)["state"] == "COMPLETED"

    until(lambda: "Secret" not in kinds(pods), "the job's Secrets to be gone", every=IN_CLUSTER_SECONDS)


def test_secrets_go_though_the_files_of_a_job_cannot_be_brought(
    fabric: Fabric, space: Space, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(space)
    monkeypatch.setenv("TOKEN", "hush-hush")
    pods = Pods(fabric, space)
    with controller(fabric, home, "PodRunner.download = lambda *_: 1 / 0"):
        job = pods.start("--set", "secrets=[TOKEN]", "--", "true")

        assert pods.wait(job)["state"] == "COMPLETED"

        until(lambda: "Secret" not in kinds(pods), "the job's Secrets to be gone", every=IN_CLUSTER_SECONDS)
    (left,) = space.admin.list("Job", "fabric.job").items
    assert "ttlSecondsAfterFinished" not in left["spec"]
