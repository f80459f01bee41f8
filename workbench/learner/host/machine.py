"""Which machine this is, and the folders and ports that a learner is given on it."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import stat
import sys
import time
import uuid
from typing import Any, Dict, List, Optional, Sequence

from workbench.learner.gpu import nvml
from workbench.learner.host.remote_loader import CHANGED
from workbench.learner.platform import lease_holders, system
from workbench.learner.platform.errors import Failure
from workbench.learner.queue.allocation import NAME
from workbench.learner.queue.entries import shared_name

LEASES = "/tmp/fabric-leases"
"""Where GPUs are leased unless ``FABRIC_LEASES`` says otherwise."""

INSTALLERS = ("PIP_", "UV_")
"""How the variables begin that say where packages come from."""

_PASSED_ON = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    )
)
_OF_A_JOB = (
    "FABRIC_LEARNER",
    "FABRIC_GUARD",
    "FABRIC_PARAM",
    "FABRIC_REPORT",
    "FABRIC_STOP",
    "FABRIC_SEED",
    "FABRIC_ENVIRONMENT",
)


def leases_folder() -> str:
    """Return where GPUs are leased here."""
    return os.environ.get("FABRIC_LEASES") or LEASES


def survey() -> Dict[str, Any]:
    """Return what :func:`host_machine.identity` says, and what there is for learners."""
    return {
        **identity(),
        "environment": {name: value for name, value in os.environ.items() if passes(name)},
        "processors": processors(),
        "memory_bytes": memory()["total"],
        "leases": leases_folder(),
        "bash": shutil.which("bash") or "",
        "uv": shutil.which("uv") or "",
        "changed": os.environ.get(CHANGED, "").split(),
    }


def passes(name: str) -> bool:
    """Say whether an agent that is started here keeps an environment variable."""
    if name in os.environ.get(CHANGED, "").split():
        return True
    own = name.startswith("FABRIC_") and not name.startswith(_OF_A_JOB)
    return own or name in _PASSED_ON or name.startswith(("LC_", *INSTALLERS))


def identity() -> Dict[str, Any]:
    """Say which machine this is: fields as ``backends.interface.HostIdentity`` has them, and its time."""
    return {
        "machine_id": machine_id(),
        "boot_id": system.boot_id(),
        "hostname": socket.gethostname(),
        "user": system.user_name(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": sys.executable or "",
        "now_us": time.time_ns() // 1000,
    }


def machine_id() -> str:
    """Return what names this machine for good: systemd's id, else one made from a network card's address."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        text = system.read_text(path).strip()
        if text and text != "uninitialized":
            return text
    return uuid.uuid5(uuid.NAMESPACE_DNS, str(uuid.getnode())).hex


def folder(home_uuid: str, root: str = "") -> str:
    """Return the folder of a home on this host: by machine, since labs share one home among many.

    It is made by what is written into it, and not here: whoever only looks does not bring back a folder that its
    user has just removed.

    Raises:
        Failure: this is not a home's uuid.
    """
    if os.sep in home_uuid or not home_uuid:
        raise Failure("bad_input", f"{home_uuid!r} is not a home's uuid.")
    root = os.path.join(os.path.expanduser("~"), os.path.expanduser(root or ".fabric"))
    return os.path.join(root, machine_id(), home_uuid)


