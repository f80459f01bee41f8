"""Leases GPUs for all learners of an attempt or for none; messages name the holders of the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backends.contract.host import Host, Lock, Slot
from runners.interface import HostTurn, LaunchRequest, reason_for_busy
from runners.shared.host_facts import HostFacts
from runners.shared.launch_document import preemption_facts
from workbench.clock import now_us
from workbench.errors import LaunchRefused, NotAllowed, RunnerError, SlotsBusy, TryAgain
from workbench.learner.queue import allocation
from workbench.learner.queue.entries import group_mark, marks_text, shared_name
from workbench.spec import SWEEP_LABEL
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
    """Lease the slots of these learners; a job that is at this host alone leaves its queue.

    Raises:
        SlotsBusy: not enough are free; none is held then.
        LaunchRefused: the host does not have so many.
    """
    each = request.spec.gpus
    if not each:
        return Leased(None, dict.fromkeys(learners, ()))
    for _ in range(TRIES):
        uuids = _choose_patiently(each * len(learners), request, host, site)
        if lock := host.lock(uuids, folder=site.leases, text=lease_text(request, site, 0)):
            if not request.attempt.part:
                leave_line(request, host, site)
            return Leased(lock, allocation.shares(uuids, learners, each))
    raise SlotsBusy("waits for GPUs: other jobs took them first")


def refuse_too_few(request: LaunchRequest, learners: Sequence[int], host: Host, site: HostFacts) -> None:
    """Refuse a job that needs more GPUs for these learners than the host has; nothing is leased.

    Raises:
        LaunchRefused: it does.
    """
    count = request.spec.gpus * len(learners)
    until = time.monotonic() + RELEASE_SECONDS
    while count:
        found = host.call("inventory", leases_folder=site.leases)
        try:
            _check_enough(found["slots"], count, request, site, found["driver"])
        except LaunchRefused:
            # The driver may have stumbled over this one question, as for who leases.
            if all(slot["memory_bytes"] for slot in found["slots"]) or time.monotonic() > until:
                raise
        else:
            return
        time.sleep(_PAUSE_SECONDS)


def leave_line(request: LaunchRequest, host: Host, site: HostFacts) -> None:
    """Leave the host's queue: the job has what it waited for."""
    if request.spec.gpus:
        attempt = request.attempt
        host.call("leave_line", home=attempt.home, job=attempt.job_id, leases_folder=site.leases)


def _choose_patiently(count: int, request: LaunchRequest, host: Host, site: HostFacts) -> list[str]:
    until = time.monotonic() + RELEASE_SECONDS
    while True:
        wanted = {"job": request.attempt.job_id, "gpus": count, "each": request.spec.gpus}
        wanted["priority"] = request.spec.priority
        wanted["labels"] = marks_text(request.spec.labels)
        wanted |= {"weight": request.spec.weight, allocation.GROUP: _group(request)}
        found = host.call("inventory", leases_folder=site.leases, home=request.attempt.home, wanted=wanted)
        turn = HostTurn.from_host(found["turn"], host.clock_ahead_us()) if "turn" in found else None
        try:
            return choose(found["slots"], count, request, site, found["driver"], turn)
        except (SlotsBusy, LaunchRefused):
            if not any(map(_may_change_at_once, found["slots"])) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS)


def _may_change_at_once(slot: Mapping[str, Any]) -> bool:
    """Whether a slot is worth a second look: an agent lets go of it, or the driver stumbled over this one question."""
    return bool(slot.get("holder_job")) or not slot["memory_bytes"]


