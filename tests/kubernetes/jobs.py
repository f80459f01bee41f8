"""Jobs in pods as a user starts them: through the command, with a named cluster in the configuration."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.cluster import Space, cluster_held, space_of
from tests.support.command import Fabric
from tests.support.folders import environment_of
from tests.support.pod_images import DEBIAN
from tests.support.processes import end_everything
from tests.support.waiting import until
from workbench.services.inspect.job_document import describe
from workbench.store.db.database import Store
from workbench.store.db.rows import is_over
from workbench.store.queries.resolve import resolve

OPTIONS = {
    "default_memory": "200Mi",
    "journal_hold_seconds": 3,
    "results_hold_seconds": 20,
    "gang_seconds": 60,
}
IN_CLUSTER_SECONDS = 0.5
"""How often a test asks the cluster for what stays so once it has come: each look is several lists of its objects."""
ENDS_SECONDS = 120
"""How long a job in a pod may take."""
LOOK_SECONDS = 0.05
KINDS = ("Job", "Pod", "Service", "Secret", "PersistentVolumeClaim")


@dataclass(frozen=True, slots=True)
class Pods:
    """A backend named ``cluster``, and who may look into it from outside."""

    fabric: Fabric
    space: Space
    earlier: frozenset[str] = frozenset()
    """Jobs of other tests, whose objects are none of this one's."""

    def anew(self) -> Pods:
        """Return the same for another test: with an empty folder, and without the jobs that there were so far."""
        folder = Path(tempfile.mkdtemp(dir=self.fabric.folder.parent))
        jobs = self.fabric.jobs_home.jobs
        earlier = frozenset(job.name for job in jobs.iterdir()) if jobs.is_dir() else frozenset()
        return Pods(replace(self.fabric, folder=folder), self.space, earlier)

    def run(self, *args: str, image: str = DEBIAN, expect: int | None = 0) -> Any:
        """Run a job and follow it."""
        return self.fabric("run", "--backend", "cluster", "--image", image, *args, expect=expect)

    def start(self, *args: str, image: str = DEBIAN) -> str:
        """Start a job and return its id."""
        ran = self.run("-d", "--accept-loss", *args, image=image)
        return str(ran.stdout).split()[-1]

    def show(self, job: str = "@last") -> dict[str, Any]:
        """Return a job's document, as ``fabric show --json`` prints it."""
        with Store.open(self.fabric.jobs_home) as store:
            return dict(describe(store, resolve(store, job).id))

    def wait(self, job: str = "@last") -> dict[str, Any]:
        """Wait until a job has ended, however, and return its document."""
        self.fabric("wait", job, expect=None)
        return self.show(job)

    def until(self, job: str, holds: Callable[[dict[str, Any]], object], what: str) -> Any:
        """Wait until something holds of a job's document; return that."""
        found: dict[str, Any] = {}
        with Store.open(self.fabric.jobs_home) as store:
            job_id = resolve(store, job).id

            def look() -> object:
                found.clear()
                found.update(describe(store, job_id))
                return holds(found)

            until(
                look,
                lambda: f"{what}; the job is {found.get('state')}: {found.get('reason')}",
                seconds=ENDS_SECONDS,
                every=LOOK_SECONDS,
            )
        return found

    def until_state(self, job: str, state: str) -> Any:
        """Wait until a job is in a state."""
        return self.until(job, lambda shown: shown["state"] == state, f"{job} to be {state}")

    def printed(self, job: str, attempt: int = 1, learner: int = 1) -> str:
        """Return what a learner has printed, as far as it is here."""
        output = self.fabric.jobs_home.job(job).attempt(attempt).learner(learner).output
        return output.read_text(errors="replace") if output.exists() else ""

    def until_printed(self, job: str, text: str, attempt: int | None = None) -> None:
        """Wait until a job's first learner has printed something in this attempt, or the last one.

        A job that has ended will print no more.
        """
        with Store.open(self.fabric.jobs_home) as store:

            def look() -> bool:
                row = resolve(store, job)
                printed = self.printed(job, attempt or row.attempt)
                assert text in printed or not is_over(row), (
                    f"{job} is {row.state}, {row.reason}, and did not print {text!r} but {printed!r}"
                )
                return text in printed

            until(look, f"{job} to print {text!r}", seconds=ENDS_SECONDS, every=LOOK_SECONDS)

    def objects(self) -> list[str]:
        """List what of fabric's is in the namespace."""
        return [
            f"{kind} {one['metadata']['name']}"
            for kind in KINDS
            for one in self.space.admin.list(kind, "app.kubernetes.io/managed-by=fabric").items
            if self._is_ours(one)
        ]

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of fabric's jobs."""
        return [dict(one) for one in self.space.admin.list("Pod", "fabric.job").items if self._is_ours(one)]

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        return found["metadata"]["labels"].get("fabric.job") not in self.earlier

    def log(self, pod: str, container: str = "learner") -> bytes:
        """Return what the cluster's own log has of a container."""
        return b"".join(self.space.admin.logs(pod, container))


def configure(space: Space, **options: Any) -> None:
    """Write the configuration that names the cluster."""
    configure_in(Path(os.environ["FABRIC_CONFIG"]), space, **options)


def configure_in(file: Path, space: Space, **options: Any) -> None:
    """Write it to a file."""
    settings = {**OPTIONS, "kubeconfig": str(space.kubeconfig), **options}
    lines = [
        "[backends.cluster]",
        'type = "kubernetes"',
        f'address = "{space.address}"',
        *(f"{key} = {json.dumps(value)}" for key, value in settings.items()),
    ]
    file.write_text("\n".join(lines) + "\n")


@contextmanager
def pods_of(root: Path, **options: Any) -> Iterator[Pods]:
    """Make a namespace, a home and a configuration of its own for jobs that several tests look at."""
    environment = environment_of(root)
    fabric = Fabric(root / "work", environment)
    with cluster_held(alone=False), space_of(root) as space:
        configure_in(fabric.config_file, space, **options)
        try:
            yield Pods(fabric, space)
        finally:
            end_everything(fabric.jobs_home)
