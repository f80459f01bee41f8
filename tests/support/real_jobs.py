"""Real jobs on this machine, by real controllers: submitted, waited for, and looked at from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.controller.stuck import stuck
from tests.support.controllers import answers, end_all, log_of
from tests.support.folders import make_folder
from tests.support.kept_agents import lend_agents
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.controller.client.requests import ask
from workbench.controller.client.submission import Submission, submit
from workbench.errors import UnknownName
from workbench.job import TERMINAL, State
from workbench.manifest.keys.credentials import taken_out
from workbench.paths import Home, LearnerFolder
from workbench.spec import Framework, JobSpec
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.experiments import experiments
from workbench.store.queries.jobs import job, open_jobs
from workbench.store.updates.experiments import record_event

CLIENT_LOOKS_SECONDS = 1.0
"""How often a client that waits looks whether there is a controller."""

PROCESS = TargetRef(backend="local", type="local", runner="process")


class Ground:
    """A home whose jobs run for real."""

    def __init__(self, home: Home, target: TargetRef = PROCESS, *, own_agents: bool = False) -> None:
        """Open it; where its disk is what is tried, its agents are made on that, too."""
        self.home = home if own_agents else lend_agents(home)
        self.target = target
        self.store = Store.open(home)
        self.uuid = home_uuid(home)

    def submit(self, command: str, **keys: Any) -> str:
        """Submit a job and see to it that a controller runs."""
        job_id = self.write(command, **keys)
        ensure_controller(self.home)
        return job_id

    def write(self, command: str, **keys: Any) -> str:
        """Submit a job without waking anybody."""
        secrets = keys.pop("secret_values", {})
        target = keys.pop("target", self.target)
        code_hash = keys.pop("code_hash", "")
        more = keys.pop("recorded", {})
        keys.setdefault("max_platform_restarts", 0)
        location = keys.pop("location", {})
        framework = Framework(version=keys.pop("image", ""), command=command, image_location=location)
        spec, login = taken_out(JobSpec(name="test", framework=framework, secrets=tuple(secrets), **keys))
        recorded = {"python": sys.executable, "environment": {"PATH": os.environ["PATH"]}, **more}
        submission = Submission(
            spec=spec,
            manifest_text="",
            origins={},
            target=target,
            code_hash=code_hash,
            recorded=recorded,
            secrets={**secrets, **login},
        )
        return submit(self.store, submission, origin="test").id

    def ask(self, job_id: str, kind: str) -> None:
        """Ask for something and see to it that a controller runs."""
        ask(self.store, job_id, kind, origin="test")
        ensure_controller(self.home)

    def row(self, job_id: str) -> JobRow:
        """Read a job's row."""
        found = job(self.store, job_id)
        assert found is not None
        return found

    def reaches(
        self, job_id: str, *states: State, attempt: int | None = None, seconds: float = 60.0
    ) -> JobRow:
        """Wait until a job is in one of these states; where no controller answers start one, as any client does."""
        read_host_facts = 0.0

        def there() -> bool:
            nonlocal read_host_facts
            if time.monotonic() >= read_host_facts:
                if status(self.home) is None:  # asked only: to be woken it should not need
                    ensure_controller(self.home)
                read_host_facts = time.monotonic() + CLIENT_LOOKS_SECONDS
            row = self.row(job_id)
            return row.state in states and attempt in (None, row.attempt)

        until(there, lambda: f"{self.row(job_id)}\n{stuck(self.home, job_id)}", seconds=seconds)
        return self.row(job_id)

    def ends(self, job_id: str, attempt: int | None = None) -> JobRow:
        """Wait for a job's end."""
        return self.reaches(job_id, *TERMINAL, attempt=attempt)

    def prints(self, job_id: str, text: str, *, attempt: int = 1, learner: int = 1) -> None:
        """Wait until a learner has printed something."""
        until(
            lambda: text in self.output(job_id, attempt=attempt, learner=learner),
            lambda: f"{self.output(job_id)}\n{self.row(job_id)}\n{log_of(self.home)}",
        )

    def learner(self, job_id: str, attempt: int = 1, learner: int = 1) -> LearnerFolder:
        """Return a learner's journal."""
        return self.home.job(job_id).attempt(attempt).learner(learner)

    def output(self, job_id: str, attempt: int = 1, learner: int = 1) -> str:
        """Read what a learner printed."""
        file = self.learner(job_id, attempt, learner).output
        return file.read_text() if file.exists() else ""

    def processes(self) -> list[int]:
        """List the processes that carry this home's mark: commands and all that they started."""
        return marked(self.uuid)

    def end_jobs(self) -> None:
        """Kill what still runs."""
        for search in experiments(self.store, only_open=True):
            record_event(
                self.store, search.id, {"do": "kill", "state": "STOPPING", "reason": "the test is over"}
            )
        for row in open_jobs(self.store):
            with contextlib.suppress(UnknownName):  # its deletion was under way, and is done
                ask(self.store, row.id, "kill", origin="test")
        if open_jobs(self.store):
            ensure_controller(self.home)
            answers(self.home)
        until(
            lambda: not open_jobs(self.store) and not experiments(self.store, only_open=True),
            lambda: log_of(self.home),
        )
        # An agent lives for a moment longer than what it says of its learner.
        until(lambda: self.processes() == [], lambda: f"processes were left behind: {self.processes()}")
        assert not any(word in log_of(self.home) for word in ("defect", "Fatal Python error"))

    def clean_up(self) -> None:
        """Kill what still runs, and end the controller."""
        try:
            self.end_jobs()
        finally:
            end_all(self.home)
            self.store.close()


def marked(uuid: str) -> list[int]:
    """List the processes that carry a home's mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if (
            f"FABRIC_LEARNER={uuid}/".encode() in environment
            or f"FABRIC_GUARD={uuid}/".encode() in environment
        ):
            found.append(int(entry.name))
    return found


class RenewableGround:
    """A ground that the tests of a module have in common, with its controller; each leaves it without a job.

    The start of a controller and the first start of an agent take longer than most of what is tried with them.
    """

    def __init__(self, **environment: str) -> None:
        self._environment = environment
        self._root: Path | None = None
        self._ground: Ground | None = None

    def enter(self, environment: pytest.MonkeyPatch) -> Ground:
        """Make the environment that of the ground, and return it; it is made anew where a test has spoilt it."""
        if self._root is None:
            self._root = make_folder()
            (self._root / "run").mkdir(mode=0o700)
            (self._root / "leases").mkdir(mode=0o1777)
        for name, path in {
            "HOME": self._root,
            "FABRIC_HOME": self._root / "fabric",
            "FABRIC_LEASES": self._root / "leases",
            "XDG_RUNTIME_DIR": self._root / "run",
            **self._environment,
        }.items():
            environment.setenv(name, str(path))
        if self._ground is None:
            self._ground = Ground(Home(self._root / "fabric"))
        return self._ground

    def leave(self) -> None:
        """End what a test has left there; where that does not succeed the next test gets another ground."""
        assert self._ground is not None
        try:
            self._ground.end_jobs()
        except BaseException:
            self._forget()
            raise

    def close(self) -> None:
        """End it for good."""
        if self._ground is not None:
            with pytest.MonkeyPatch.context() as environment:
                self.enter(environment)
                try:
                    self._ground.clean_up()
                finally:
                    self._forget()

    def _forget(self) -> None:
        ground, root = self._ground, self._root
        self._ground = self._root = None
        if ground is not None and root is not None:
            end_all(ground.home)
            ground.store.close()
            shutil.rmtree(root, ignore_errors=True)
