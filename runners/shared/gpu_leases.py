"""Leases GPUs for all learners of an attempt or for none; messages name the holders of the others."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from typing import Final

from backends.contract.host import Host, Lock, Slot
from runners.interface import HostTurn, LaunchRequest
from runners.shared.host_facts import HostFacts
from workbench.errors import LaunchRefused, NotAllowed, RunnerError, SlotsBusy, TryAgain
from workbench.values import dataclass

TRIES: Final = 3
"""How often slots are chosen again after another process locked one first."""

RELEASE_SECONDS: Final = 0.2
"""How long an agent may hold its slots after it has recorded its learner's end, and a GPU be without an answer."""

_PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Leased:
    """The slots of some learners, locked until their agents inherit them."""

    lock: Lock | None
    by_learner: dict[int, tuple[str, ...]]

    def part(self, learner: int) -> Lock | None:
        """Split off the lock that a learner's agent inherits; None without slots."""
        uuids = self.by_learner[learner]
        return self.lock.part(uuids) if self.lock is not None and uuids else None

    def release(self) -> None:
        """Release the slots that no agent has inherited."""
        if self.lock is not None:
            self.lock.release()


def lease(request: LaunchRequest, learners: Sequence[int], host: Host, site: HostFacts) -> Leased:
    """Lease the slots of these learners.

    Raises:
        SlotsBusy: not enough are free; none is held then.
        LaunchRefused: the host does not have so many.
    """
    each = request.spec.gpus
    if not each:
        return Leased(None, dict.fromkeys(learners, ()))
    for _ in range(TRIES):
        chosen = _choose_patiently(each * len(learners), request, host, site)
        uuids = [slot.uuid for slot in chosen]
        if lock := host.lock(uuids, folder=site.leases, text=lease_text(request, 0)):
            attempt = request.attempt
            host.call("leave_line", home=attempt.home, job=attempt.job_id, leases_folder=site.leases)
            shares = {
                learner: tuple(uuids[index * each : (index + 1) * each])
                for index, learner in enumerate(learners)
            }
            return Leased(lock, shares)
    raise SlotsBusy("waits for GPUs: other jobs took them first")


def _choose_patiently(count: int, request: LaunchRequest, host: Host, site: HostFacts) -> list[Slot]:
    until = time.monotonic() + RELEASE_SECONDS
    while True:
        wanted = {"job": request.attempt.job_id, "gpus": count, "each": request.spec.gpus}
        wanted["priority"] = request.spec.priority
        found = host.call("inventory", leases_folder=site.leases, home=request.attempt.home, wanted=wanted)
        slots = [Slot(**slot) for slot in found["slots"]]
        turn = HostTurn(**found["turn"]) if "turn" in found else None
        try:
            return choose(slots, count, request, site, found["driver"], turn)
        except (SlotsBusy, LaunchRefused):
            if not any(map(_may_change_at_once, slots)) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)


def _may_change_at_once(slot: Slot) -> bool:
    """Whether a slot is worth a second look: an agent lets go of it, or the driver stumbled over this one question."""
    return bool(slot.holder_job) or not slot.memory_bytes


def choose(
    slots: Sequence[Slot],
    count: int,
    request: LaunchRequest,
    site: HostFacts,
    driver: str = "",
    turn: HostTurn | None = None,
) -> list[Slot]:
    """Choose free slots, those of the requested type first.

    Raises:
        SlotsBusy: not enough are free, or others come first; the message names the holders, or who is ahead.
        LaunchRefused: the host does not have so many.
    """
    usable = [slot for slot in slots if slot.memory_bytes]
    if request.spec.gpus > 1:
        usable = [slot for slot in usable if not is_slice(slot)]
    if count > len(usable):
        _refuse(usable, slots, count, request, site, driver)
    free = [slot for slot in usable if slot.free]
    if count > len(free):
        busy = ", ".join(_whose(slot) for slot in slots if not slot.free)
        alone = f"waits for {count} of {_count(len(usable))}: {busy}"
        raise SlotsBusy(
            alone if turn is None or (turn.of == 1 and not turn.limit) else f"{turn.reason(count)}: {busy}"
        )
    if turn is not None and not turn.start:
        raise SlotsBusy(turn.reason(count))
    gpu_type = request.spec.gpu_type
    return sorted(free, key=lambda slot: (not is_of_type(slot.model, gpu_type), slot.index))[:count]


