"""Opens targets by the registries of backends and runners: each loads when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path
from typing import Any, Protocol

from backends.contract.host import BackendOptions, Host, Inventory, Slot
from runners.interface import HostTurn, Runner
from workbench.clock import now_us
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduler import Capacity, LinedUpJob
from workbench.controller.runtime.connections import SHARED
from workbench.paths import Home
from workbench.store.db.rows import TargetRef
from workbench.values import dataclass


class OpenedTarget(Protocol):
    """A target that was reached."""

    @property
    def lost(self) -> bool:
        """Whether the connection is gone for good, and the target has to be opened again."""

    def runner(self) -> Runner:
        """Make a runner; each thread has its own."""

    def measure(self, target: str, line: LineUp | None = None) -> CapacityMeasured:
        """Return the capacity of the target with this key, and whose turn it is of those that line up there."""

    def in_use(self) -> str:
        """Describe what runs there, of any user; empty when nothing does."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(frozen=True, slots=True)
class LineUp:
    """The jobs of this home that are to wait in a host's queue."""

    waiting: tuple[LinedUpJob, ...]
    keep: tuple[str, ...] = ()
    """Jobs that are being launched: their entries stay until they have their GPUs."""
    handed_over: tuple[LinedUpJob, ...] = ()
    """Jobs that the host starts, with the position that each has now."""
    known: frozenset[LinedUpJob] = frozenset()
    """What the host was sent before of those, by the same connection: it is not sent again."""


Opener = Callable[[TargetRef, str], OpenedTarget]
"""Opens a target for the home with this uuid; raises a ``FabricError``."""


class SentEntries:
    """What one connection has sent a host of the jobs that were handed over: the rest alone is sent again."""

    def __init__(self) -> None:
        self._sent: dict[LinedUpJob, LinedUpJob] = {}
        """By the controller's entry: that of its host, by whose clock its times are."""

    @contextmanager
    def what_is_new(
        self, line: LineUp, entries: Sequence[LinedUpJob]
    ) -> Iterator[tuple[list[LinedUpJob], list[str]]]:
        """Yield which of a line's entries, as they are for the host, are to be sent, and the jobs of the others.

        Should the block fail nobody knows what the host took, and all is sent again.
        """
        before, self._sent = self._sent, {}
        pairs = list(zip(line.handed_over, entries, strict=True))
        known = [one in line.known and before.get(one) == entry for one, entry in pairs]
        changed = [entry for entry, is_known in zip(entries, known, strict=True) if not is_known]
        yield changed, [entry.job for entry in compress(entries, known)]
        self._sent = dict(pairs)


class RegistryTarget:
    """A target of the installed backends and runners."""

    def __init__(self, ref: TargetRef, home_uuid: str) -> None:
        from backends.registry import load_backend
        from runners.registry import load_runner

        self._kind = load_runner(ref.runner)
        self._backend = load_backend(BackendOptions(ref.backend, ref.type, ref.address, ref.options))
        self._shared = SHARED.open(ref, self._backend)
        self._opened = self._shared.opened
        self._sent = SentEntries()
        self._home_uuid = home_uuid

    @property
    def lost(self) -> bool:
        """Whether the connection to the backend is gone."""
        return isinstance(self._opened, Host) and self._opened.lost

    def runner(self) -> Runner:
        """Make a runner on this connection."""
        return self._kind(self._opened, home_uuid=self._home_uuid)

    def measure(self, target: str, line: LineUp | None = None) -> CapacityMeasured:
        """Return the target's capacity; a cluster has a queue of its own."""
        if self._kind.capabilities.needs == "cluster":
            return CapacityMeasured(target, None, 0, "")
        if line is not None and isinstance(self._opened, Host):
            return self._line_up(target, line, self._opened)
        return measured(target, self._backend.inventory_of(self._opened))

    def _line_up(self, target: str, line: LineUp, host: Host) -> CapacityMeasured:
        home = Home(Path(host.folder(self._home_uuid))) if line.handed_over else None
        handed_over = [_by_clock_of(host, entry) for entry in line.handed_over]
        begun_us = now_us()
        with self._sent.what_is_new(line, handed_over) as (changed, unchanged):
            found = host.call(
                "line_up",
                home=self._home_uuid,
                waiting=[host_entry(entry) for entry in line.waiting],
                keep=list(line.keep),
                handed_over=[host_entry(entry, home) for entry in changed],
                unchanged=unchanged,
            )
        machine, missed = found["machine"], found["missed"]
        host.compare_clock(int(machine["time_us"]), begun_us)
        ahead_us = host.clock_ahead_us()
        turns = {job: HostTurn.from_host(turn, ahead_us) for job, turn in found["turns"].items()}
        slots = [Slot(**slot) for slot in machine["slots"]]
        return replace(
            _sum(target, machine["cpus"], slots),
            turns=turns,
            lined_up=frozenset(one for one in (*line.waiting, *line.handed_over) if one.job not in missed),
            heeds_weights=found["heeds_weights"],
        )

    def in_use(self) -> str:
        """Describe what runs there: learners of all homes, and who holds slots or computes on them."""
        if not isinstance(self._opened, Host):
            return "it is a cluster"
        if learners := self._opened.call("markers"):
            return "a learner runs there" if len(learners) == 1 else f"{len(learners)} learners run there"
        return measured("", self._backend.inventory_of(self._opened)).holders

    def close(self) -> None:
        """Release the connection; the last user closes it."""
        SHARED.close(self._shared)


def _by_clock_of(host: Host, entry: LinedUpJob) -> LinedUpJob:
    return entry if entry.gates is None else replace(entry, gates=entry.gates.at(host))


def host_entry(entry: LinedUpJob, home: Home | None = None) -> dict[str, Any]:
    """Return a job as its host's queue has it; with a home also its attempt and gates, for who starts it there."""
    facts = {name: value for name, value in asdict(entry).items() if name not in ("gates", "attempt")}
    if home is None:
        return facts
    gates = {} if entry.gates is None else entry.gates.to_json(home)
    return {**facts, "attempt": entry.attempt, **gates}


def measured(target: str, inventory: Inventory) -> CapacityMeasured:
    """Sum up an inventory as the capacity of the target with this key."""
    slots = [slot for node in inventory.nodes for slot in node.slots]
    return _sum(target, sum(node.cpus for node in inventory.nodes), slots)


def _taker(slot: Slot) -> str:
    return f"{slot.holder} ({slot.holder_job})" if slot.holder_job else slot.holder or slot.foreign


def _sum(target: str, cpus: float, slots: Sequence[Slot]) -> CapacityMeasured:
    holders = ", ".join(f"GPU {slot.index} by {_taker(slot)}" for slot in slots if not slot.free)
    return CapacityMeasured(
        target, Capacity(cpus, len(slots)), sum(1 for slot in slots if slot.free), holders
    )
