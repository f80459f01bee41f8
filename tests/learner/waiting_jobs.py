"""Attempts that wait at a host for GPUs, handed over as a runner does it, and the real waiter that starts them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import uuid
from pathlib import Path
from typing import Any, Final

from tests.support.kept_agents import agent
from tests.support.waiting import until
from workbench.learner.boot import archive
from workbench.learner.host.learners import learner as status_of
from workbench.learner.host.learners import markers
from workbench.learner.host.operations import HostOperations
from workbench.learner.journal import state
from workbench.learner.platform import lease_holders, leases, system
from workbench.learner.platform.errors import Failure
from workbench.learner.queue import channel

_OF_TICKETS: Final = ("priority", "position", "cpus", "laptop", "secrets_at_host")
SHOW: Final = "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $MASTER_PORT"


class WaitingJob:
    """One attempt in a home's folder, prepared as a launch leaves it that found no GPU free."""

    def __init__(
        self,
        folder: Path,
        home: str,
        command: str,
        *,
        learners: int = 1,
        gpus: int = 1,
        python: str = sys.executable,
        **document: Any,
    ) -> None:
        self.home = home
        self.id = f"training-{folder.name}-{len(list((folder / 'jobs').glob('*')))}"
        self.attempt = folder / "jobs" / self.id / "attempt-1"
        self.learners = range(1, learners + 1)
        self.gpus = gpus
        self.python = python
        (self.attempt / "job" / "logs").mkdir(parents=True)
        for number in self.learners:
            self.folder(number).mkdir()
            self.write(number, self.document(number, command) | document)

    def folder(self, number: int = 1) -> Path:
        return self.attempt / f"learner-{number}"

    def marker(self, number: int = 1) -> str:
        return f"{self.home}/{self.id}/1/{number}"

    def write(self, number: int, document: dict[str, Any]) -> None:
        (self.folder(number) / "launch.json").write_text(json.dumps(document))

    def document(self, number: int, command: str) -> dict[str, Any]:
        """Return a launch document as it is handed over: without what is chosen at the start."""
        return {
            "format": 1,
            "home": self.home,
            "owner": "me@box",
            "job": self.id,
            "attempt": 1,
            "learner": number,
            "learners": len(self.learners),
            "command": command,
            "shell": "bash",
            "cwd": str(self.attempt),
            "env": {"PATH": os.environ["PATH"], "LEARNER_ID": str(number), "JOB": self.id},
            "secrets_file": None,
            "grace_seconds": 10.0,
            "settle_seconds": 60.0,
            "ends_when": "all",
            "cpus": None,
            "slots": [],
            "usage_seconds": 0,
            "attempt_dir": str(self.attempt),
            "log_dir": str(self.attempt / "job" / "logs"),
            "log_dir_shared": True,
            "metrics": None,
            "guard": archive.guard_argv(self.python, agent(), str(self.folder(number))),
        }

    def launch(self, number: int = 1) -> dict[str, Any]:
        """Return the launch document as it is now."""
        found: dict[str, Any] = json.loads((self.folder(number) / "launch.json").read_text())
        return found

    def ticket(self, **facts: Any) -> dict[str, Any]:
        return {
            "home": self.home,
            "job": self.id,
            "attempt": 1,
            "leases_folder": os.environ["FABRIC_LEASES"],
            "gpus": self.gpus * len(self.learners),
            "each": self.gpus,
            "gpu_type": "",
            "priority": 50,
            "position": 0.0,
            "max_runtime_seconds": None,
            "cpus": 0,
            "lease": {"owner": "me@box", "job": self.id, "attempt": 1, "home": self.home},
            "environment": {name: os.environ[name] for name in ("PATH", "HOME")},
            "secrets_suffix": ".json",
            "learners": [
                {
                    "learner": number,
                    "folder": str(self.folder(number)),
                    "secrets_stem_name": f"{self.home}.{self.id}-1-{number}",
                }
                for number in self.learners
            ],
            **facts,
        }

    def state(self, number: int = 1) -> dict[str, Any]:
        return state.read(str(self.folder(number)))

    def status(self, number: int = 1) -> dict[str, Any]:
        """Return what an observer sees of a learner."""
        return status_of(str(self.folder(number)))

    @property
    def waits(self) -> bool:
        """Whether all learners wait, kept by a process that lives."""
        seen = [self.status(number) for number in self.learners]
        return all(one["alive"] and (one["state"] or {}).get("waiting") for one in seen)

    def output(self, number: int = 1) -> str:
        path = self.folder(number) / "output.log"
        return path.read_text() if path.exists() else ""

    def until_running(self, number: int = 1) -> dict[str, Any]:
        return self._until_phase("running", number)

    def until_over(self, number: int = 1) -> dict[str, Any]:
        return self._until_phase("exited", number)

    def _until_phase(self, phase: str, number: int) -> dict[str, Any]:
        return until(
            lambda: found if (found := self.state(number)).get("phase") == phase else {},
            lambda: f"the phase {phase}: {self.state(number)} {self.log(number)}",
        )

    def log(self, number: int = 1) -> str:
        path = self.folder(number) / "guard.log"
        return path.read_text() if path.exists() else ""


