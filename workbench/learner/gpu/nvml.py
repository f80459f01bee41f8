"""The GPUs of this machine: NVIDIA's library by ctypes, else ``nvidia-smi``; nothing is installed for it."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Collection, Dict, Iterator, List, Optional, Tuple

from workbench.learner.gpu.types import Gpu, Gpus
from workbench.learner.platform.errors import Failure

LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
_TEXT_BYTES = 96
_NOT_AVAILABLE = (1 << 64) - 1
"""What the driver answers where it cannot say how much memory a process uses."""
_MOST_PROCESSES = 256
_PROCESS_FUNCTIONS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
_INSUFFICIENT_SIZE = 7
_SLOWDOWN = 1
"""The threshold of the temperature from which on a GPU clocks itself down."""
_FUNCTION_NOT_FOUND = 13
_ERRORS = {
    9: "the driver is not loaded",
    15: "the GPU is lost (it fell off the bus: the machine must be restarted)",
    16: "the GPU must be reset",
    18: "the driver and its library are of different versions (the machine must be restarted)",
}


def read_gpus() -> Gpus:
    """Return the GPUs and the driver's version; without any, why there are none."""
    library = _load()
    if library is None:
        from workbench.learner.gpu import nvidia_smi

        return nvidia_smi.read_gpus()
    try:
        nvml = Nvml(library)
    except Failure as error:
        return Gpus([], f"none: {error.message}")
    try:
        return Gpus(list(nvml.slots()), nvml.driver())
    finally:
        nvml.close()


def open_nvml() -> Optional[Nvml]:
    """Open the library; None where there is none, or no driver for it."""
    library = _load()
    try:
        return None if library is None else Nvml(library)
    except Failure:
        return None


