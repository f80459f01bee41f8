"""The page of backends: their health, their machines and GPUs, and who uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from textual.content import Content

from backends.contract.host import Finding, Node, Slot
from screens.backends.watch import BackendStatus
from screens.style.glyphs import glyphs
from screens.widgets.markup import bar, flow, heading, page, plain
from workbench import formats
from workbench.job import short_id

HISTORY: Final = 60
"""So many samples of a machine or GPU are kept for its curve."""
STALE_SECONDS: Final = 8.0
VERSIONS: Final = ("system", "version", "python", "engine", "cluster")
"""Findings of a probe that say which version of what a backend runs."""
CURVE_CELLS: Final = 20
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_HEIGHTS_ASCII: Final = "_.-=*%#@"


@dataclass(slots=True)
class BackendState:
    """What is known of a backend: its last answer, the last good one, and how its GPUs went."""

    name: str
    type: str
    last: BackendStatus | None = None
    good: BackendStatus | None = None
    histories: dict[str, list[float]] = field(default_factory=dict)

    def take(self, status: BackendStatus) -> None:
        """Take an answer."""
        self.last = status
        if status.inventory is None:
            return
        known_before = self.good is not None and self.good.inventory is status.inventory
        self.good = status
        if known_before:
            return  # only what the backend lacks is new
        for node in status.inventory.nodes:
            self._keep(node.name, node.cpu_percent)
            for slot in node.slots:
                self._keep(slot.uuid, slot.utilization_percent)

    def _keep(self, name: str, percent: float | None) -> None:
        history = self.histories.setdefault(name, [])
        history.append(percent or 0.0)
        del history[:-HISTORY]


def backends_page(states: Sequence[BackendState], now_us: int, width: int) -> Content:
    """Return the page."""
    return page(*[_place(state, now_us, width) for state in states])


def _place(state: BackendState, now_us: int, width: int) -> list[Content]:
    lines = [heading(f"{state.name} ") + plain(f"({state.type})  ", "dim") + _health(state, now_us)]
    if state.last is not None and state.last.hint and state.last.trouble:
        lines.append(plain(f"  {state.last.hint}", "dim"))
    if state.good is None or state.good.inventory is None:
        return lines
    if versions := [formats.printable(found.found) for found in state.good.findings if _is_version(found)]:
        lines.append(plain("  " + f" {glyphs().dot} ".join(versions), "dim"))
    stale = (now_us - state.good.seen_us) / 1e6 > STALE_SECONDS
    for node in state.good.inventory.nodes:
        shown = _node(node, state.histories, width)
        lines += [Content.styled(line.plain, "$role-dim") for line in shown] if stale else shown
    return [*lines, *[_finding(found) for found in state.good.findings if found.level != "ok"]]


def _is_version(found: Finding) -> bool:
    return found.level == "ok" and found.subject in VERSIONS


def _health(state: BackendState, now_us: int) -> Content:
    last = state.last
    if last is None:
        return plain("connecting", "dim")
    age = formats.duration((now_us - last.seen_us) / 1e6)
    if last.trouble:
        line = f"does not answer: {last.trouble}"
        if state.good is not None:
            line += f" {glyphs().dot} last seen {formats.duration((now_us - state.good.seen_us) / 1e6)} ago"
        return plain(line, "error")
    if (now_us - last.seen_us) / 1e6 > STALE_SECONDS:
        return plain(f"no answer for {age}", "warning")
    return plain(f"answers in {_latency(last.latency_seconds)}", "completed")


def _latency(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _node(node: Node, histories: Mapping[str, Sequence[float]], width: int) -> list[Content]:
    facts = [f"{node.cpus} CPU" if node.cpus == 1 else f"{node.cpus} CPUs"]
    if node.cpu_percent is not None:
        facts[0] += f" {bar(node.cpu_percent / 100, 8)} {node.cpu_percent:.0f} %"
    memory = f"memory {formats.size(node.memory_bytes)}"
    if node.memory_used_bytes is not None:
        used = bar(node.memory_used_bytes / max(1, node.memory_bytes), 8)
        memory += f" {used} {formats.size(node.memory_used_bytes)} used"
    facts.append(memory)
    if node.disk_free_bytes is not None:
        facts.append(f"disk {formats.size(node.disk_free_bytes)} free")
    curve = plain(sparkline(histories.get(node.name, ()), CURVE_CELLS), "key")
    parts = [plain(node.name), *(plain(fact) for fact in facts), curve]
    lines = flow(parts, f" {glyphs().dot} ", width, "  ", "    ")
    if node.driver and node.slots:
        lines.append(plain(f"    {node.driver}", "dim"))
    return lines + [line for slot in node.slots for line in _slot(slot, histories.get(slot.uuid, ()), width)]


def _slot(slot: Slot, history: Sequence[float], width: int) -> list[Content]:
    used = (
        ""
        if slot.utilization_percent is None
        else f"{bar(slot.utilization_percent / 100, 8)} {slot.utilization_percent:3.0f} %"
    )
    memory = formats.size(slot.memory_bytes)
    if slot.memory_used_bytes is not None:
        memory = f"{formats.size(slot.memory_used_bytes)} of {memory}"
    facts = [f"GPU {slot.index} {slot.model}", used, memory]
    if slot.temperature_celsius is not None:
        facts.append(
            f"{slot.temperature_celsius:.0f} °C" if glyphs().unicode else f"{slot.temperature_celsius:.0f} C"
        )
    if slot.power_watts is not None:
        cap = f"/{slot.power_limit_watts:.0f}" if slot.power_limit_watts else ""
        facts.append(f"{slot.power_watts:.0f}{cap} W")
    curve = plain(sparkline(history, CURVE_CELLS), "key")
    parts = [*(plain(fact) for fact in facts if fact), curve + plain("  ") + _holder(slot)]
    return flow(parts, "  ", width, "    ", "      ")


def _holder(slot: Slot) -> Content:
    if slot.holder_job:
        return plain(f"{slot.holder or 'job'} {short_id(slot.holder_job)}", "processing")
    if slot.foreign:
        return plain(f"other process: {slot.foreign}", "warning")
    return plain(slot.holder, "processing") if slot.holder else plain("free", "completed")


def _finding(found: Finding) -> Content:
    line = f"  {found.subject}: {found.found}"
    if found.consequence:
        line += f" {glyphs().dot} {found.consequence}"
    if found.remedy:
        line += f" {glyphs().dot} {found.remedy}"
    return plain(line, "error" if found.level == "wrong" else "dim")


def sparkline(history: Sequence[float], width: int) -> str:
    """Return percentages as a curve of one line, the newest to the right."""
    heights = _HEIGHTS if glyphs().unicode else _HEIGHTS_ASCII
    shown = history[-width:]
    return "".join(heights[min(7, max(0, int(value / 12.5)))] for value in shown).rjust(width)
