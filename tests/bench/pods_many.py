"""A thousand learners on simulated nodes: how late their states are seen, and what the controller needs for that."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from backends.kubernetes.cluster import KubernetesCluster
from tests.bench.harness import FABRIC, Row, seconds_of
from tests.bench.pods import Ground, ground, until
from tests.support.cluster_health import SCRIPT, administrator, control
from tests.support.pod_images import DEBIAN
from workbench.errors import FabricError

LEARNERS: Final = int(os.environ.get("FABRIC_BENCH_LEARNERS") or 1000)
PER_JOB: Final = max(1, LEARNERS // 10)
NODES: Final = 8
RUN_SECONDS: Final = 60
"""How long a simulated learner runs: with all of them there for a while."""

LATE_SECONDS: Final = 1.0
LAUNCHED_SECONDS: Final = 60.0
MEMORY_MIB: Final = 300.0
THREADS: Final = 150


def rows() -> Iterator[Row]:
    """All learners from their start to their end, as the history of their jobs has it."""
    simulated = {
        "default_memory": "64Mi",
        "node_selector": {"type": "kwok"},
        "tolerations": ["kwok.x-k8s.io/node"],
        "pod_patch": {"metadata": {"annotations": {"sim/run": f"{RUN_SECONDS}s"}}},
    }
    what = f"{LEARNERS} learners on simulated nodes"
    with simulated_nodes(NODES), ground(**simulated) as it:
        seen = Phases(it.space.admin)
        begun = time.perf_counter()
        args = ["--set", f"learners={PER_JOB}", "--set", "ends_when=all"]
        run = [
            FABRIC,
            "run",
            "-q",
            "-d",
            "--accept-loss",
            "-b",
            "lab",
            "--image",
            DEBIAN,
            *args,
            "--",
            "true",
        ]
        for _ in range(LEARNERS // PER_JOB):
            seconds_of(run, it.environment, it.folder)
        controller = _controller(it)
        cpu = _cpu_seconds(controller)
        until(lambda: seen.count("Running") >= LEARNERS, 600.0)
        launched = time.perf_counter() - begun
        yield Row(
            f"{what} in {LEARNERS // PER_JOB} jobs: from the first submission until all run",
            launched,
            "s",
            "",
            None,
            "<= 60 s",
            launched <= LAUNCHED_SECONDS,
        )
        until(lambda: seen.count("Succeeded") >= LEARNERS, 600.0)
        until(lambda: len(_times_in_history(it, "exited")) >= LEARNERS, 60.0)
        cores = (_cpu_seconds(controller) - cpu) / (time.perf_counter() - begun)
        memory, threads = _peak_mib(controller), _threads(controller)
        late = max(
            _late(it, seen, recorded, phase)
            for recorded, phase in (("running", "Running"), ("exited", "Succeeded"))
        )
        os.kill(controller, 9)  # what simulated pods have printed, nobody will ever tell it
    yield Row(f"{what}: threads of the controller", threads, "", "", None, "<= 150", threads <= THREADS)
    yield Row(f"{what}: a state seen, p99", late, "s", "", None, "<= 1 s", late <= LATE_SECONDS)
    yield Row(f"{what}: the controller", cores, "cores", "", None, "< 1 core", cores < 1.0)
    yield Row(f"{what}: the controller, at most", memory, "MiB", "", None, "< 300 MB", memory < MEMORY_MIB)


@contextmanager
def simulated_nodes(count: int) -> Iterator[None]:
    """Add nodes that run nothing, and take them away again."""
    if not SCRIPT:
        raise SystemExit(
            "this benchmark needs a cluster that simulates nodes: FABRIC_TEST_CLUSTER names its program"
        )
    control("nodes", str(count))
    try:
        yield
    finally:
        admin = administrator()
        for node in admin.list("Node", "type=kwok").items:
            admin.delete("Node", node["metadata"]["name"])
        admin.close()
        control("stop", "kwok")


class Phases:
    """When a bare watch saw each pod in each phase first, in microseconds since 1970."""

    def __init__(self, admin: KubernetesCluster) -> None:
        self._admin = admin
        self.at: dict[tuple[str, str], int] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def count(self, phase: str) -> int:
        """Say how many were seen in a phase."""
        return sum(1 for _, known in list(self.at) if known == phase)

    def _follow(self) -> None:
        version = self._admin.list("Pod", "fabric.job").version
        while True:
            with suppress(FabricError):
                watch = self._admin.watch("Pod", "fabric.job", version, timeout_seconds=600)
                for change in watch:
                    labels = change.object["metadata"]["labels"]
                    index = labels["batch.kubernetes.io/job-completion-index"]
                    name = f"{labels['fabric.job']}/{int(index) + 1}"
                    key = name, str(change.object["status"].get("phase"))
                    self.at.setdefault(key, time.time_ns() // 1000)
                version = watch.version


def _times_in_history(it: Ground, phase: str) -> dict[str, int]:
    """Return when each learner was found to be in a phase, by the histories of all jobs."""
    found: dict[str, int] = {}
    for history in Path(it.environment["FABRIC_HOME"]).glob("jobs/*/events.jsonl"):
        for line in history.read_bytes().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event.get("do") == "learner" and event.get("phase") == phase:
                found.setdefault(f"{history.parent.name}/{event['learner']}", int(event["time"]))
    return found


def _late(it: Ground, seen: Phases, recorded: str, phase: str) -> float:
    """Return the 99th percentile of how many seconds after a bare watch the history has a phase."""
    late = sorted(
        max(0.0, (at - seen.at[name, phase]) / 1e6)
        for name, at in _times_in_history(it, recorded).items()
        if (name, phase) in seen.at
    )
    if len(late) < LEARNERS * 0.9:
        raise SystemExit(f"only {len(late)} of {LEARNERS} learners were seen to be {recorded}")
    return late[int(0.99 * len(late))]


def _controller(it: Ground) -> int:
    ran = subprocess.run([FABRIC, "controller", "status", "--json"], env=it.environment, capture_output=True)
    return int(json.loads(ran.stdout)["pid"])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def _threads(pid: int) -> float:
    return float(sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()))
