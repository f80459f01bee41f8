"""A container with GPUs as podman's own API wants it: the API that it shares with Docker knows no CDI devices there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

CREATE: Final = "libpod/containers/create"
CPU_PERIOD: Final = 100_000
_UNLIMITED: Final = 1 << 64
"""-1 as numbers without a sign have it."""

_NANO: Final = 1_000_000_000


def gpu_document(name: str, document: Mapping[str, Any], slots: Sequence[str]) -> dict[str, Any]:
    """Return what podman's own API is told of a container that Docker's API would be told of so.

    Args:
        name: the container's.
        document: as Docker's API has it.
        slots: GPUs by UUID, which NVIDIA's toolkit has written down for CDI.
    """
    host = document["HostConfig"]
    network = host["NetworkMode"]
    told: dict[str, Any] = {
        "name": name,
        "image": document["Image"],
        "hostname": document["Hostname"],
        "entrypoint": document["Entrypoint"],
        "command": document["Cmd"],
        "work_dir": document["WorkingDir"],
        "env": dict(entry.split("=", 1) for entry in document["Env"]),
        "labels": document["Labels"],
        "stop_timeout": document["StopTimeout"],
        "remove": host["AutoRemove"],
        "mounts": [_mount(mount) for mount in host.get("Mounts") or map(_parsed, host["Binds"])],
        "netns": {"nsmode": "bridge"},
        "cap_drop": host["CapDrop"],
        "no_new_privileges": True,
        "shm_size": host["ShmSize"],
        "log_configuration": {"driver": "none"},
        "hostadd": host.get("ExtraHosts") or [],
        "portmappings": [_port(port, bound) for port, bound in (host.get("PortBindings") or {}).items()],
        "devices": [{"path": f"nvidia.com/gpu={slot}"} for slot in slots],
        "resource_limits": _limits(host),
        "r_limits": [
            {
                "type": f"RLIMIT_{limit['Name'].upper()}",
                "soft": limit["Soft"] % _UNLIMITED,
                "hard": limit["Hard"] % _UNLIMITED,
            }
            for limit in host.get("Ulimits") or ()
        ],
    }
    if network != "bridge":
        endpoint = document["NetworkingConfig"]["EndpointsConfig"][network]
        told["networks"] = {network: {"aliases": endpoint["Aliases"]}}
    return told


def _mount(mount: Mapping[str, Any]) -> dict[str, Any]:
    options = ["rbind", "ro" if mount["ReadOnly"] else "rw", *mount.get("Options", ())]
    return {
        "type": "bind",
        "source": mount["Source"],
        "destination": mount["Target"],
        "options": options,
    }


def _parsed(bound: str) -> dict[str, Any]:
    """Read the older form of a mount, which is used where SELinux guards files."""
    source, target, options = bound.rsplit(":", 2)
    mode, *rest = options.split(",")
    return {"Source": source, "Target": target, "ReadOnly": mode == "ro", "Options": rest}


def _port(port: str, bound: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    number, _, protocol = port.partition("/")
    return {
        "container_port": int(number),
        "host_port": int(bound[0]["HostPort"]),
        "host_ip": bound[0]["HostIp"],
        "protocol": protocol,
    }


def _limits(host: Mapping[str, Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if nano := host.get("NanoCpus"):
        limits["cpu"] = {"period": CPU_PERIOD, "quota": nano * CPU_PERIOD // _NANO}
    if memory := host.get("Memory"):
        limits["memory"] = {"limit": memory, "swap": host["MemorySwap"]}
    return limits