def secret_folder() -> str:
    """Return, and make, a folder for secrets (0700), in memory where the machine has such a file system."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = f"fabric-{os.getuid()}"
    candidates = [os.path.join(runtime, "fabric")] if runtime and os.path.isdir(runtime) else []
    for path in [*candidates, f"/dev/shm/{own}", f"/tmp/{own}"]:
        if not os.path.isdir(os.path.dirname(path)):
            continue
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError:
            continue
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            os.chmod(path, 0o700)
            return path
    raise Failure("cannot_write", "There is no folder in memory that secrets could be handed over in.")


def bindable(ports: Sequence[int]) -> List[int]:
    """Return those ports that nobody listens on."""
    return [port for port in ports if _is_bindable(port)]


def _is_bindable(port: int) -> bool:
    """Say whether nobody listens on a port, by IPv4 or IPv6: a learner listens by both where it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(("", port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE  # else the system has no IPv6
    return True


def processors() -> List[int]:
    """Return the CPUs that we may use, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def memory() -> Dict[str, int]:
    """Return the machine's memory in bytes, ``total`` and ``used``; within a container, its limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    available = 0
    for line in system.read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            available = int(rest.split()[0]) * 1024
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = system.read_text(path).strip()
        if text.isdigit():
            total = min(total, int(text))
    return {"total": total, "used": max(0, total - available) if available else 0}


FOREIGN_BYTES = 256 << 20
"""A process that computes with less GPU memory than this does not make a GPU busy that is hardly used."""

BUSY_PERCENT = 10
"""From this use on whoever computes on a GPU makes it busy, however little memory that takes."""


UNSEEN_BYTES = 1 << 30
"""Where more memory of a GPU is used though no process is seen on it, somebody may compute who cannot be seen, as from
within a container. The driver itself keeps less."""


def inventory(folder: str = "") -> Dict[str, Any]:
    """Return the machine as ``backends.interface.Node`` has it, in JSON.

    Args:
        folder: where leases lie; empty for this machine's own.
    """
    used = memory()
    found = nvml.read_gpus()
    return {
        "name": socket.gethostname(),
        "cpus": len(processors()),
        "memory_bytes": used["total"],
        "memory_used_bytes": used["used"],
        "disk_free_bytes": free_bytes(os.path.expanduser("~")),
        "driver": found.driver,
        "slots": slots(found.slots, folder or leases_folder()),
        "time_us": system.now_us(),
    }


def free_bytes(folder: str) -> Optional[int]:
    """Return how much may be written below a folder; None where that cannot be found out."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def slots(found: List[Dict[str, Any]], leases_folder: str) -> List[Dict[str, Any]]:
    """Say of each GPU who holds it, or who else computes on it; ``processes`` gives way to ``foreign``."""
    held = lease_holders.holdings(leases_folder, [slot["uuid"] for slot in found])
    answer = []
    for slot in found:
        processes = slot.pop("processes", None)
        holding = held.get(slot["uuid"])
        if holding is not None:
            slot["holder"] = str(holding.document.get("owner") or "somebody")
            slot["holder_job"] = str(holding.document.get("job") or "")
            slot["holder_name"] = shared_name(holding.document.get(NAME)) if holding.is_claimed else ""
            slot["held_since_us"] = holding.since_us
            slot["idle"] = _is_idle(slot, processes)
        elif not slot.get("foreign"):
            slot["foreign"] = _foreign(
                processes or [], (slot.get("utilization_percent") or 0.0) >= BUSY_PERCENT
            )
        answer.append(slot)
    return answer


def _is_idle(slot: Dict[str, Any], processes: Optional[List[Dict[str, Any]]]) -> Optional[bool]:
    """Say whether nothing uses a GPU at this moment; None where that is not known."""
    utilization_percent = slot.get("utilization_percent")
    if processes or utilization_percent:
        return False
    if processes is None or utilization_percent is None:
        return None
    return True if (slot.get("memory_used_bytes") or 0) < UNSEEN_BYTES else None


def _foreign(processes: List[Dict[str, Any]], is_busy: bool) -> str:
    """Name the process that uses most of a GPU that nobody leased, if it computes."""
    computing = [process for process in processes if is_busy or process["memory_bytes"] > FOREIGN_BYTES]
    if not computing:
        return ""
    most = max(computing, key=lambda process: int(process["memory_bytes"]))
    pid = int(most["pid"])
    try:
        owner = system.user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return f"a process that cannot be seen from here (pid {pid})"
    name = system.read_text(f"/proc/{pid}/comm").strip() or "a process"
    return f"{name} (pid {pid}) of {owner}"
