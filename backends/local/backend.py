"""The backend ``local``: this machine, its resources, and checks of what jobs need."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from backends.contract.errors import translated
from backends.contract.host import (
    INTERNAL_ADDRESS,
    SHARE_NAMES,
    Backend,
    BackendOptions,
    Finding,
    Inventory,
    Node,
    Slot,
    check_address,
    check_flag,
    is_set,
)
from workbench.clock import now_us
from workbench.errors import FabricError
from workbench.formats import size
from workbench.paths import Home, default_home, leases_folder

if TYPE_CHECKING:
    from backends.contract.container_engines import Endpoint
    from backends.local.host import LocalHost

LITTLE_DISK_BYTES: Final = 2 << 30
FIRST_LOOK_SECONDS: Final = 0.05
_cpu_times: tuple[int, int] | None = None


class LocalBackend(Backend):
    """This machine. The options ``home`` and ``engine`` replace what the environment names."""

    type: ClassVar[str] = "local"

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        check_flag(options, SHARE_NAMES)
        check_address(options)

    def probe(self) -> Iterator[Finding]:
        """Check Python, shell, GPUs, container engine, leases and disk; each problem has a consequence and a remedy."""
        yield _python()
        yield _environments()
        yield _shell()
        yield from _gpus()
        yield self._engine_finding()
        yield _leases()
        yield _disk(self._home().path)

    def inventory(self) -> Inventory:
        """Return this machine's CPUs, memory, disk and GPUs, and who uses them."""
        from backends.local.gpu_health import local_gpus
        from workbench.learner.host import machine

        found = local_gpus()
        memory = machine.memory()
        with translated():
            slots = machine.slots(found.slots, str(leases_folder()))
        node = Node(
            name=socket.gethostname(),
            cpus=len(machine.processors()),
            memory_bytes=memory["total"],
            cpu_percent=_cpu_percent(),
            memory_used_bytes=memory["used"],
            disk_free_bytes=shutil.disk_usage(_nearest(self._home().path)).free,
            slots=tuple(slot_of(slot) for slot in slots),
            driver=found.driver,
        )
        return Inventory((node,), now_us())

    def gpu_count(self) -> int | None:
        """Return how many GPUs this machine has; one whose memory cannot be read gives none to a job."""
        return sum(bool(slot.memory_bytes) for node in self.inventory().nodes for slot in node.slots)

    def open(self) -> LocalHost:
        """Return this machine as a host."""
        from backends.local.host import LocalHost

        options = self.options.options
        engine = str(options.get("engine") or "")
        host = LocalHost(self._home(), engine=engine, share_names=is_set(options, SHARE_NAMES))
        host.internal_address = str(options.get(INTERNAL_ADDRESS) or "")
        return host

    def runners(self) -> Sequence[str]:
        """Return the runners of this machine, ``container`` first; :meth:`why_not` checks the engine."""
        return ("container", "process")

    def why_not(self, runner: str) -> FabricError | None:
        """Return why a runner cannot be used now: for ``container``, what is wrong with the engine.

        An engine that is there and does not answer now is not wrong: a launch waits for it.
        """
        if runner != "container":
            return None
        from backends.contract.container_engines import EngineHangs

        error = self._engine_error()
        return None if isinstance(error, EngineHangs) else error

    def _engine_error(self) -> FabricError | None:
        from backends.contract.container_engines import check_engine

        try:
            check_engine(self._engine(), self._home())
        except FabricError as error:
            return error
        return None

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options that a job stores: for ``container`` with the address of today's engine."""
        if runner != "container":
            return self.options
        return dataclasses.replace(
            self.options, options={**self.options.options, "engine": self._engine().address}
        )

    def _engine(self) -> Endpoint:
        from backends.contract.container_engines import Endpoint, find_engine

        address = str(self.options.options.get("engine") or "")
        return Endpoint(address, "the backend's option engine") if address else find_engine()

    def _engine_finding(self) -> Finding:
        from backends.contract.container_engines import EngineHangs

        error = self._engine_error()
        if error is None:
            return Finding("engine", self._engine().address)
        if isinstance(error, EngineHangs):
            return Finding(
                "engine",
                error.message.rstrip("."),
                level="lack",
                consequence="Jobs that name an image wait for it.",
                remedy=error.hint,
            )
        return Finding(
            "engine",
            error.message.rstrip("."),
            level="lack",
            consequence="Jobs run as processes here, whatever image they name.",
            remedy=error.hint,
        )

    def _home(self) -> Home:
        path = self.options.options.get("home")
        return Home(Path(str(path)) if path else default_home())


