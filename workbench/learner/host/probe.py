"""Probes a machine before jobs are sent there: facts alone; the client turns them into findings."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Dict, List

from workbench.learner.host import machine
from workbench.learner.platform import login_session, system
from workbench.learner.platform.errors import Failure, of_os_error

ENGINE_SECONDS = 3.0


def prospects(engine: str = "") -> Dict[str, Any]:
    """Return the machine and what there is for jobs, in one answer: each more would be a round trip.

    Args:
        engine: a socket that was named; empty looks at the usual ones.
    """
    home = os.path.expanduser("~")
    return {
        "identity": machine.identity(),
        **_machine(),
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "system": _system(),
        "home": home,
        "home_free_bytes": machine.free_bytes(home),
        "file_system": _file_system(home),
        "bash": shutil.which("bash") or "",
        "uv": shutil.which("uv") or "",
        "venv": _has_venv(),
        "engines": [name for name in ("docker", "podman") if shutil.which(name)],
        "sockets": [_socket(engine)] if engine else sockets(),
        "kills_processes": login_session.is_ended_with_session(),
        "lingers": login_session.lingers(),
    }


def _machine() -> Dict[str, Any]:
    """Return the inventory, or why there is none: the rest is worth telling without it."""
    try:
        return {"machine": machine.inventory()}
    except (Failure, OSError) as error:
        failure = of_os_error(error) if isinstance(error, OSError) else error
        return {"machine_problem": [failure.kind, failure.message, failure.hint]}


def sockets() -> List[Dict[str, Any]]:
    """List the sockets of container engines that are here, whether we may use them, and why not."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid()
    usual = ["/var/run/docker.sock"]
    usual += [os.path.join(runtime, name) for name in ("docker.sock", "podman/podman.sock")]
    usual.append("/run/podman/podman.sock")
    return [_socket(path) for path in usual if os.path.exists(path)]


def _socket(path: str) -> Dict[str, Any]:
    from workbench.learner.platform.engine_client import UNVERSIONED, EngineRefused, EngineRequest, connected

    found = {"path": path, "usable": False, "hangs": False, "said": "", "version": "", "api": ""}
    try:
        stream = connected(path, ENGINE_SECONDS)
    except PermissionError:
        return {**found, "said": "not allowed"}
    except OSError as error:
        return {**found, "said": str(error) or "does not answer"}
    try:
        version = EngineRequest(stream, "GET", "version", version=UNVERSIONED).answer() or {}
        found.update(usable=True, version=str(version.get("Version")), api=str(version.get("ApiVersion")))
    except (OSError, EngineRefused, ValueError, AttributeError) as error:
        # It is there: a job that names an image waits for it, and does not run without.
        found.update(hangs=True, said=str(error) or "does not answer")
    return found


def _system() -> str:
    for line in system.read_text("/etc/os-release").splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip('"')
    return os.uname().sysname + " " + os.uname().release


def _has_venv() -> bool:
    from importlib.util import find_spec

    return find_spec("ensurepip") is not None and find_spec("venv") is not None


def _file_system(path: str) -> str:
    """Return the type of the file system that a path lies on; empty where it is not known."""
    best, kind = -1, ""
    for line in system.read_text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), after.split()[0]
    return kind
