"""Which GPUs and which port a job gets, the same whoever starts it: a controller, or a host's waiter. Pure.

A GPU, or a slice of one (MIG), is as the inventory of a host has it (``host.machine.inventory``).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

NO_GPU: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
"""The variables of a learner that sees no GPU."""

CHOSEN = "<chosen at launch>"
"""Stands in plans, and in documents of learners that wait, for what is chosen when the learner starts."""

PORTS = range(29500, 30500)
"""Where ``MASTER_PORT`` is chosen from: below the range from which the kernel assigns ports."""

PORT_TRIES = 20

RESERVED_CPUS = "reserved_cpus"
"""In a launch document: how many CPUs the job asks for, for each learner."""

MAX_RUNTIME = "max_runtime_seconds"
"""How long the holder of a lease runs at most, with its grace period: others see by when it is free at the latest."""

PREEMPTION = "preemption"
"""In the text of a lease: ``ASKED`` or ``BY_POLICY``; absent where the holder is never preempted."""

PRIORITY = "priority"
PREEMPTION_SECONDS = "preemption_seconds"
"""How long the holder of a lease may take to end when it is preempted."""

LABELS = "labels"
"""In the text of a lease: what stands for the holder's labels (``entries.marks_text``)."""

GROUP = "group"
"""In the text of a lease: what stands for the sweep or search of its holder (``entries.group_mark``)."""

NAME = "name"
"""In the text of a lease: the job's name, where its person shares it (``entries.shared_name``)."""

SWEEP = "sweep"
"""In a launch document: the sweep of which only some jobs may be under way at once; absent for none."""


def usable_gpus(slots: Sequence[Mapping[str, Any]], each: int) -> List[Mapping[str, Any]]:
    """Return those that a job could use whose learners get so many each: a process computes on one slice at most."""
    usable = [slot for slot in slots if slot["memory_bytes"]]
    return [slot for slot in usable if not is_slice(slot["uuid"])] if each > 1 else usable


def choose_gpus(
    slots: Sequence[Mapping[str, Any]], count: int, each: int, gpu_type: str
) -> Optional[List[str]]:
    """Choose free ones by their uuids, those of the wanted type first; None where there are not so many."""
    free = [slot for slot in usable_gpus(slots, each) if is_free(slot)]
    if count > len(free):
        return None
    free.sort(key=lambda slot: (not is_of_type(slot["model"], gpu_type), slot["index"]))
    return [slot["uuid"] for slot in free[:count]]


def is_free(slot: Mapping[str, Any]) -> bool:
    """Say whether a learner can get it now: nobody has leased it, or computes on it."""
    return not slot.get("holder") and not slot.get("foreign")


def is_of_type(model: str, gpu_type: str) -> bool:
    """Say whether a GPU's model is of the manifest's ``gpu_type``: ``Tesla V100-SXM2`` of ``nvidia-TeslaV100``."""
    plain = _plain(gpu_type)
    return not plain or plain in _plain(model)


def is_slice(uuid: str) -> bool:
    """Say whether this is a slice of a divided GPU (MIG)."""
    return uuid.startswith("MIG-")


def shares(uuids: Sequence[str], learners: Sequence[int], each: int) -> Dict[int, Tuple[str, ...]]:
    """Return which of the chosen ones each learner gets."""
    return {
        learner: tuple(uuids[index * each : (index + 1) * each]) for index, learner in enumerate(learners)
    }


def gpu_variables(uuids: Sequence[str]) -> Dict[str, str]:
    """Return the variables that restrict a learner to its GPUs."""
    return dict.fromkeys(NO_GPU, ",".join(uuids)) if uuids else dict(NO_GPU)


def lease_text(holder: Mapping[str, Any], pid: int) -> str:
    """Return the text of a lease, which names its holder to others.

    Args:
        holder: ``owner``, ``job``, ``attempt`` and ``home``, and ``max_runtime_seconds`` where there is a limit.
        pid: the agent that holds it; 0 before there is one.
    """
    return json.dumps({**holder, "pid": pid})


def candidate_ports(text: str) -> List[int]:
    """Return the ports to try for ``MASTER_PORT``: jobs with other texts try others first."""
    first = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return [PORTS[(first + step) % len(PORTS)] for step in range(PORT_TRIES)]


def port_lease(port: int) -> str:
    """Return the name of a port's lease."""
    return f"port-{port}"


def fit_cpus(reserved: Iterable[float], needed: float, available: float) -> bool:
    """Say whether a job that asks for so many CPUs may start beside those that have reserved some.

    One that asks for more than there are gets what there is, alone.
    """
    held = sum(min(one, available) for one in reserved)
    return not held or held + min(needed, available) <= available


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower()).replace("nvidia", "")