def _cpu_percent() -> float:
    """Return the use of all CPUs in percent since the last call; the first call measures for 50 ms."""
    from workbench.learner.host import machine

    global _cpu_times
    before = _cpu_times or _read_cpu_times()
    if before is None:  # macOS has no such file
        return min(100.0, 100.0 * os.getloadavg()[0] / len(machine.processors()))
    if _cpu_times is None:
        time.sleep(FIRST_LOOK_SECONDS)
    _cpu_times = after = _read_cpu_times() or before
    total = after[0] - before[0]
    return round(100.0 * (after[1] - before[1]) / total, 1) if total > 0 else 0.0


def _read_cpu_times() -> tuple[int, int] | None:
    """Return the total and the busy time of all CPUs in ticks since boot (/proc/stat); None without that file."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    # user nice system idle iowait irq softirq steal; guest time is within user and nice.
    ticks = [int(value) for value in first[1:9]]
    return sum(ticks), sum(ticks) - ticks[3] - ticks[4]


def slot_of(document: dict[str, Any]) -> Slot:
    """Build a slot from the reply to the operation ``inventory``."""
    return Slot(**document)


def _python() -> Finding:
    return Finding("python", f"{sys.executable} ({sys.version.split()[0]})")


def _environments() -> Finding:
    import importlib.util

    if shutil.which("uv"):
        return Finding("environments", "uv")
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return Finding("environments", "venv and pip")
    return Finding(
        "environments",
        "neither uv nor the venv and ensurepip modules",
        level="lack",
        consequence="Jobs with 'python: requirements' cannot run here.",
        remedy="Install uv (https://docs.astral.sh/uv), or on Debian and Ubuntu the package python3-venv.",
    )


def _shell() -> Finding:
    found = shutil.which("bash")
    if found:
        return Finding("shell", found)
    return Finding(
        "shell",
        "sh only",
        level="lack",
        consequence="Commands run under sh; bash syntax fails.",
        remedy="Install bash.",
    )


def _gpus() -> Iterator[Finding]:
    from backends.local.gpu_health import local_gpus

    found = local_gpus()
    if found.slots:
        models = ", ".join(sorted({slot["model"] for slot in found.slots if slot["memory_bytes"]}))
        yield Finding("gpu", f"{len(found.slots)} to give: {models or 'unknown'} ({found.driver})")
    elif not found.findings:
        yield Finding(
            "gpu",
            "none",
            level="lack",
            consequence="Jobs that ask for GPUs are refused here.",
            remedy="If this machine has one, install NVIDIA's driver.",
        )
    yield from found.findings


def _leases() -> Finding:
    from workbench.learner.platform import leases, system

    folder = leases_folder()
    try:
        with translated():
            leases.make_folder(str(folder))
    except FabricError as error:
        consequence = "Jobs that ask for GPUs cannot run here."
        return Finding("leases", error.message, level="wrong", consequence=consequence, remedy=error.hint)
    owner = folder.stat().st_uid
    # Root or we made it, or its maker is named: the owner of a folder can remove what others put in it.
    made_by = "" if owner in (0, os.geteuid()) else f", made by {system.user_name(owner)}"
    return Finding("leases", f"{folder}{made_by}")


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(_nearest(home)).free
    found = f"{size(free)} free for {home}"
    if free >= LITTLE_DISK_BYTES:
        return Finding("disk", found)
    return Finding(
        "disk",
        found,
        level="lack",
        consequence="Jobs wait when the disk is full: their output goes there.",
        remedy="Remove what is not needed (fabric gc), or set FABRIC_HOME to a larger disk.",
    )


def _nearest(path: Path) -> Path:
    """Return the nearest existing parent folder of a path, or the path itself."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), Path("/"))
