"""Reads the GPUs of this machine from ``nvidia-smi``, where NVIDIA's library cannot be loaded."""

from __future__ import annotations

from typing import Dict, List

from workbench.learner.gpu.types import Gpu, Gpus
from workbench.learner.platform import run
from workbench.learner.platform.errors import Failure

_MIB = 1 << 20
_DEADLINE_SECONDS = 20.0
_GPU_FIELDS = (
    "uuid,index,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,"
    "enforced.power.limit,driver_version"
)


def read_gpus() -> Gpus:
    """Return the GPUs and the driver's version; without any, why there are none."""
    try:
        rows = _rows("gpu", _GPU_FIELDS)
        processes = _rows("compute-apps", "gpu_uuid,pid,used_memory")
    except Failure as error:
        return Gpus([], "none" if error.kind == "missing" else f"none: {error.message}")
    slots = [_slot(row) for row in rows if len(row) == 10]
    by_uuid: Dict[str, Gpu] = {slot["uuid"]: slot for slot in slots}
    for uuid, pid, used in (row for row in processes if len(row) == 3):
        if uuid in by_uuid:
            slot = by_uuid[uuid]
            memory = _bytes(used, slot["memory_used_bytes"])
            slot["processes"].append({"pid": int(pid), "memory_bytes": memory})
    return Gpus(slots, f"driver {rows[0][9]}" if rows else "none")


def _slot(row: List[str]) -> Gpu:
    slot: Gpu = {
        "uuid": row[0],
        "index": int(row[1]),
        "model": row[2],
        "memory_bytes": _bytes(row[3], 0),
        "memory_used_bytes": _bytes(row[4], 0),
        "processes": [],
    }
    names = ("utilization_percent", "temperature_celsius", "power_watts", "power_limit_watts")
    for column, name in enumerate(names, start=5):
        try:
            slot[name] = float(row[column])
        except ValueError:
            continue  # "[N/A]"
    return slot


def _rows(subject: str, fields: str) -> List[List[str]]:
    argv = ["nvidia-smi", f"--query-{subject}={fields}", "--format=csv,noheader,nounits"]
    code, stdout, stderr = run.run(argv, b"", None, None, _DEADLINE_SECONDS)
    if code:
        lines = (stdout + stderr).decode("utf-8", "replace").strip().splitlines() or ["nothing"]
        raise Failure("failed", f"nvidia-smi says: {lines[0]}")
    return [
        [cell.strip() for cell in line.split(", ")] for line in stdout.decode().splitlines() if line.strip()
    ]


def _bytes(mebibytes: str, default: int) -> int:
    return int(float(mebibytes) * _MIB) if mebibytes.replace(".", "", 1).isdigit() else default
