"""Opens the place of a job by the registries of backends and runners: a place loads when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from backends.contract.host import BackendOptions, Host, Inventory
from runners.interface import Runner
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduling import Capacity
from workbench.controller.runtime.connections import SHARED
from workbench.store.db.rows import TargetRef


class OpenedTarget(Protocol):
    """A place that was reached."""

    @property
    def lost(self) -> bool:
        """Whether the way there is gone for good, and it has to be opened anew."""

    def runner(self) -> Runner:
        """Make a runner; each thread has its own."""

    def measure(self, place: str) -> CapacityMeasured:
        """Say what the place has."""

    def in_use(self) -> str:
        """Say in words what runs there, of anybody's; empty when nothing does."""

    def close(self) -> None:
        """Give it back."""


Opener = Callable[[TargetRef, str], OpenedTarget]
"""Reaches a place for the home with this uuid; raises errors of ours."""


class RegistryTarget:
    """A place as the installed backends and runners have it."""

    def __init__(self, ref: TargetRef, home_uuid: str) -> None:
        from backends.registry import load_backend
        from runners.registry import load_runner

        self._kind = load_runner(ref.runner)
        self._backend = load_backend(BackendOptions(ref.backend, ref.type, ref.address, ref.options))
        self._shared = SHARED.open(ref, self._backend)
        self._place = self._shared.place
        self._home_uuid = home_uuid

    @property
    def lost(self) -> bool:
        """Whether the connection to the place is gone."""
        return isinstance(self._place, Host) and self._place.lost

    def runner(self) -> Runner:
        """Make a runner at the place."""
        return self._kind(self._place, home_uuid=self._home_uuid)

    def measure(self, place: str) -> CapacityMeasured:
        """Say what the place has; a cluster queues by itself."""
        if self._kind.capabilities.needs == "cluster":
            return CapacityMeasured(place, None, 0, "")
        return measured(place, self._backend.inventory_of(self._place))

    def in_use(self) -> str:
        """Say in words what runs there: learners of all homes, and who holds slots or computes on them."""
        if not isinstance(self._place, Host):
            return "it is a cluster"
        if learners := self._place.call("markers"):
            return "a learner runs there" if len(learners) == 1 else f"{len(learners)} learners run there"
        return measured("", self._backend.inventory_of(self._place)).holders

    def close(self) -> None:
        """Give the place back; it is left when nobody else uses it."""
        SHARED.close(self._shared)


def measured(place: str, inventory: Inventory) -> CapacityMeasured:
    """Sum up what a place has."""
    slots = [slot for node in inventory.nodes for slot in node.slots]
    cpus = sum(node.cpus for node in inventory.nodes)
    taken = [f"GPU {slot.index} by {slot.holder or slot.foreign}" for slot in slots if not slot.free]
    holders = ", ".join(taken)
    return CapacityMeasured(place, Capacity(cpus, len(slots)), sum(1 for slot in slots if slot.free), holders)