def choose(
    slots: Sequence[Mapping[str, Any]],
    count: int,
    request: LaunchRequest,
    site: HostFacts,
    driver: str = "",
    turn: HostTurn | None = None,
) -> list[str]:
    """Choose free slots of a host's inventory by their uuids, those of the requested type first.

    Raises:
        SlotsBusy: not enough are free, or others come first; the message names the holders, or who is ahead.
        LaunchRefused: the host does not have so many.
    """
    spec = request.spec
    usable = _check_enough(slots, count, request, site, driver)
    chosen = allocation.choose_gpus(slots, count, spec.gpus, spec.gpu_type)
    if chosen is None:
        busy = ", ".join(_whose(Slot(**slot)) for slot in slots if not allocation.is_free(slot))
        alone = f"waits for {count} of {_count(usable)}"
        raise SlotsBusy(reason_for_busy(turn, count, alone, busy, now_us()))
    if turn is not None and not turn.start:
        raise SlotsBusy(turn.reason(count, now_us=now_us()))
    return chosen


def _check_enough(
    slots: Sequence[Mapping[str, Any]], count: int, request: LaunchRequest, site: HostFacts, driver: str
) -> int:
    usable = len(allocation.usable_gpus(slots, request.spec.gpus))
    if count > usable:
        _refuse(usable, [Slot(**slot) for slot in slots], count, request, site, driver)
    return usable


def lease_text(request: LaunchRequest, site: HostFacts, pid: int) -> str:
    """Return the text of a lease, which tells others who holds it."""
    return allocation.lease_text(lease_holder(request, site), pid)


def lease_holder(request: LaunchRequest, site: HostFacts) -> dict[str, Any]:
    """Return who holds a lease that is taken for a request."""
    attempt, longest, group = request.attempt, request.spec.longest_seconds, _group(request)
    return {
        "owner": request.owner,
        "job": attempt.job_id,
        "attempt": attempt.attempt,
        "home": attempt.home,
        **({} if longest is None else {allocation.MAX_RUNTIME: longest}),
        **({allocation.LABELS: marks_text(request.spec.labels)} if request.spec.labels else {}),
        **({allocation.GROUP: group} if group else {}),
        **({allocation.NAME: shared_name(request.spec.name)} if site.share_names else {}),
        **preemption_facts(request, site),
    }


def _group(request: LaunchRequest) -> str:
    return group_mark(request.spec.labels.get(SWEEP_LABEL, ""))


def _refuse(
    usable: int,
    slots: Sequence[Slot],
    count: int,
    request: LaunchRequest,
    site: HostFacts,
    driver: str,
) -> None:
    spec = request.spec
    learners = len(request.attempt.numbers)
    each = f" ({learners} learners with {spec.gpus} each)" if learners > 1 else ""
    broken = "; ".join(_whose(slot) for slot in slots if not slot.memory_bytes)
    slices = sum(allocation.is_slice(slot.uuid) for slot in slots) if spec.gpus > 1 else 0
    parts = f"{slices} slices (MIG), and a process can use no more than one" if slices else ""
    why = broken or parts or (driver.removeprefix("none: ") if driver.startswith("none: ") else "")
    has = f"{site.name} has {_count(usable) if usable else 'none'}" + (f": {why}" if why else "")
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


def _count(number: int) -> str:
    return f"{number} GPU" + ("" if number == 1 else "s")


def choose_port(host: Host, site: HostFacts, text: str, held: list[Lock], wanted: int | None = None) -> int:
    """Choose a free port; its lease is added to ``held``, unless the folder of leases cannot be used.

    Args:
        host: the host.
        site: what is known of it.
        text: the lease's.
        held: gets it.
        wanted: the only port to try.

    Raises:
        RunnerError: no port that was tried is free.
    """
    candidates = allocation.candidate_ports(text) if wanted is None else [wanted]
    free: list[int] = host.call("bindable", ports=candidates)
    for port in free:
        try:
            lock = host.lock([allocation.port_lease(port)], folder=site.leases, text=text)
        except (NotAllowed, TryAgain):
            return port
        if lock is not None:
            held.append(lock)
            return port
    if wanted is not None:
        raise RunnerError(f"The port {wanted}, which is its MASTER_PORT, is taken.")
    raise RunnerError(
        f"No port for MASTER_PORT is free among {allocation.PORT_TRIES} from {allocation.PORTS.start} on."
    )
