"""Reports what an SSH host has, and for each problem its consequence and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from backends.contract.host import SKEW_SECONDS, Finding, HostIdentity, Node
from backends.ssh.host_cache import HostCache, HostReport
from workbench.errors import FabricError
from workbench.formats import size

LITTLE_DISK_BYTES: Final = 2 << 30
_LINGER: Final = "loginctl enable-linger there, once; `fabric backend linger` does it"
_NOT_TAKEN: Final = (
    "You linger, but your systemd there does not take them: `systemctl --user status` there says why"
)
NETWORK: Final = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "lustre",
    "gpfs",
    "ceph",
    "beegfs",
    "fuse.sshfs",
    "9p",
    "glusterfs",
)


def findings(report: HostReport, host_cache: HostCache) -> Iterator[Finding]:
    """Describe the report of a host."""
    identity, found = report.identity, report.prospects
    yield Finding("reach", f"{identity.user}@{identity.hostname}, {found['system']}, {identity.architecture}")
    yield _python(identity, found)
    if identity.python:
        yield _environments(found)
    yield _shell(found)
    yield from _machine(report.node)
    yield _disk(found)
    yield from _home(found)
    yield _engine(found, host_cache)
    yield from _clock(identity)
    if found["kills_processes"]:
        yield Finding(
            "sessions",
            "KillUserProcesses is on",
            level="lack",
            consequence="Jobs are ended there when the connection ends.",
            remedy=_NOT_TAKEN if found["lingers"] else _LINGER,
        )


def _python(identity: HostIdentity, found: Mapping[str, Any]) -> Finding:
    if identity.python:
        return Finding("python", f"{identity.python} ({found['version']})")
    return Finding(
        "python",
        "none that is 3.8 or newer",
        level="lack",
        consequence="Jobs run there as plain processes without GPUs, usage and report(); all else works.",
        remedy="Install python3 there, or name one: -o python=/path/of/python3",
    )


def _environments(found: Mapping[str, Any]) -> Finding:
    if found["uv"]:
        return Finding("environments", "uv")
    if found["venv"]:
        return Finding("environments", "venv and pip")
    return Finding(
        "environments",
        "neither uv nor the venv and ensurepip modules",
        level="lack",
        consequence="Jobs with 'python: requirements' cannot run there.",
        remedy="Install uv there (https://docs.astral.sh/uv), or on Debian and Ubuntu the package python3-venv.",
    )


def _shell(found: Mapping[str, Any]) -> Finding:
    if found["bash"]:
        return Finding("shell", str(found["bash"]))
    return Finding(
        "shell",
        "sh only",
        level="lack",
        consequence="Commands run under sh; what only bash understands fails.",
        remedy="Install bash there.",
    )


def _machine(node: Node | FabricError) -> Iterator[Finding]:
    if isinstance(node, FabricError):
        yield Finding("machine", node.message, "lack", "what it has is not known", node.hint)
        return
    yield Finding("machine", f"{node.cpus} CPUs, {size(node.memory_bytes)} of memory")
    if not node.slots:
        yield Finding(
            "gpu",
            node.driver or "none",
            level="lack",
            consequence="Jobs that ask for GPUs are refused there.",
            remedy="If the machine has one, install NVIDIA's driver.",
        )
        return
    models = ", ".join(sorted({slot.model for slot in node.slots}))
    free = sum(1 for slot in node.slots if slot.free)
    yield Finding("gpu", f"{len(node.slots)} to give, {free} free: {models} ({node.driver})")
    for slot in node.slots:
        if slot.foreign:
            yield Finding(
                f"gpu {slot.index}", f"used by {slot.foreign}", "lack", "it is left alone until it is free"
            )


def _disk(found: Mapping[str, Any]) -> Finding:
    free = found["home_free_bytes"]
    if free is None:
        return Finding(
            "disk",
            f"how much is free for {found['home']} is not known: the host does not say",
            level="lack",
            consequence="Nobody warns you before the disk is full.",
            remedy="Look at it there: df ~",
        )
    text = f"{size(free)} free for {found['home']}"
    if free >= LITTLE_DISK_BYTES:
        return Finding("disk", text)
    return Finding(
        "disk",
        text,
        level="lack",
        consequence="Jobs wait when the disk is full: their output goes there.",
        remedy="Make room there, or name another folder: -o root=/path",
    )


def _home(found: Mapping[str, Any]) -> Iterator[Finding]:
    kind = str(found["file_system"])
    if kind in NETWORK:
        yield Finding(
            "home",
            f"on a network file system ({kind})",
            level="lack",
            consequence="What jobs write there is as slow as the network.",
            remedy="Name a folder on a local disk: -o root=/scratch/me/fabric",
        )


def _engine(found: Mapping[str, Any], host_cache: HostCache) -> Finding:
    if error := host_cache.why_no_containers():
        return Finding(
            "engine",
            error.message.rstrip("."),
            level="lack",
            consequence="Jobs run there as plain processes, whatever image they name.",
            remedy=error.hint,
        )
    if host_cache.engine_hangs:
        return Finding(
            "engine",
            host_cache.engine_hangs.rstrip("."),
            level="lack",
            consequence="Jobs that name an image wait for it.",
            remedy="Start it there again if it hangs, or run jobs as processes with --runner process.",
        )
    version = next((str(one["version"]) for one in found["sockets"] if one["path"] == host_cache.engine), "")
    return Finding("engine", f"{host_cache.engine} ({version})")


def _clock(identity: HostIdentity) -> Iterator[Finding]:
    skew = identity.clock_skew_seconds
    if abs(skew) > SKEW_SECONDS:
        yield Finding(
            "clock",
            f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's",
            level="lack",
            consequence="Times of jobs there are shown by its clock.",
            remedy="Have it set its clock by the network (NTP).",
        )
