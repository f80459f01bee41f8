"""The facts about a host that plans and launches need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backends.contract.host import Host
from workbench.clock import now_us
from workbench.paths import Home
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts about a host, read once for each runner."""

    home: Home
    """The home's folder on the host; its paths are the host's."""
    here: bool
    """Whether the host is this machine and the folder the home itself."""
    hostname: str
    system: str
    """``Linux`` or ``Darwin``."""
    python: str
    """The interpreter for the agent; empty on a host without Python."""
    environment: Mapping[str, str]
    """The environment that agents are started with."""
    processors: tuple[int, ...]
    memory_bytes: int
    leases: str
    bash: str
    uv: str
    changed: tuple[str, ...] = ()
    """The names of variables that the backend's ``setup`` has changed; learners get their new values."""
    secrets_at_host: bool = False
    """Whether values of secrets may lie on its disk while a job waits there."""
    share_names: bool = False
    """Whether others there may read the names of this person's jobs."""

    @property
    def name(self) -> str:
        """The host's name in messages."""
        return "this machine" if self.here else self.hostname


def read_host_facts(host: Host, home_uuid: str) -> HostFacts:
    """Read the facts about a host by its operation ``survey``."""
    begun_us = now_us()
    found = host.call("survey")
    host.compare_clock(int(found["now_us"]), begun_us)
    return HostFacts(
        home=Home(Path(host.folder(home_uuid))),
        here=host.here,
        hostname=found["hostname"],
        system=found["system"],
        python=found["python"],
        environment=found["environment"],
        processors=tuple(found["processors"]),
        memory_bytes=found["memory_bytes"],
        leases=found["leases"],
        bash=found["bash"],
        uv=found["uv"],
        changed=tuple(found.get("changed", ())),
        secrets_at_host=host.secrets_at_host,
        share_names=host.share_names,
    )