def is_of_type(model: str, gpu_type: str) -> bool:
    """Return whether a GPU model is of the manifest's ``gpu_type``: ``Tesla V100-SXM2`` of ``nvidia-TeslaV100``."""
    plain = _plain(gpu_type)
    return not plain or plain in _plain(model)


def is_slice(slot: Slot) -> bool:
    """Return whether a slot is a slice of a divided GPU (MIG): a process computes on one of them at most."""
    return slot.uuid.startswith("MIG-")


def lease_text(request: LaunchRequest, pid: int) -> str:
    """Return the text of a lease, which tells others who holds it."""
    attempt = request.attempt
    document = {
        "owner": request.owner,
        "job": attempt.job_id,
        "attempt": attempt.attempt,
        "home": attempt.home,
        "pid": pid,
    }
    return json.dumps(document)


def _refuse(
    usable: Sequence[Slot],
    slots: Sequence[Slot],
    count: int,
    request: LaunchRequest,
    site: HostFacts,
    driver: str,
) -> None:
    spec = request.spec
    each = f" ({spec.learners} learners with {spec.gpus} each)" if spec.learners > 1 else ""
    broken = "; ".join(_whose(slot) for slot in slots if not slot.memory_bytes)
    slices = sum(is_slice(slot) for slot in slots) if spec.gpus > 1 else 0
    parts = f"{slices} slices (MIG), and a process can use no more than one" if slices else ""
    why = broken or parts or (driver.removeprefix("none: ") if driver.startswith("none: ") else "")
    has = f"{site.name} has {_count(len(usable)) if usable else 'none'}" + (f": {why}" if why else "")
    raise LaunchRefused(
        f"The job asks for {_count(count)}{each}; {has}.",
        hint="Ask for fewer with --gpus, or run it on another backend with --backend.",
        code="C104",
    )


def _whose(slot: Slot) -> str:
    if slot.holder:
        if not slot.holder_job:  # a lock without a text: a user and a process, as the kernel names them
            return f"GPU {slot.index} is held by {slot.holder}"
        return f"GPU {slot.index} is held by {slot.holder_person}'s job {slot.holder_job}"
    if not slot.memory_bytes:
        return f"GPU {slot.index} cannot be used: {slot.foreign}"
    return f"GPU {slot.index} computes {slot.foreign}"


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower()).replace("nvidia", "")


def _count(number: int) -> str:
    return f"{number} GPU" + ("" if number == 1 else "s")


PORTS: Final = range(29500, 30500)
"""Below the range from which the kernel assigns ports."""

_TRIES: Final = 20


def choose_port(host: Host, site: HostFacts, text: str, held: list[Lock]) -> int:
    """Choose a free port; its lease is added to ``held``, unless the folder of leases cannot be used.

    Raises:
        RunnerError: no port that was tried is free.
    """
    # Jobs that start at the same time try different ports first.
    first = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    candidates = [PORTS[(first + step) % len(PORTS)] for step in range(_TRIES)]
    free: list[int] = host.call("bindable", ports=candidates)
    for port in free:
        try:
            lock = host.lock([f"port-{port}"], folder=site.leases, text=text)
        except (NotAllowed, TryAgain):
            return port
        if lock is not None:
            held.append(lock)
            return port
    raise RunnerError(f"No port for MASTER_PORT is free among {_TRIES} from {PORTS.start} on.")
