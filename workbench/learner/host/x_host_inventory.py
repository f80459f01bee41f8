"""What this machine has and who uses it: CPUs, memory, disk, GPUs with the holders of their leases."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Any, Dict, List

from workbench.learner.gpu import nvml
from workbench.learner.host import machine, x_survey
from workbench.learner.platform import leases, system

FOREIGN_BYTES = 256 << 20
"""A process that computes with less GPU memory than this does not make a GPU busy."""


def inventory(leases_folder: str = "") -> Dict[str, Any]:
    """Return the machine as ``backends.interface.Node`` has it, in JSON.

    Args:
        leases_folder: where leases lie; empty for this machine's own.
    """
    memory = machine.memory()
    found = nvml.gpus()
    return {
        "name": socket.gethostname(),
        "cpus": len(machine.processors()),
        "memory_bytes": memory["total"],
        "memory_used_bytes": memory["used"],
        "disk_free_bytes": shutil.disk_usage(os.path.expanduser("~")).free,
        "driver": found.driver,
        "slots": slots(found.slots, leases_folder or x_survey.leases_folder()),
        "time_us": system.now_us(),
    }


def slots(found: List[Dict[str, Any]], leases_folder: str) -> List[Dict[str, Any]]:
    """Say of each GPU who holds it, or who else computes on it; ``processes`` gives way to ``foreign``."""
    held = leases.holders(leases_folder, [slot["uuid"] for slot in found])
    answer = []
    for slot in found:
        processes = slot.pop("processes", [])
        holder = held.get(slot["uuid"])
        if holder is not None:
            slot["holder"] = str(holder.get("owner") or "somebody")
            slot["holder_job"] = str(holder.get("job") or "")
        elif not slot.get("foreign"):
            slot["foreign"] = _foreign(processes)
        answer.append(slot)
    return answer


def _foreign(processes: List[Dict[str, Any]]) -> str:
    """Name the process that uses most of a GPU that nobody leased, if it computes."""
    computing = [process for process in processes if process["memory_bytes"] > FOREIGN_BYTES]
    if not computing:
        return ""
    most = max(computing, key=lambda process: int(process["memory_bytes"]))
    pid = int(most["pid"])
    try:
        owner = machine.user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return f"a process that cannot be seen from here (pid {pid})"
    name = system.read_text(f"/proc/{pid}/comm").strip() or "a process"
    return f"{name} (pid {pid}) of {owner}"
