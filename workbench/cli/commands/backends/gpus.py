"""``fabric gpus``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, KubeContext, Namespace
from workbench.clock import now_us
from workbench.formats import clock_time, percent, size
from workbench.job import short_id
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from backends.contract.host import Inventory, Slot
    from workbench.services.backends.watch import BackendStatus

All = Annotated[bool, typer.Option("--all", "-a", help="All backends in the configuration.")]


@command("gpus", "fabric gpus", "fabric gpus --backend gpubox", "fabric gpus --json")
def gpus(
    backend: Backend = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    all: All = False,
    json: Json = False,
) -> int:
    """Show GPUs, their use, who holds them and since when.

    The use of a held GPU is "idle" where nothing uses it at this moment: its use is 0%, and no process computes on it.
    """
    from workbench.services.backends.inventory import inventories
    from workbench.services.backends.placement import backend_options, known_backends
    from workbench.services.open_store import attend_open_jobs

    attend_open_jobs()
    if all:
        backends = [backend_options(name) for name in known_backends()]
    else:
        backends = [backend_options(backend, context=kube_context, namespace=namespace)]
    found: list[BackendStatus] = []
    for each in inventories(backends):
        if each.error is None:
            found.append(each)
        elif len(backends) == 1:
            raise each.error
        else:
            narrate(f"{each.name}: {each.error}")
    if json:
        from workbench.terminal.json_output import print_document

        print_document([each.document() for each in found])
    else:
        _print_table({each.name: each.inventory for each in found if each.inventory is not None})
    return 0


def _print_table(found: dict[str, Inventory]) -> None:
    from workbench.terminal.table import Column, render

    rows = [
        [name, node.name, str(slot.index), slot.model, *_use(slot), _holder(slot), _since(slot), slot.uuid]
        for name, inventory in found.items()
        for node in inventory.nodes
        for slot in node.slots
    ]
    if rows:
        columns = [
            Column("BACKEND"),
            Column("NODE", stretch=True),
            Column("GPU", right=True),
            Column("MODEL", stretch=True, drop=1),
            Column("MEMORY", right=True),
            Column("USE", right=True),
            Column("HELD BY", stretch=True),
            Column("SINCE"),
            Column("UUID", stretch=True, drop=2),
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
    use = "?" if slot.utilization_percent is None else percent(slot.utilization_percent / 100)
    if slot.idle:
        use = "idle"  # in place of 0%: HELD BY is cut where the terminal is narrow
    most = size(slot.memory_bytes) if slot.memory_bytes else "?"
    return f"{used} of {most}" if (used, most) != ("?", "?") else "?", use


def _since(slot: Slot) -> str:
    return "" if slot.held_since_us is None else clock_time(slot.held_since_us, now_us=now_us())


def _holder(slot: Slot) -> str:
    if slot.holder_job:
        return f"{slot.holder} {short_id(slot.holder_job)} {slot.holder_name}".rstrip()
    return slot.holder or slot.foreign or "free"
