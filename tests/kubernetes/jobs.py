"""Jobs in pods as a user starts them: through the command, with a named cluster in the configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.conftest import Fabric
from tests.kubernetes.images import DEBIAN
from tests.kubernetes.space import Space
from tests.waiting import until

OPTIONS = {
    "default_memory": "200Mi",
    "journal_hold_seconds": 3,
    "results_hold_seconds": 20,
    "gang_seconds": 60,
}
KINDS = ("Job", "Pod", "Service", "Secret", "PersistentVolumeClaim")


@dataclass(frozen=True, slots=True)
class Pods:
    """A named place ``cluster``, and who may look into it from outside."""

    fabric: Fabric
    space: Space

    def run(self, *words: str, image: str = DEBIAN, expect: int | None = 0) -> Any:
        """Run a job and follow it."""
        return self.fabric("run", "--backend", "cluster", "--image", image, *words, expect=expect)

    def start(self, *words: str, image: str = DEBIAN) -> str:
        """Start a job and return its id."""
        said = self.run("-d", "--accept-loss", *words, image=image)
        return str(said.stdout).split()[-1]

    def show(self, job: str = "@last") -> dict[str, Any]:
        """Return a job's document."""
        found: dict[str, Any] = self.fabric.json("show", job, "--json")
        return found

    def wait(self, job: str = "@last") -> dict[str, Any]:
        """Wait until a job has ended, however, and return its document."""
        self.fabric("wait", job, expect=None)
        return self.show(job)

    def until(
        self, job: str, holds: Callable[[dict[str, Any]], object], what: str, seconds: float = 120
    ) -> Any:
        """Wait until something holds of a job's document; return that."""
        found: dict[str, Any] = {}

        def look() -> object:
            found.clear()
            found.update(self.show(job))
            return holds(found)

        try:
            until(look, what, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the job is {found.get('state')}: {found.get('reason')}") from None
        return found

    def until_state(self, job: str, state: str, seconds: float = 120) -> Any:
        """Wait until a job is in a state."""
        return self.until(job, lambda shown: shown["state"] == state, f"{job} to be {state}", seconds)

    def objects(self) -> list[str]:
        """List what of fabric's is in the namespace."""
        return [
            f"{kind} {one['metadata']['name']}"
            for kind in KINDS
            for one in self.space.admin.list(kind, "app.kubernetes.io/managed-by=fabric").items
        ]

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of fabric's jobs."""
        return [dict(one) for one in self.space.admin.list("Pod", "fabric.job").items]

    def log(self, pod: str, container: str = "learner") -> bytes:
        """Return what the cluster's own log has of a container."""
        return b"".join(self.space.admin.logs(pod, container))


def configure(space: Space, **options: Any) -> None:
    """Write the configuration that names the cluster."""
    told = {**OPTIONS, "kubeconfig": str(space.kubeconfig), **options}
    lines = [
        "[backends.cluster]",
        'type = "kubernetes"',
        f'address = "{space.address}"',
        *(f"{key} = {json.dumps(value)}" for key, value in told.items()),
    ]
    Path(os.environ["FABRIC_CONFIG"]).write_text("\n".join(lines) + "\n")
