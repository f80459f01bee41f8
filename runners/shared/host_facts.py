"""What the process runner knows of a place before it plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.contract.host import Host
from workbench.paths import Home


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One place, as it was when it was first looked at."""

    home: Home
    """That home's folder there; its paths are the place's."""
    here: bool
    """Whether it is this machine, and the folder the home itself."""
    hostname: str
    system: str
    """``Linux`` or ``Darwin``."""
    python: str
    """What runs the agent; empty where there is no Python."""
    environment: Mapping[str, str]
    """What an agent that is started there keeps of its environment."""
    processors: tuple[int, ...]
    memory_bytes: int
    leases: str
    bash: str
    uv: str
    changed: tuple[str, ...] = ()
    """Variables that the place's ``setup`` has changed: learners get them as it left them."""

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        return "this machine" if self.here else self.hostname


def read_host_facts(host: Host, home_uuid: str) -> HostFacts:
    """Look at a place."""
    found = host.call("survey")
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
    )
