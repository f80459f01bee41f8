"""What is done to a cluster, to a job's objects and to the controller while jobs run."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.contract.cluster import Absent
from backends.kubernetes.api import Api, Request
from backends.kubernetes.auth import Login
from tests.kubernetes.pods import pod
from tests.kubernetes.relay import Relay
from tests.support.cluster import USER, Space
from tests.support.cluster_health import (
    KUBECONFIG,
    control,
    fault,
    last_lines,
    log_lines_about,
    start_dead_parts,
)
from tests.support.controllers import answers, kill
from tests.support.real_jobs import Ground
from tests.support.waiting import patience, until
from workbench.controller.client.connect import ensure_controller
from workbench.errors import FabricError

HOLD_SECONDS = 3.0
ABSENT_SECONDS = 10 * HOLD_SECONDS


@dataclass(slots=True)
class World:
    """Where harm is done."""

    ground: Ground
    space: Space
    relay: Relay
    dice: random.Random
    started: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Tell what is done when, for who reads of a round that failed."""
        print(f"at {time.monotonic() - self.started:.1f} s: {text}", flush=True)

    def pause(self, least: float, most: float) -> None:
        """Let a random time pass: how long something is away is what is tried here."""
        time.sleep(self.dice.uniform(least, most))


def _component(name: str, signal: str) -> Callable[[World], None]:
    def harm(world: World) -> None:
        control("stop", name, signal)
        world.pause(0.2, 3.0)
        _until_back(world)

    return harm


def _until_back(world: World) -> None:
    """Wait until the cluster runs pods again.

    A kubelet that starts while etcd is stopped was seen to know nothing of a pod for ever: that is harm to the cluster
    itself, of which no pod comes back.
    """
    admin, name = world.space.admin, f"back-{world.dice.randrange(1 << 32):x}"

    def has_run() -> bool:
        start_dead_parts()  # one may end as soon as it was started: for want of instances of inotify, say
        try:
            found = admin.read("Pod", name) or admin.create(pod(name, "true"))
        except FabricError:
            return False
        return bool((found.get("status") or {}).get("phase") == "Succeeded")

    until(
        has_run,
        lambda: f"the cluster to run pods again; {fault() or 'it is whole'}\n{last_lines()}",
        seconds=60,
    )
    with suppress(FabricError):  # it goes with its namespace
        admin.delete("Pod", name, grace_seconds=0)


def _kill_controller(world: World) -> None:
    kill(answers(world.ground.home).pid)
    world.pause(0.0, 1.0)
    ensure_controller(world.ground.home)


def _absent_controller(world: World) -> None:
    kill(answers(world.ground.home).pid)
    time.sleep(ABSENT_SECONDS)
    ensure_controller(world.ground.home)


def _cut(world: World) -> None:
    for _ in range(world.dice.randint(1, 4)):
        world.relay.cut()
        world.pause(0.1, 0.6)


def _expire(world: World) -> None:
    file = world.space.kubeconfig
    text = file.read_text()
    _write(file, text.replace(f"{USER}-token", "a-token-that-has-expired"))
    world.relay.cut()
    world.pause(1.0, 4.0)
    _write(file, text)


def _write(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


CLUSTER: Mapping[str, Callable[[World], None]] = {
    "the API server is killed": _component("kube-apiserver", "KILL"),
    "etcd is stopped": _component("etcd", "TERM"),
    "the kubelet is stopped": _component("kubelet", "TERM"),
    "containerd is killed": _component("containerd", "KILL"),
    "the controller manager is killed": _component("kube-controller-manager", "KILL"),
    "the scheduler is killed": _component("kube-scheduler", "KILL"),
    "fabric's controller is killed": _kill_controller,
    "fabric's controller is absent": _absent_controller,
    "all connections are cut": _cut,
    "the token has expired": _expire,
}
"""Done to everybody; no job may notice."""

LONGEST = "fabric's controller is absent"


@dataclass(frozen=True, slots=True)
class Harm:
    """Something that is done to one job."""

    do: Callable[[Space, str], None]
    another_attempt: bool = True
    """Whether the job may have to run again for it."""


def pods_of(space: Space, job_id: str) -> list[Any]:
    return list(space.admin.list("Pod", f"fabric.job={job_id}").items)


def describe_pods(space: Space, job_id: str) -> str:
    """Return what the cluster and its node know of a job's pods, for who reads of one that does not end."""
    lines = []
    for each in pods_of(space, job_id):
        metadata, status = each["metadata"], each["status"]
        known = {
            name: metadata.get(name)
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "finalizers")
        }
        lines += [f"{metadata['name']}: {json.dumps({**known, **status})}", log_lines_about(metadata["name"])]
    return "\n".join(lines) or "it has no pod"


def delete_pod(space: Space, job_id: str) -> None:
    for each in pods_of(space, job_id):
        space.admin.delete("Pod", each["metadata"]["name"])


def _evict(space: Space, job_id: str) -> None:
    access = space.admin.access
    with closing(Api(Login(access, {}), access.address)) as api:
        for each in pods_of(space, job_id):
            name = each["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            path = f"/api/v1/namespaces/{space.namespace}/pods/{name}/eviction"
            with suppress(Absent):
                api.call(Request("POST", path, "evict a pod", body=body))


def _delete(kind: str) -> Callable[[Space, str], None]:
    def harm(space: Space, job_id: str) -> None:
        for each in space.admin.list(kind, f"fabric.job={job_id}").items:
            space.admin.delete(kind, each["metadata"]["name"])

    return harm


def kill_container(name: str) -> Callable[[Space, str], None]:
    def harm(space: Space, job_id: str) -> None:
        for found in pods_of(space, job_id):
            status = found["status"]
            states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
            for each in states:
                if each["name"] == name and "running" in each.get("state", {}):
                    identity = each["containerID"].partition("://")[2]
                    address = str(Path(KUBECONFIG).parent / "containerd.sock")
                    words = ["ctr", "-a", address, "-n", "k8s.io", "tasks", "kill", "-s", "KILL", identity]
                    subprocess.run(words, capture_output=True, timeout=patience(30))

    return harm


JOB: Mapping[str, Harm] = {
    "its pod is deleted": Harm(delete_pod),
    "its pod is evicted": Harm(_evict),
    "its Job is deleted": Harm(_delete("Job")),
    "its Service is deleted": Harm(_delete("Service"), another_attempt=False),
    "its side-car is killed": Harm(kill_container("journal"), another_attempt=False),
}
"""Done to one job each."""


def do_to(space: Space, harm: Harm, job_id: str) -> None:
    """Do it; the cluster may be down at this moment, and then it is done when it is back."""

    def is_done() -> bool:
        harm.do(space, job_id)
        return True

    until(is_done, f"harm to {job_id}", every=0.2, despite=(FabricError,))
