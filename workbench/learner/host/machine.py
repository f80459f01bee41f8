"""Which machine this is, and the folders and ports that a learner is given on it."""

from __future__ import annotations

import os
import platform
import pwd
import socket
import stat
import sys
import time
import uuid
from typing import Any, Dict, List, Sequence

from workbench.learner.platform import system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders


def identity() -> Dict[str, Any]:
    """Say which machine this is: fields as ``backends.interface.HostIdentity`` has them, and its time."""
    return {
        "machine_id": machine_id(),
        "boot_id": system.boot_id(),
        "hostname": socket.gethostname(),
        "user": user_name(),
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


def user_name(uid: int = -1) -> str:
    """Return a user's name, our own unless a number is given; the number where it has no name."""
    uid = os.getuid() if uid < 0 else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def folder(home_uuid: str, root: str = "") -> str:
    """Return, and make, the folder of a home at this place: by machine, since labs share one home among many.

    Raises:
        Failure: it cannot be made, or what would be in it belongs to somebody else.
    """
    if os.sep in home_uuid or not home_uuid:
        raise Failure("bad_input", f"{home_uuid!r} is no home's uuid.")
    path = os.path.join(os.path.expanduser(root or "~/.fabric"), machine_id(), home_uuid)
    make_folders([path])
    return path


def secret_folder() -> str:
    """Return, and make, a folder of ours for secrets, in memory where there is such a place, 0700."""
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
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
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
