"""Pods that are deleted while their first process does not listen do not stay for their whole grace."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from runners.pod.names import PREPARE, SIDE_CAR
from runners.pod.observe import MissedSignals
from runners.pod.status import has_learner_begun, is_preparing, is_side_car_running
from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.kubernetes.pods import pod
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import HANGING, SEARCHING
from tests.support.waiting import until

MANIFEST = """
name: hangs
grace_seconds: 10m
framework: {command: "true"}
"""

NODE = Path("/proc/self/ns/mnt")


@pytest.fixture
def pods(fabric: Fabric, space: Space) -> Iterator[Pods]:
    configure(space)
    yield Pods(fabric, space)


def first_processes(document: Mapping[str, Any], role: str) -> list[int]:
    """List the first processes of a pod's containers of one role; the node that tests run on shows them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        with suppress(OSError, psutil.Error):
            folder = Path(f"/proc/{process.pid}")
            is_first = (folder / "status").read_text().split("NSpid:")[1].splitlines()[0].split()[-1] == "1"
            is_of_pod = document["metadata"]["uid"] in (folder / "mountinfo").read_text()
            # This machine has the pods' folders, too.
            is_apart = (folder / "ns" / "mnt").readlink() != NODE.readlink()
            if role in words and is_first and is_of_pod and is_apart:
                found.append(process.pid)
    return found


def freeze(document: Mapping[str, Any], role: str) -> int:
    """Keep a container's first process from acting on any signal that it handles; return its pid."""
    until(lambda: first_processes(document, role), f"the first process of {role}")
    (pid,) = first_processes(document, role)
    os.kill(pid, signal.SIGSTOP)
    return pid


@pytest.mark.parametrize(
    "role",
    [PREPARE, pytest.param(SIDE_CAR, marks=pytest.mark.soak("the gate deletes a pod that prepares itself"))],
)
def test_a_pod_that_misses_its_deletion_before_its_learner_begins_is_sent_the_signal_again(
    space: Space, role: str
) -> None:
    script = "trap '[ -z \"$missed\" ] || exit 143; missed=yes' TERM; while :; do sleep 0.1; done"
    document = pod("deaf", "true")
    (main,) = document["spec"]["containers"]
    deaf = {**main, "name": role, "command": ["sh", "-c", script]}
    if role == SIDE_CAR:
        deaf["restartPolicy"] = "Always"
        main |= {"image": "localhost/no/such:1", "imagePullPolicy": "Never"}
    document["spec"]["initContainers"] = [deaf]
    document["spec"]["terminationGracePeriodSeconds"] = 600
    admin = space.admin
    admin.create(document)
    runs = is_preparing if role == PREPARE else is_side_car_running
    until(lambda: runs(admin.read("Pod", "deaf") or {}), "the container to run")
    signals = MissedSignals(admin)

    admin.delete("Pod", "deaf")

    def has_gone() -> bool:
        found = admin.read("Pod", "deaf")
        if found is not None:
            signals.look(found)
        return found is None

    until(has_gone, "the pod to go, of whose grace ten minutes are left")


@pytest.mark.parametrize(
    "image",
    [HANGING, pytest.param(SEARCHING, marks=pytest.mark.soak("the gate kills a job of this image, below"))],
)
def test_a_pod_whose_python_does_not_begin_goes_at_once_when_it_is_deleted(pods: Pods, image: str) -> None:
    Path(pods.fabric.folder, "m.yml").write_text(MANIFEST)
    pods.start("m.yml", image=image)
    until(lambda: any(map(has_learner_begun, pods.pods())), "the containers to run")
    (found,) = pods.pods()
    name = found["metadata"]["name"]

    pods.space.admin.delete("Pod", name)

    until(
        lambda: pods.space.admin.read("Pod", name) is None,
        "the pod to go, of whose grace ten minutes are left",
    )


def test_a_kill_ends_a_pod_whose_python_does_not_begin(pods: Pods) -> None:
    job = pods.start("--", "true", image=SEARCHING)
    until(lambda: any(map(has_learner_begun, pods.pods())), "the containers to run")

    pods.fabric("kill", job)

    assert pods.show(job)["state"] == "HALTED"
    until(lambda: not pods.pods(), "the pod to go", every=IN_CLUSTER_SECONDS)


def test_a_learner_that_does_not_get_the_clusters_signal_is_halted_all_the_same(pods: Pods) -> None:
    command = "case $LEARNER_NAME_PREFIX in *-a1) trap 'echo halted; exit 1' TERM; echo ready; sleep 600 & wait ;; esac"
    job = pods.start("--", "sh", "-c", f"{command}; echo second")
    pods.until_state(job, "PROCESSING")
    pods.until_printed(job, "ready", attempt=1)

    (found,) = pods.pods()
    first = freeze(found, "learner")
    pods.space.admin.delete("Pod", found["metadata"]["name"])

    pods.until_printed(job, "halted", attempt=1)
    os.kill(first, signal.SIGCONT)
    shown = pods.until_state(job, "COMPLETED")
    assert shown["attempt"] == 2
