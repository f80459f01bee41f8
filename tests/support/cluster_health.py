"""Whether the test cluster can run pods: what died of it is started again, and one that stays dead fails at once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.kubeconfig import resolve
from backends.kubernetes.options import checked_options
from tests.gate.leftovers import SESSION
from tests.support.folders import REAL_HOME
from tests.support.images import CACHE
from workbench.errors import FabricError

KUBECONFIG = os.environ.get("FABRIC_TEST_KUBECONFIG", "")
"""An administrator's, of any cluster that tests may make namespaces in."""

SCRIPT = os.environ.get("FABRIC_TEST_CLUSTER", "")
"""The program that runs the test cluster and loads images into it; without it the images must be there."""

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE = ("containerd", "coredns", "kubelet")

BACK_SECONDS = 60.0
"""How long a cluster may take to come back."""

BROKEN_SECONDS = 300.0
"""How long one that did not is taken for broken, without waiting for it again."""

START_SECONDS = 20.0
LOOK_SECONDS = 0.3
LOG_LINES = 15


class ClusterBroken(AssertionError):
    """The test cluster cannot run pods, and did not come back."""


def control(*args: str, seconds: float = 120.0) -> str:
    """Run the test cluster's program; it keeps its files beside the kubeconfig."""
    # Not this test's folders, which are gone when it ends: what is started here lives on, and runc writes there.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TMPDIR", SESSION))
    }
    environment |= {"HOME": str(REAL_HOME), "KUBE_HOME": str(_folder())}
    # What is started again is to notice a dead node as soon as what CI started.
    environment.setdefault("KUBE_NODE_GRACE", "10s")
    environment.setdefault("GOGC", "400")  # as `.ci/run` starts it
    done = subprocess.run(
        ["bash", SCRIPT, *args], env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"cluster {' '.join(args)}: {done.stdout}{done.stderr}"
    return done.stdout


def administrator(namespace: str = "default") -> KubernetesCluster:
    """Reach the cluster as who may do anything."""
    access = resolve("", kubeconfig=KUBECONFIG, namespace=namespace, environ={})
    return KubernetesCluster(access, checked_options("admin", {}))


def dead_parts() -> list[str]:
    """Name the programs of the test cluster that do not run; none where the cluster is not this program's."""
    run = _folder() / "run"
    if not SCRIPT or not run.is_dir():
        return []
    return [name for name in (*CONTROL_PLANE, *NODE) if not _is_alive(run / f"{name}.pid")]


def start_dead_parts() -> None:
    """Start again what does not run, as far as it will; whether it stays is seen at the next look."""
    dead = dead_parts()
    for group in (CONTROL_PLANE, NODE):
        if name := next((name for name in group if name in dead), ""):  # the program starts all of a group
            with suppress(AssertionError, subprocess.TimeoutExpired):
                # It would wait a minute for a node whose kubelet has ended again.
                control("start", name, seconds=START_SECONDS)


def ensure_cluster() -> None:
    """See that the cluster runs pods; start again what is dead, and wait until the node is ready.

    Raises:
        ClusterBroken: it did not come back: now, or for another test a short while ago.
    """
    if not fault():
        return
    mark = CACHE / "cluster.broken"
    with (CACHE / "cluster.mending").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = fault()
        if found and mark.exists() and time.time() - mark.stat().st_mtime < BROKEN_SECONDS:
            raise ClusterBroken(f"{found}\nit was waited for already:\n{mark.read_text()}")
        begun = time.time()
        since = begun if set(NODE) & set(dead_parts()) else 0.0
        while found := fault(since):
            if time.time() - begun > BACK_SECONDS:
                mark.write_text(f"{found}\n{last_lines()}")
                raise ClusterBroken(f"{found}\n{last_lines()}")
            start_dead_parts()
            time.sleep(LOOK_SECONDS)
        mark.unlink(missing_ok=True)


def fault(since: float = 0.0) -> str:
    """Say what keeps the cluster from running pods, or nothing; a node's state from before ``since`` does not count."""
    if dead := dead_parts():
        return f"the test cluster lacks {', '.join(dead)}"
    try:
        admin = administrator()
        try:
            nodes = [
                node
                for node in admin.list("Node").items
                if (node["metadata"].get("labels") or {}).get("type") != "kwok"
            ]
        finally:
            admin.close()
    except FabricError as error:
        return f"the test cluster does not answer: {error}"
    faults = [_fault_of(node, since) for node in nodes]
    if not faults:
        return "the test cluster has no node"
    return "" if "" in faults else "; ".join(faults)


def last_lines() -> str:
    """Return the end of the kubelet's log, where it lies beside the kubeconfig."""
    log = _folder() / "log" / "kubelet.log"
    if not log.exists():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 16_384))
        lines = stream.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join(["the kubelet's log ends so:", *lines])


def log_lines_about(text: str) -> str:
    """Return the last lines of the kubelet's log that name something, where it lies beside the kubeconfig."""
    log = _folder() / "log" / "kubelet.log"
    if not log.exists():
        return ""
    with log.open(errors="replace") as stream:
        lines = deque((line.rstrip() for line in stream if text in line), 2 * LOG_LINES)
    return "\n".join([f"the kubelet's log has of {text}:", *lines])


def _folder() -> Path:
    return Path(KUBECONFIG).parent


def _is_alive(file: Path) -> bool:
    try:
        status = Path(f"/proc/{int(file.read_text())}/status").read_text()
    except (OSError, ValueError):
        return False
    return "\nState:\tZ" not in status


def _fault_of(node: Any, since: float) -> str:
    name = node["metadata"]["name"]
    ready: Any = next(
        (each for each in node["status"].get("conditions") or () if each["type"] == "Ready"), {}
    )
    if ready.get("status") != "True":
        return f"node {name} is not ready: {ready.get('message') or 'nothing is known of it'}"
    taints = [
        each["key"] for each in node["spec"].get("taints") or () if each["effect"] != "PreferNoSchedule"
    ]
    if taints:
        return f"node {name} is tainted: {', '.join(taints)}"
    # Times are in whole seconds.
    if datetime.fromisoformat(ready["lastHeartbeatTime"]).timestamp() < int(since):
        return f"node {name} has not reported since its kubelet was started again"
    return ""
