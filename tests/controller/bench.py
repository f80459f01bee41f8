"""A loop in a thread over a backend in memory, for tests of the controller without processes."""

from __future__ import annotations

import threading
from typing import Any

from tests.controller.memory_backend import MemoryBackend
from tests.support.waiting import patience, until
from workbench.controller.client.requests import ask
from workbench.controller.client.submission import Submission, submit
from workbench.controller.decide.messages import EndRequested, Woken
from workbench.controller.loop.loop import Loop, Settings
from workbench.controller.runtime.log import ControllerLog
from workbench.job import TERMINAL, State
from workbench.paths import Home
from workbench.spec import Framework, JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.jobs import job

MEMORY = TargetRef(backend="local", type="local", runner="memory")
FAR = TargetRef(backend="far", type="ssh", runner="memory", address="ssh://far")
"""The same one, whose journals have to be mirrored."""


class Bench:
    """A home, a backend in memory, and a controller's loop that can be stopped and started."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.backend = MemoryBackend()
        self.store = Store.open(home)
        self.loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self.ended = ""

    def start(self, **settings: Any) -> None:
        """Start the loop."""
        settings.setdefault("open_target", self.backend.open)
        ready = threading.Event()

        def work() -> None:
            log = ControllerLog(self.home.controller_log)
            with Store.open(self.home) as store:
                self.loop = Loop(self.home, store, log, Settings(**settings))
                ready.set()
                self.ended = self.loop.run()
            log.close()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        assert ready.wait(patience())

    def stop(self) -> None:
        """End the loop, as a signal would."""
        if self.loop is not None and self._thread is not None:
            self.loop.post(EndRequested("the test is over"))
            self._thread.join(patience())
            assert not self._thread.is_alive()
            self.loop = None

    def submit(self, **keys: Any) -> str:
        """Submit a job and wake the loop; return its id."""
        secrets = keys.pop("secret_values", {})
        target = keys.pop("target", MEMORY)
        spec = JobSpec(name="test", framework=Framework(command="true"), secrets=tuple(secrets), **keys)
        submission = Submission(
            spec=spec, manifest_text="", origins={}, target=target, code_hash="", recorded={}, secrets=secrets
        )
        row = submit(self.store, submission, origin="test")
        self.wake()
        return row.id

    def ask(self, job_id: str, kind: str) -> int:
        """Ask for something and wake the loop."""
        request = ask(self.store, job_id, kind, origin="test")
        self.wake()
        return request

    def wake(self) -> None:
        """Tell the loop that there is something new."""
        if self.loop is not None:
            self.loop.post(Woken())

    def row(self, job_id: str) -> JobRow:
        """Read a job's row."""
        found = job(self.store, job_id)
        assert found is not None
        return found

    def reaches(self, job_id: str, *states: State, attempt: int | None = None) -> JobRow:
        """Wait until a job is in one of these states."""

        def there() -> bool:
            row = self.row(job_id)
            return row.state in states and attempt in (None, row.attempt)

        until(there, lambda: f"{self.row(job_id)}\n{self.log()}")
        return self.row(job_id)

    def ends(self, job_id: str, attempt: int | None = None) -> JobRow:
        """Wait for a job's end."""
        return self.reaches(job_id, *TERMINAL, attempt=attempt)

    def runs(self, job_id: str, attempt: int | None = None) -> JobRow:
        """Wait until its command runs."""
        return self.reaches(job_id, State.PROCESSING, attempt=attempt)

    def says(self, job_id: str, words: str) -> JobRow:
        """Wait until its reason holds these words."""
        until(lambda: words in self.row(job_id).reason.text, lambda: f"{self.row(job_id)}\n{self.log()}")
        return self.row(job_id)

    def log(self) -> str:
        """Read what the controller had to say."""
        return self.home.controller_log.read_text() if self.home.controller_log.exists() else ""
