"""``fabric gpus``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, KubeContext, Namespace
from workbench.errors import FabricError
from workbench.formats import size
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from backends.contract.host import Inventory, Slot

All = Annotated[bool, typer.Option("--all", "-a", help="Of every place that the configuration names.")]


@command("gpus", "fabric gpus", "fabric gpus --backend gpubox", "fabric gpus --json")
def gpus(
    backend: Backend = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    all: All = False,
    json: Json = False,
) -> int:
    """Show GPUs, their use and who holds them."""
    from workbench.services.backends.placement import backend_options, known_backends, open_backend

    if all:
        places = [backend_options(name) for name in known_backends()]
    else:
        places = [backend_options(backend, context=kube_context, namespace=namespace)]
    found: dict[str, Inventory] = {}
    for place in places:
        try:
            found[place.name] = open_backend(place).inventory()
        except FabricError as error:
            if len(places) == 1:
                raise
            narrate(f"{place.name}: {error}")
    if json:
        from workbench.terminal.json_output import print_document

        print_document([_document(name, inventory) for name, inventory in found.items()])
    else:
        _print_table(found)
    return 0


def _document(name: str, inventory: Inventory) -> dict[str, Any]:
    from dataclasses import asdict

    from workbench.formats import iso

    nodes = [
        {**asdict(node), "slots": [{**asdict(slot), "free": slot.free} for slot in node.slots]}
        for node in inventory.nodes
    ]
    return {
        "schema": "fabric.inventory/1",
        "backend": name,
        "time": iso(inventory.time_us),
        "nodes": nodes,
        "note": inventory.note,
    }


def _print_table(found: dict[str, Inventory]) -> None:
    from workbench.terminal.table import Column, render

    rows = [
        [name, node.name, str(slot.index), slot.model, *_use(slot), _holder(slot), slot.uuid]
        for name, inventory in found.items()
        for node in inventory.nodes
        for slot in node.slots
    ]
    if rows:
        columns = [
            Column("PLACE"),
            Column("NODE", stretch=True),
            Column("GPU", right=True),
            Column("MODEL", stretch=True),
            Column("MEMORY", right=True),
            Column("USE", right=True),
            Column("HELD BY", stretch=True),
            Column("UUID", stretch=True),
        ]
        sys.stdout.write(render(columns, rows, width=width(140)))
    for name, inventory in found.items():
        if inventory.note:
            narrate(f"{name}: {inventory.note}")
        for node in inventory.nodes:
            if not node.slots:
                narrate(f"{name}: {node.name} has no GPU{f' ({node.driver})' if node.driver else ''}")


def _use(slot: Slot) -> tuple[str, str]:
    used = "?" if slot.memory_used_bytes is None else size(slot.memory_used_bytes)
    percent = "?" if slot.utilization_percent is None else f"{slot.utilization_percent:.0f} %"
    most = size(slot.memory_bytes) if slot.memory_bytes else "?"
    return f"{used} of {most}" if (used, most) != ("?", "?") else "?", percent


def _holder(slot: Slot) -> str:
    return slot.holder or slot.foreign or "free"
