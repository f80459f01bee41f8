"""Jobs whose learners are at several hosts, by a runner of their own; and a program whose learners really meet."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from backends.contract.host import Host, HostGroup
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.interface import LaunchRequest
from runners.multinode.runner import MultiNodeProcessRunner
from tests.stubs import Gpus
from tests.support.kept_agents import agent
from tests.support.pipe_host import PipeHost

NAMES = ("box1", "box2")
MEET = """
import os, socket, time
address, rank, count = os.environ["MASTER_ADDR"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (address, int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", place[1])) as server:
        print(sorted(server.accept()[0].recv(1).decode() for _ in range(count - 1)), flush=True)
else:
    while True:
        try:
            with socket.create_connection(place) as peer:
                peer.sendall(str(rank).encode())
                break
        except OSError:
            time.sleep(0.05)
"""
"""The first learner prints which others have connected to it."""


@dataclass
class GroupJobs:
    """Makes jobs over all of these hosts."""

    hosts: Mapping[str, Host]
    home: str = field(default_factory=lambda: str(uuid4()))
    made: list[LaunchedAttempt] = field(default_factory=list)

    def runner(self) -> MultiNodeProcessRunner:
        """Make a runner of its own, as another thread has."""
        return MultiNodeProcessRunner(HostGroup(self.hosts), home_uuid=self.home)

    def plan(self, command: str, *, learners: int = 2, **options: Any) -> LaunchedAttempt:
        """Plan a job."""
        return self.plan_request(request_of(command, home=self.home, learners=learners, **options))

    def plan_request(self, request: LaunchRequest) -> LaunchedAttempt:
        """Plan an attempt."""
        self.made.append(LaunchedAttempt.planned(self.runner(), request))
        return self.made[-1]

    def folder(self, host: str, job: LaunchedAttempt) -> Path:
        """Return a job's folder at a host of this machine."""
        return Path(self.hosts[host].folder(self.home)) / "jobs" / job.request.attempt.job_id

    def launched(self, job: LaunchedAttempt, host: str, learner: int) -> dict[str, Any]:
        """Return a learner's launch document."""
        attempt = self.folder(host, job) / f"attempt-{job.request.attempt.attempt}"
        document: dict[str, Any] = json.loads((attempt / f"learner-{learner}" / "launch.json").read_text())
        return document


@contextmanager
def group_jobs(hosts: Mapping[str, Host]) -> Iterator[GroupJobs]:
    """Give them, and remove what they leave."""
    made = GroupJobs(hosts)
    try:
        yield made
    finally:
        for job in made.made:
            job.runner.remove(job.request.attempt)
            job.runner.close()


@contextmanager
def pipe_hosts(
    folder: Path, *, within: Callable[[str], list[str]] = lambda name: []
) -> Iterator[dict[str, Host]]:
    """Open two hosts with a GPU each, which know nothing of each other."""
    with ExitStack() as opened:
        made: dict[str, PipeHost] = {}
        for number, name in enumerate(NAMES, 1):
            root = folder / name
            (root / "leases").mkdir(parents=True)
            gpus = Gpus(root / "gpus").add(f"GPU-{number}")
            made[name] = PipeHost(
                [*within(name), sys.executable, "-I", agent(), "host"],
                root=str(root / "place"),
                env={**os.environ, **gpus.env(), "FABRIC_LEASES": str(root / "leases")},
            )
            opened.callback(made[name].close)
        yield dict(made)
