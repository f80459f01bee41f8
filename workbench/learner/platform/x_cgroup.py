"""The processes of a container, seen from outside by its control group, whoever they belong to."""

from __future__ import annotations

import os

from workbench.learner.platform import system

FILE = "cgroup"
"""In a learner's folder: the path of the list of its container's processes."""

_ROOT = "/sys/fs/cgroup"


class ContainerTree:
    """A container's processes; as long as nobody has said which those are, none."""

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, FILE)
        self._list = ""

    def pids(self) -> list[int]:
        """Return the living processes now."""
        if not self._list:
            self._list = system.read_text(self._file).strip()
        return [int(pid) for pid in system.read_text(self._list).split()] if self._list else []


def processes_file(pid: int) -> str:
    """Return the path of the list that a process of a container is in; empty where there is none.

    The list is that of the memory controller (version 1), or of the one group that there is (version 2).
    """
    groups = {}
    for line in system.read_text("/proc/%d/cgroup" % pid).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    for controller in ("memory", ""):
        path = groups.get(controller, "/")
        found = os.path.join(_ROOT, controller, path.lstrip("/"), "cgroup.procs")
        if path != "/" and os.path.exists(found):
            return found
    return ""
