"""Jobs whose learners must run together, with too few GPUs for all of them: all end, and no GPU is held for nothing."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from backends.kubernetes.cluster import KubernetesCluster
from tests.bench.harness import FABRIC, Row, seconds_of
from tests.bench.pods import Ground, ground
from tests.support.cluster_health import administrator
from tests.support.pod_images import DEBIAN

JOBS: Final = 12
LEARNERS: Final = 4
GPUS: Final = 6
GANG_SECONDS: Final = 30
ROUNDING_SECONDS: Final = 2.0
"""The cluster's times are whole seconds, and a container that ends by its clock takes a moment."""

LONGEST_SECONDS: Final = 1800.0

MEET: Final = """
import os, socket, time
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(("", address[1])) as server:
        others = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
        [one.sendall(b"all here") for one in others]
else:
    while True:
        try:
            print(socket.create_connection(address, 60).recv(99).decode())
            break
        except OSError:
            time.sleep(0.2)
"""


def rows() -> list[Row]:
    """Twelve jobs of four learners with a GPU each, where six GPUs are pretended."""
    resource = f"bench.example.com/gpu-{random.SystemRandom().randrange(10**6)}"
    with pretended(resource, GPUS), ground(gpu_resource=resource, gang_seconds=GANG_SECONDS) as it:
        (it.folder / "meet.py").write_text(MEET)
        seen = Prepared(it.space.admin)
        took = _run_all(it)
        held = seen.end()
    return [
        Row(
            f"{JOBS} jobs of {LEARNERS} learners with a GPU each on {GPUS} GPUs, to the end of all",
            took,
            "s",
            "",
            None,
            "all end",
            True,
        ),
        Row(
            f"longest that a pod of them held its GPU without its peers, gang_seconds {GANG_SECONDS}",
            held,
            "s",
            "",
            None,
            f"<= {GANG_SECONDS} s",
            held <= GANG_SECONDS + ROUNDING_SECONDS,
        ),
    ]


@contextmanager
def pretended(resource: str, count: int) -> Iterator[None]:
    """Have the first node claim devices of a resource."""
    admin = administrator()
    node = next(
        str(one["metadata"]["name"])
        for one in admin.list("Node").items
        if "kwok.x-k8s.io/node" not in (one["metadata"].get("annotations") or {})
    )
    path = f"/status/capacity/{resource.replace('/', '~1')}"
    try:
        change = [{"op": "add", "path": path, "value": str(count)}]
        admin.patch("Node", node, change, type="json", subresource="status")
        yield
    finally:
        for place in (path, path.replace("capacity", "allocatable")):
            admin.patch(
                "Node", node, [{"op": "add", "path": place, "value": "0"}, {"op": "remove", "path": place}],
                type="json", subresource="status",
            )  # fmt: skip
        admin.close()


class Prepared:
    """Watches how long pods' init containers wait for their peers, with their GPUs held."""

    def __init__(self, admin: KubernetesCluster) -> None:
        self._admin = admin
        self._longest = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """Return the longest of all that were seen."""
        self._ended.set()
        self._thread.join()
        return self._longest

    def _look(self) -> None:
        while not self._ended.wait(0.3):
            for pod in self._admin.list("Pod", "fabric.job").items:
                for one in pod["status"].get("initContainerStatuses") or ():
                    ended = (one.get("state") or {}).get("terminated")
                    if one["name"] == "prepare" and ended:
                        self._longest = max(self._longest, _seconds_between(ended))


def _seconds_between(ended: Mapping[str, Any]) -> float:
    first, last = (
        datetime.fromisoformat(str(ended[name]).replace("Z", "+00:00"))
        for name in ("startedAt", "finishedAt")
    )
    return (last - first).total_seconds()


def _run_all(it: Ground) -> float:
    args = ["--gpus", "1", "--set", f"learners={LEARNERS}", "--set", "ends_when=all"]
    run = [FABRIC, "run", "-q", "-d", "--accept-loss", "-b", "lab", "--image", DEBIAN, *args]
    begun = time.perf_counter()
    for _ in range(JOBS):
        seconds_of([*run, "--", "python3", "meet.py"], it.environment, it.folder)
    until = time.monotonic() + LONGEST_SECONDS
    while True:
        ran = subprocess.run([FABRIC, "list", "--json"], env=it.environment, capture_output=True, check=True)
        states = [str(row["state"]) for row in json.loads(ran.stdout)]
        if bad := [state for state in states if state in ("FAILED", "HALTED")]:
            raise SystemExit(f"{len(bad)} of {JOBS} jobs ended badly")
        if states.count("COMPLETED") == JOBS:
            return time.perf_counter() - begun
        if time.monotonic() > until:
            raise SystemExit(
                f"{states.count('COMPLETED')} of {JOBS} jobs have ended after {LONGEST_SECONDS} s"
            )
        time.sleep(1.0)
