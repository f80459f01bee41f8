"""Caches what a host has, so that jobs for it can be submitted while it cannot be reached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from backends.contract.container_engines import OLDEST_API
from backends.contract.errors import error_of
from backends.contract.host import Host, HostIdentity, Node, Slot
from workbench.errors import BackendError, FabricError, NotAllowed
from workbench.paths import Home, make_private_folder, write_private
from workbench.values import dataclass

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class HostCache:
    """What a host had when it was last probed."""

    machine_id: str
    hostname: str
    architecture: str
    engine: str = ""
    """The socket of the container engine there that we may use; empty where there is none."""
    lack: str = ""
    """Why containers cannot run there, in a sentence."""
    lack_hint: str = ""
    forbidden: bool = False
    """Whether there is an engine that only others may use."""
    engine_hangs: str = ""
    """What the engine answered in place of its version, as a sentence: jobs wait for it; empty where it works."""
    gpus: int | None = None
    """How many can be given at all; None where nobody has looked."""
    gpu_lack: str = ""
    """Why it has none, as a sentence."""

    def why_no_containers(self) -> FabricError | None:
        """Say why containers cannot run there, None where they can."""
        if self.engine:
            return None
        kind = NotAllowed if self.forbidden else BackendError
        return kind(self.lack, hint=self.lack_hint)

    def why_not_gpus(self, count: int) -> FabricError | None:
        """Say that there are fewer GPUs than so many, None where there are enough."""
        if self.gpus is None or count <= self.gpus:
            return None
        why = f": {self.gpu_lack}" if self.gpu_lack and not self.gpus else ""
        return BackendError(
            f"The job asks for {_gpus(count)}; {self.hostname} has {_gpus(self.gpus)}{why}.",
            hint="Ask for fewer with --gpus, or run it on another backend with --backend.",
        )


@dataclass(frozen=True, slots=True)
class HostReport:
    """The result of probing an open host, in one round trip."""

    identity: HostIdentity
    node: Node | FabricError
    """The machine, or the error that kept it from being read."""
    prospects: Mapping[str, Any]
    """The rest, as the agent's ``host_prospects`` has it."""


def probe_host(host: Host, engine: str) -> HostReport:
    """Probe an open host.

    Args:
        host: the host.
        engine: the socket of its container engine; empty looks at the usual ones.
    """
    begun = time.time()
    found = host.call("prospects", engine=engine)
    node = node_of(found["machine"]) if "machine" in found else error_of(*found["machine_problem"])
    return HostReport(HostIdentity.from_reply(found["identity"], begun), node, found)


def node_of(found: Mapping[str, Any]) -> Node:
    """Make a machine of an agent's answer."""
    known = {name: value for name, value in found.items() if name != "time_us"}
    return Node(**{**known, "slots": tuple(Slot(**slot) for slot in found["slots"])})


def summarize(report: HostReport, name: str) -> HostCache:
    """Reduce a report to what is cached."""
    identity, node = report.identity, report.node
    sockets = report.prospects["sockets"]
    engine, lack, hint, forbidden = choose_engine(sockets, name)
    hanging = next((one for one in sockets if one["path"] == engine and not one["usable"]), None)
    return HostCache(
        identity.machine_id,
        identity.hostname,
        identity.architecture,
        engine,
        lack,
        hint,
        forbidden,
        f"The container engine on {name} at {engine} does not answer: {hanging['said']}." if hanging else "",
        None if isinstance(node, FabricError) else sum(1 for slot in node.slots if slot.memory_bytes),
        "" if isinstance(node, FabricError) else node.driver.removeprefix("none: "),
    )


def key_of(address: str, options: Mapping[str, Any]) -> str:
    """Return the cache key of a host: a hash of its address and the options that lead to it."""
    parts = [address, *(str(options.get(name, "")) for name in ("config", "engine", "python", "root"))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def read_cached(home: Home, key: str) -> HostCache | None:
    """Read the cache; None for a host that was never reached."""
    try:
        document = json.loads(home.host(key).read_text())
        return HostCache(**document["facts"]) if document["format"] == _FORMAT else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_cached(home: Home, key: str, facts: HostCache) -> None:
    """Write the cache. Failures are ignored: the host is probed again then."""
    path = home.host(key)
    temporary = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_private(temporary, json.dumps({"format": _FORMAT, "facts": asdict(facts)}))
        temporary.replace(path)


def forget(home: Home, key: str) -> None:
    """Remove a host from the cache."""
    home.host(key).unlink(missing_ok=True)


def choose_engine(sockets: list[Mapping[str, Any]], name: str) -> tuple[str, str, str, bool]:
    """Choose an engine: one that works, else one that may again; say why none can be used otherwise."""
    for found in sockets:
        if found["usable"] and _is_new_enough(str(found["api"])):
            return str(found["path"]), "", "", False
    for found in sockets:
        if found.get("hangs"):
            return str(found["path"]), "", "", False
    as_process = "or run the job as a process with --runner process"
    if not sockets:
        return (
            "",
            f"There is no container engine on {name}.",
            f"Install Docker or podman there, {as_process}.",
            False,
        )
    first = sockets[0]
    if first["usable"]:
        lack = f"The container engine on {name} is too old: {first['version']}."
        return "", lack, "Docker 19.03 and podman 4 are the oldest that work.", False
    if first["said"] == "not allowed":
        lack = f"You may not use the container engine on {name} ({first['path']})."
        hint = f"Become a member of its group there (sudo usermod -aG docker $USER, then log in again), {as_process}."
        return "", lack, hint, True
    lack = f"The container engine on {name} does not answer at {first['path']}: {first['said']}."
    return "", lack, f"Have it started there, {as_process}.", False


def _gpus(count: int) -> str:
    return "none" if not count else f"{count} GPU{'' if count == 1 else 's'}"


def _is_new_enough(api: str) -> bool:
    return tuple(int(part) for part in api.split(".")[:2] if part.isdigit()) >= OLDEST_API
