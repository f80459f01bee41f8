"""This machine's GPUs by NVIDIA's package pynvml: their use and their faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

from backends.contract.host import Finding
from workbench.values import dataclass

_WATTS: Final = 1000.0

_REMEDIES: Final = {
    "NVMLError_DriverNotLoaded": "Load it: sudo modprobe nvidia",
    "NVMLError_LibRmVersionMismatch": "The driver was updated under a running one: restart the machine.",
    "NVMLError_GpuIsLost": "It fell off the bus: restart the machine; if it stays so, check the card.",
    "NVMLError_ResetRequired": "Reset it when nothing runs on it: sudo nvidia-smi --gpu-reset -i INDEX",
    "NVMLError_NoPermission": "Ask whoever runs this machine for the right to use /dev/nvidia*.",
}


@dataclass(frozen=True, slots=True)
class LocalGpus:
    """The slots in the form of ``workbench.learner.gpu.nvml``, the driver, and findings about faults."""

    slots: list[dict[str, Any]] = field(default_factory=list)
    driver: str = "none"
    findings: tuple[Finding, ...] = ()


def local_gpus() -> LocalGpus:
    """Read all GPUs."""
    try:
        return _GpuReader(_open()).all()
    except _NvmlError as error:
        if error.name == "NVMLError_LibraryNotFound":
            return LocalGpus(driver="none")
        return LocalGpus(driver=f"none: {error}", findings=(error.finding("gpu"),))


class _NvmlError(Exception):
    """An error of pynvml with the name of its class; pynvml creates the classes at run time."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.name = type(error).__name__

    def finding(self, subject: str) -> Finding:
        return Finding(
            subject,
            str(self),
            level="wrong",
            consequence="Jobs cannot be given it.",
            remedy=_REMEDIES.get(self.name, "See nvidia-smi -q."),
        )


def _open() -> Any:  # the package ships no types
    """Open NVIDIA's library and leave it open: opening takes a second if the driver is not kept loaded."""
    import pynvml

    try:
        pynvml.nvmlDeviceGetCount()
        return pynvml
    except pynvml.NVMLError:
        pass  # not opened yet, or the driver was replaced
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _NvmlError(error) from error
    return pynvml


class _GpuReader:
    """Reads all GPUs once."""

    def __init__(self, nvml: Any) -> None:  # the package ships no types
        self._nvml = nvml
        self._slots: list[dict[str, Any]] = []
        self._findings: list[Finding] = []

    def all(self) -> LocalGpus:
        for index in range(self._ask(self._nvml.nvmlDeviceGetCount)):
            try:
                self._gpu(index)
            except _NvmlError as error:
                self._findings.append(error.finding(f"gpu {index}"))
                self._slots.append(_broken(index, str(error)))
        return LocalGpus(self._slots, self._driver(), tuple(self._findings))

    def _driver(self) -> str:
        cuda = self._try(self._nvml.nvmlSystemGetCudaDriverVersion_v2)
        version = f"driver {self._ask(self._nvml.nvmlSystemGetDriverVersion)}"
        return version if cuda is None else f"{version}, CUDA {cuda // 1000}.{cuda % 1000 // 10}"

    def _gpu(self, index: int) -> None:
        device = self._ask(self._nvml.nvmlDeviceGetHandleByIndex, index)
        divided = self._try(self._nvml.nvmlDeviceGetMigMode, device)
        if divided is None or divided[0] != 1:
            self._slots.append(self._slot(device, index))
        else:
            self._slots.extend(self._slot(part, index) for part in self._parts(device))
        self._findings.extend(self._health(device, index))

    def _parts(self, device: Any) -> Iterator[Any]:
        for number in range(self._ask(self._nvml.nvmlDeviceGetMaxMigDeviceCount, device)):
            part = self._try(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, number)
            if part is not None:
                yield part

    def _slot(self, device: Any, index: int) -> dict[str, Any]:
        nvml = self._nvml
        memory = self._memory(device)
        utilization = self._try(nvml.nvmlDeviceGetUtilizationRates, device)
        celsius = self._try(nvml.nvmlDeviceGetTemperature, device, 0)
        power = self._try(nvml.nvmlDeviceGetPowerUsage, device)
        limit = self._try(nvml.nvmlDeviceGetEnforcedPowerLimit, device)
        processes = self._try(nvml.nvmlDeviceGetComputeRunningProcesses, device)
        slot = {
            "uuid": _text(self._ask(nvml.nvmlDeviceGetUUID, device)),
            "index": index,
            "model": _text(self._ask(nvml.nvmlDeviceGetName, device)),
            "memory_bytes": memory.total,
            "memory_used_bytes": memory.used,
            "utilization_percent": None if utilization is None else float(utilization.gpu),
            "temperature_celsius": None if celsius is None else float(celsius),
            "power_watts": None if power is None else power / _WATTS,
            "power_limit_watts": None if limit is None else limit / _WATTS,
        }
        if processes is not None:
            # Without a value for a process, it may use all the memory that is used.
            slot["processes"] = [
                {
                    "pid": one.pid,
                    "memory_bytes": memory.used if one.usedGpuMemory is None else one.usedGpuMemory,
                }
                for one in processes
            ]
        return slot

    def _memory(self, device: Any) -> Any:
        """Return a GPU's memory without what the driver keeps for itself; drivers before 510 count that as used."""
        nvml = self._nvml
        found = self._try(nvml.nvmlDeviceGetMemoryInfo, device, nvml.nvmlMemory_v2)
        return self._ask(nvml.nvmlDeviceGetMemoryInfo, device) if found is None else found

    def _health(self, device: Any, index: int) -> Iterator[Finding]:
        nvml = self._nvml
        remapped = self._try(nvml.nvmlDeviceGetRemappedRows, device)
        if remapped is not None and remapped[3]:
            yield Finding(
                f"gpu {index}",
                "its memory has failed and cannot be repaired",
                level="wrong",
                consequence="Jobs on it fail or compute nonsense.",
                remedy="Have the card replaced.",
            )
        elif remapped is not None and remapped[2]:
            yield Finding(
                f"gpu {index}",
                "its memory has errors that a reset repairs",
                level="lack",
                consequence="Jobs on it may fail.",
                remedy=_REMEDIES["NVMLError_ResetRequired"].replace("INDEX", str(index)),
            )
        errors = self._try(nvml.nvmlDeviceGetTotalEccErrors, device, 1, 0)
        if errors:
            yield Finding(
                f"gpu {index}",
                f"{errors} memory errors since the driver was loaded that could not be corrected",
                level="lack",
                consequence="Jobs that hit one are ended by the driver.",
                remedy=_REMEDIES["NVMLError_ResetRequired"].replace("INDEX", str(index)),
            )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise _NvmlError(error) from error

    def _try(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that not every GPU supports; None if it fails."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _broken(index: int, why: str) -> dict[str, Any]:
    return {
        "uuid": f"broken-{index}",
        "index": index,
        "model": "unknown",
        "memory_bytes": 0,
        "foreign": why,
    }
