"""What a learner's processes use of its GPUs, from NVIDIA's library by ctypes, where there is one."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Collection, Dict, List, Optional, Tuple

LIBRARY = "libnvidia-ml.so.1"
_NOT_SAID = (1 << 64) - 1
"""What the driver answers where it cannot tell a process's memory."""
_MOST_PROCESSES = 256
_INSUFFICIENT_SIZE = 7
_TABLES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Nvml:
    """NVIDIA's library, opened once a process."""

    def __init__(self, library: Any) -> None:  # a ctypes library has no narrower type
        self._library = library
        self._devices: Dict[str, ctypes.c_void_p] = {}

    def use(self, uuid: str, pids: Collection[int]) -> Optional[Dict[str, Any]]:
        """Return what these processes use of a GPU or a slice; None when it does not answer."""
        device = self._device(uuid)
        if device is None:
            return None
        memory = _Memory()
        if self._ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)):
            self._devices.pop(uuid, None)
            return None
        rates = _Utilization()
        answered = self._ask("nvmlDeviceGetUtilizationRates", device, ctypes.byref(rates)) == 0
        return {
            "uuid": uuid,
            "memory_bytes": _of_ours(self._processes(device), pids, memory.used),
            # A slice of a divided GPU has no utilisation of its own.
            "utilization_percent": float(rates.gpu) if answered else None,
        }

    def _device(self, uuid: str) -> Optional[ctypes.c_void_p]:
        if uuid not in self._devices:
            device = ctypes.c_void_p()
            if self._ask("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device)):
                return None
            self._devices[uuid] = device
        return self._devices[uuid]

    def _processes(self, device: ctypes.c_void_p) -> List[Tuple[int, int]]:
        for function in _TABLES:
            count = ctypes.c_uint(_MOST_PROCESSES)
            found = (_Process * _MOST_PROCESSES)()
            code = self._ask(function, device, ctypes.byref(count), found)
            if code in (0, _INSUFFICIENT_SIZE):
                return [(one.pid, one.used) for one in found[: min(count.value, _MOST_PROCESSES)]]
        return []

    def _ask(self, function: str, *arguments: Any) -> int:
        asked = getattr(self._library, function, None)
        return -1 if asked is None else int(asked(*arguments))


def _of_ours(table: List[Tuple[int, int]], pids: Collection[int], used_bytes: int) -> int:
    """Return how much memory of a GPU is ours.

    In a container the driver names processes as the host does. Then none of them is there, and all are ours: the
    GPU is leased to nobody else.
    """
    ours = [used for pid, used in table if pid in pids]
    if not ours and table and not any(os.path.exists("/proc/%d" % pid) for pid, _used in table):
        ours = [used for _pid, used in table]
    if _NOT_SAID in ours:
        return used_bytes
    return sum(ours)


def open_nvml() -> Optional[Nvml]:
    """Open the library; None where there is none, or no driver for it."""
    try:
        library = ctypes.CDLL(LIBRARY)
        return Nvml(library) if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
