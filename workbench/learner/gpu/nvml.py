"""The GPUs of this machine: NVIDIA's library by ctypes, else ``nvidia-smi``; nothing is installed for it."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Collection, Dict, Iterator, List, Optional, Tuple

from workbench.learner.platform.errors import Failure

Gpu = Dict[str, Any]
"""A slot as ``backends.interface.Slot`` has it, with its compute ``processes`` (pid, memory_bytes)."""

LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
_TEXT_BYTES = 96
_NOT_AVAILABLE = (1 << 64) - 1
_MOST_PROCESSES = 256
_INSUFFICIENT_SIZE = 7
_FUNCTION_NOT_FOUND = 13
_ERRORS = {
    9: "the driver is not loaded",
    15: "the GPU is lost (it fell off the bus: the machine must be restarted)",
    16: "the GPU must be reset",
    18: "the driver and its library are of different versions (the machine must be restarted)",
}


class Gpus:
    """What was found: the slots, and the driver or why there is none."""

    def __init__(self, slots: List[Gpu], driver: str) -> None:
        self.slots = slots
        self.driver = driver


def gpus() -> Gpus:
    """Return the GPUs, or in words why there are none."""
    library = _load()
    if library is None:
        from workbench.learner.gpu.nvidia_smi import ask

        return ask()
    try:
        nvml = Nvml(library)
    except Failure as error:
        return Gpus([], f"none: {error.message}")
    try:
        return Gpus(list(nvml.slots()), nvml.driver())
    finally:
        nvml.close()


class Nvml:
    """NVIDIA's library, opened."""

    def __init__(self, library: Any) -> None:  # a ctypes library has no narrower type
        self._library = library
        _check(self._ask("nvmlInit_v2"))

    def close(self) -> None:
        """Give the library back."""
        self._ask("nvmlShutdown")

    def driver(self) -> str:
        """Return the versions of the driver and of CUDA."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        cuda = ctypes.c_int()
        _check(self._ask("nvmlSystemGetDriverVersion", text, _TEXT_BYTES))
        version = f"driver {text.value.decode()}"
        if self._ask("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(cuda)) == 0:
            version += f", CUDA {cuda.value // 1000}.{cuda.value % 1000 // 10}"
        return version

    def slots(self) -> Iterator[Gpu]:
        """Give each GPU that a learner can be given: a whole one, or its slices where it is divided (MIG)."""
        for index in range(self._number("nvmlDeviceGetCount_v2")):
            device = ctypes.c_void_p()
            code = self._ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
            if code:
                yield _broken(index, code)
            elif self._is_divided(device):
                yield from self._slices(device, index)
            else:
                yield self._slot(device, index)

    def _slices(self, device: ctypes.c_void_p, index: int) -> Iterator[Gpu]:
        for number in range(self._number("nvmlDeviceGetMaxMigDeviceCount", device)):
            part = ctypes.c_void_p()
            if self._ask("nvmlDeviceGetMigDeviceHandleByIndex", device, number, ctypes.byref(part)) == 0:
                yield self._slot(part, index)

    def _slot(self, device: ctypes.c_void_p, index: int) -> Gpu:
        try:
            used, total = self._memory(device)
            slot: Gpu = {
                "uuid": self._text("nvmlDeviceGetUUID", device),
                "index": index,
                "model": self._text("nvmlDeviceGetName", device),
                "memory_bytes": total,
                "memory_used_bytes": used,
            }
            slot["processes"] = self._processes(device, used)
        except Failure as error:
            return {**_broken(index, 0), "foreign": error.message}
        self._measure(device, slot)
        return slot

    def _measure(self, device: ctypes.c_void_p, slot: Gpu) -> None:
        utilization = (ctypes.c_uint * 2)()
        if self._ask("nvmlDeviceGetUtilizationRates", device, ctypes.byref(utilization)) == 0:
            slot["utilization_percent"] = float(utilization[0])
        number = ctypes.c_uint()
        if self._ask("nvmlDeviceGetTemperature", device, 0, ctypes.byref(number)) == 0:
            slot["temperature_celsius"] = float(number.value)
        if self._ask("nvmlDeviceGetPowerUsage", device, ctypes.byref(number)) == 0:
            slot["power_watts"] = number.value / 1000
        if self._ask("nvmlDeviceGetEnforcedPowerLimit", device, ctypes.byref(number)) == 0:
            slot["power_limit_watts"] = number.value / 1000

    def _memory(self, device: ctypes.c_void_p) -> Tuple[int, int]:
        sizes = (ctypes.c_ulonglong * 3)()  # total, free, used
        _check(self._ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(sizes)))
        return sizes[2], sizes[0]

    def _processes(self, device: ctypes.c_void_p, used: int) -> List[Dict[str, int]]:
        count = ctypes.c_uint(_MOST_PROCESSES)
        found = (_Process * _MOST_PROCESSES)()
        for function in (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        ):
            code = self._ask(function, device, ctypes.byref(count), found)
            if code != _FUNCTION_NOT_FOUND:
                break
        if code not in (0, _INSUFFICIENT_SIZE):
            return []
        # Where the driver does not say what a process uses, it may be all that is used.
        return [
            {"pid": one.pid, "memory_bytes": used if one.used == _NOT_AVAILABLE else one.used}
            for one in found[: min(count.value, _MOST_PROCESSES)]
        ]

    def _is_divided(self, device: ctypes.c_void_p) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._ask("nvmlDeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
        return code == 0 and current.value == 1

    def _ask(self, function: str, *arguments: Any) -> int:
        asked = getattr(self._library, function, None)
        return _FUNCTION_NOT_FOUND if asked is None else int(asked(*arguments))

    def _number(self, function: str, *arguments: Any) -> int:
        number = ctypes.c_uint()
        _check(self._ask(function, *arguments, ctypes.byref(number)))
        return number.value

    def _text(self, function: str, device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        _check(self._ask(function, device, text, _TEXT_BYTES))
        return text.value.decode("utf-8", "replace")


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def _load() -> Any:  # a ctypes library has no narrower type
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _check(code: int) -> None:
    if code:
        raise Failure("failed", _ERRORS.get(code, f"NVIDIA's library answers with error {code}"))


def _broken(index: int, code: int) -> Gpu:
    """Return a GPU that cannot be used, and why."""
    return {
        "uuid": f"broken-{index}",
        "index": index,
        "model": "unknown",
        "memory_bytes": 0,
        "foreign": _ERRORS.get(code, f"NVIDIA's library answers with error {code}"),
    }


LIBRARY = "libnvidia-ml.so.1"
_NOT_SAID = (1 << 64) - 1
"""What the driver answers where it cannot tell a process's memory."""
_TABLES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class NvmlReader:
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


def open_nvml() -> Optional[NvmlReader]:
    """Open the library; None where there is none, or no driver for it."""
    try:
        library = ctypes.CDLL(LIBRARY)
        return NvmlReader(library) if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
