"""Lists the GPUs of backends, with their use and their holders."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import FabricError

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Inventory


@dataclass(frozen=True, slots=True)
class BackendInventory:
    """What a backend answered: its inventory, or why there is none."""

    backend: str
    inventory: Inventory | None
    error: FabricError | None = None

    def document(self) -> dict[str, Any]:
        """Return the inventory as ``--json`` gives it, schema ``fabric.inventory/1``."""
        from dataclasses import asdict

        from workbench.formats import iso

        assert self.inventory is not None
        nodes = [
            {**asdict(node), "slots": [{**asdict(slot), "free": slot.free} for slot in node.slots]}
            for node in self.inventory.nodes
        ]
        return {
            "schema": "fabric.inventory/1",
            "backend": self.backend,
            "time": iso(self.inventory.time_us),
            "nodes": nodes,
            "note": self.inventory.note,
        }


def inventories(
    backends: Sequence[BackendOptions], *, cancel: threading.Event | None = None
) -> Iterator[BackendInventory]:
    """Ask backends one after the other, until ``cancel`` is set; one that fails does not end it."""
    from workbench.services.backends.placement import open_backend

    for options in backends:
        if cancel is not None and cancel.is_set():
            return
        try:
            yield BackendInventory(options.name, open_backend(options).inventory())
        except FabricError as error:
            yield BackendInventory(options.name, None, error)