class Nvml:
    """NVIDIA's library, opened.

    Raises:
        Failure: it finds no driver, or one of another version.
    """

    def __init__(self, library: Any) -> None:  # a ctypes library has no narrower type
        self._library = library
        self._devices: Dict[str, ctypes.c_void_p] = {}
        self.held: Dict[str, Dict[int, int]] = {}
        """How much memory each process held on each GPU that :meth:`usage` was last asked for, where that is known."""
        _check(self._call("nvmlInit_v2"))

    def close(self) -> None:
        """Give the library back."""
        self._call("nvmlShutdown")

    def driver(self) -> str:
        """Return the versions of the driver and of CUDA."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        cuda = ctypes.c_int()
        _check(self._call("nvmlSystemGetDriverVersion", text, _TEXT_BYTES))
        version = f"driver {text.value.decode()}"
        if self._call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(cuda)) == 0:
            version += f", CUDA {cuda.value // 1000}.{cuda.value % 1000 // 10}"
        return version

    def slots(self) -> Iterator[Gpu]:
        """Give each GPU that a learner can be given: a whole one, or its slices where it is divided (MIG)."""
        for index in range(self._number("nvmlDeviceGetCount_v2")):
            device = ctypes.c_void_p()
            code = self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
            if code:
                yield _broken(index, code)
            elif self._is_divided(device):
                yield from self._slices(device, index)
            else:
                yield self._slot(device, index)

    def usage(self, uuid: str, pids: Collection[int]) -> Optional[Dict[str, Any]]:
        """Return what these processes use of a GPU or a slice, as a usage record has it; None without an answer."""
        device = self._device(uuid)
        if device is None:
            return None
        code, memory = self._memory(device)
        if code:
            self._devices.pop(uuid, None)
            self.held.pop(uuid, None)
            return None
        processes = self._processes(device) or []
        self.held[uuid] = {pid: used for pid, used in processes if used != _NOT_AVAILABLE}
        found: Dict[str, Any] = {
            "uuid": uuid,
            "memory_bytes": _memory_of(pids, processes, memory.used),
            # A slice of a divided GPU has no utilization of its own, no temperature and no power.
            "utilization_percent": self._utilization_percent(device),
        }
        self._measure_heat(device, found)
        return found

    def limits(self, uuid: str) -> Dict[str, float]:
        """Return how much memory and power a GPU or a slice can use and how hot it may get, as far as that is said."""
        device = self._device(uuid)
        found: Dict[str, float] = {}
        number = ctypes.c_uint()
        if device is None:
            return found
        code, memory = self._memory(device)
        if code == 0:
            found["memory_limit_bytes"] = memory.total
        if self._call("nvmlDeviceGetEnforcedPowerLimit", device, ctypes.byref(number)) == 0:
            found["power_limit_watts"] = number.value / 1000
        code = self._call("nvmlDeviceGetTemperatureThreshold", device, _SLOWDOWN, ctypes.byref(number))
        if code == 0 and number.value:
            found["temperature_limit_celsius"] = float(number.value)
        return found

    def _device(self, uuid: str) -> Optional[ctypes.c_void_p]:
        if uuid not in self._devices:
            device = ctypes.c_void_p()
            if self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device)):
                return None
            self._devices[uuid] = device
        return self._devices[uuid]

    def _slices(self, device: ctypes.c_void_p, index: int) -> Iterator[Gpu]:
        for number in range(self._number("nvmlDeviceGetMaxMigDeviceCount", device)):
            part = ctypes.c_void_p()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", device, number, ctypes.byref(part)) == 0:
                yield self._slot(part, index)

    def _slot(self, device: ctypes.c_void_p, index: int) -> Gpu:
        try:
            code, memory = self._memory(device)
            _check(code)
            slot: Gpu = {
                "uuid": self._text("nvmlDeviceGetUUID", device),
                "index": index,
                "model": self._text("nvmlDeviceGetName", device),
                "memory_bytes": memory.total,
                "memory_used_bytes": memory.used,
            }
            processes = self._processes(device)
            if processes is not None:
                # Where the driver does not say what a process uses, it may be all that is used.
                slot["processes"] = [
                    {"pid": pid, "memory_bytes": memory.used if used == _NOT_AVAILABLE else used}
                    for pid, used in processes
                ]
        except Failure as error:
            return {**_broken(index, 0), "foreign": error.message}
        self._measure(device, slot)
        return slot

    def _memory(self, device: ctypes.c_void_p) -> Tuple[int, Any]:  # one of two structures
        """Return the driver's answer and what it says of a GPU's memory.

        What the driver keeps for itself (0.6 GiB of an H200) is used by nobody, as nvidia-smi has it. Only drivers
        before 510, which know no second version of this question, count it as used.
        """
        memory = _MemoryWithReserved(version=ctypes.sizeof(_MemoryWithReserved) | 2 << 24)
        if self._call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(memory)) == 0:
            return 0, memory
        first = _Memory()
        return self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(first)), first

    def _measure(self, device: ctypes.c_void_p, slot: Gpu) -> None:
        utilization_percent = self._utilization_percent(device)
        if utilization_percent is not None:
            slot["utilization_percent"] = utilization_percent
        self._measure_heat(device, slot)
        number = ctypes.c_uint()
        if self._call("nvmlDeviceGetEnforcedPowerLimit", device, ctypes.byref(number)) == 0:
            slot["power_limit_watts"] = number.value / 1000

    def _measure_heat(self, device: ctypes.c_void_p, found: Dict[str, Any]) -> None:
        """Add temperature and power where the driver knows them."""
        number = ctypes.c_uint()
        if self._call("nvmlDeviceGetTemperature", device, 0, ctypes.byref(number)) == 0:
            found["temperature_celsius"] = float(number.value)
        if self._call("nvmlDeviceGetPowerUsage", device, ctypes.byref(number)) == 0:
            found["power_watts"] = number.value / 1000

    def _utilization_percent(self, device: ctypes.c_void_p) -> Optional[float]:
        rates = _Utilization()
        code = self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(rates))
        return None if code else float(rates.gpu)

    def _processes(self, device: ctypes.c_void_p) -> Optional[List[Tuple[int, int]]]:
        """Return pid and memory in bytes (or :data:`_NOT_AVAILABLE`) of the processes that compute on a GPU.

        None where the driver does not say which there are.
        """
        for function in _PROCESS_FUNCTIONS:
            count = ctypes.c_uint(_MOST_PROCESSES)
            found = (_Process * _MOST_PROCESSES)()
            code = self._call(function, device, ctypes.byref(count), found)
            if code in (0, _INSUFFICIENT_SIZE):
                return [(one.pid, one.used) for one in found[: min(count.value, _MOST_PROCESSES)]]
        return None

    def _is_divided(self, device: ctypes.c_void_p) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._call("nvmlDeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
        return code == 0 and current.value == 1

    def _call(self, function: str, *arguments: Any) -> int:
        found = getattr(self._library, function, None)
        return _FUNCTION_NOT_FOUND if found is None else int(found(*arguments))

    def _number(self, function: str, *arguments: Any) -> int:
        number = ctypes.c_uint()
        _check(self._call(function, *arguments, ctypes.byref(number)))
        return number.value

    def _text(self, function: str, device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        _check(self._call(function, device, text, _TEXT_BYTES))
        return text.value.decode("utf-8", "replace")


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _MemoryWithReserved(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def _memory_of(pids: Collection[int], processes: List[Tuple[int, int]], used_bytes: int) -> int:
    """Return how much memory of a GPU a learner's processes use.

    In a container the driver gives the host's pids. Then none of them exists here, and all memory is the learner's:
    the GPU is leased to nobody else.
    """
    own = [used for pid, used in processes if pid in pids]
    if not own and processes and not any(os.path.exists("/proc/%d" % pid) for pid, _used in processes):
        own = [used for _pid, used in processes]
    if _NOT_AVAILABLE in own:
        return used_bytes
    return sum(own)


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