class WaitingHome:
    """A home at this host, with the operations of one connection to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The waiter's socket is named by it for all of a user's processes: another test has another one.
        self.uuid = str(uuid.uuid4())
        self.operations = HostOperations()
        self.jobs: list[WaitingJob] = []
        (folder / "jobs").mkdir(parents=True)

    def job(self, command: str = SHOW, **options: Any) -> WaitingJob:
        """Prepare an attempt."""
        self.jobs.append(WaitingJob(self.folder, self.uuid, command, **options))
        return self.jobs[-1]

    def hand_over(self, job: WaitingJob, secrets: dict[str, str] | None = None, **facts: Any) -> WaitingJob:
        self.operations.call("hand_over", self.arguments(job, secrets, **facts))
        return job

    def arguments(
        self, job: WaitingJob, secrets: dict[str, str] | None = None, **facts: Any
    ) -> dict[str, Any]:
        """Return the arguments of the operation, which are JSON."""
        guard = archive.guard_argv(job.python, agent(), "")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {
            "home": self.uuid,
            "folder": str(self.folder),
            "argv": [*guard[:-2], "waiter", str(self.folder)],
            "env": environment,
            "ticket": job.ticket(**facts),
            "secrets": secrets or {},
        }

    def wait(self, command: str = SHOW, **options: Any) -> WaitingJob:
        """Prepare an attempt and hand it over."""
        facts = {name: options.pop(name) for name in _OF_TICKETS if name in options}
        return self.hand_over(self.job(command, **options), options.pop("secrets", None), **facts)

    def argv_with(self, *preparation: str) -> list[str]:
        """Return the command of a waiter that begins with some lines of Python, which change what it finds."""
        lines = ["import sys", f"sys.path.insert(0, {agent().removesuffix('.pyz')!r})", *preparation]
        lines += ["from workbench.learner.main import main", "sys.exit(main(sys.argv[1:]))"]
        return [sys.executable, "-I", "-S", "-c", "\n".join(lines), "waiter", str(self.folder)]

    @property
    def address(self) -> str:
        """The name of the waiter's socket."""
        digest = hashlib.sha256(self.uuid.encode()).hexdigest()[:16]
        return f"\0fabric-waiter-{os.geteuid()}-{digest}"

    def connected(self) -> socket.socket:
        """Return a connection to the waiter."""
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(self.address)
        return stream

    def ask(self, **request: Any) -> dict[str, Any]:
        return channel.ask(self.uuid, request, channel.REACH_SECONDS)

    def waiter(self) -> int:
        """Return the process that is the waiter; 0 where none is."""
        try:
            return int(self.ask(act="list")["pid"])
        except Failure:
            return 0

    def turns(self, **more: Any) -> dict[str, Any]:
        arguments = {"home": self.uuid, "waiting": [], "keep": [], **more}
        found: dict[str, Any] = self.operations.call("line_up", arguments)["turns"]
        return found

    def clear(self) -> None:
        """End the waiter and what it has started."""
        self.operations.close()
        if pid := self.waiter():
            os.kill(pid, signal.SIGKILL)
            until(lambda: not system.start_ticks(pid), "the waiter to die")
        for variable in ("FABRIC_GUARD", "FABRIC_LEARNER"):
            for marker, pids in markers(variable).items():
                for one in pids if marker.startswith(self.uuid) else ():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)


def take(*names: str) -> leases.Lease:
    """Hold GPUs as a job of somebody else does."""
    lease = leases.take(names, os.environ["FABRIC_LEASES"], '{"owner": "anna@box", "job": "training-anna"}')
    assert lease is not None
    return lease


def held() -> set[str]:
    """Return the leases that somebody holds, of GPUs and ports."""
    folder = os.environ["FABRIC_LEASES"]
    names = [path.name for path in Path(folder).iterdir() if path.name.startswith(("GPU", "port"))]
    return set(lease_holders.holders(folder, names))
