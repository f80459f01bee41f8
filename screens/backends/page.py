"""The page of backends: their health, their machines and GPUs, and who uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from textual.content import Content

from backends.contract.host import Finding, Node, Slot
from screens.style import text
from screens.style.glyphs import glyphs
from screens.widgets.markup import bar, flow, heading, page, plain
from screens.widgets.sparkline import sparkline
from workbench import formats
from workbench.job import short_id
from workbench.services.backends.watch import BackendStatus
from workbench.values import dataclass

HISTORY: Final = 60
"""So many samples of a machine or GPU are kept for its curve."""
STALE_SECONDS: Final = 8.0
VERSIONS: Final = {"system": "", "version": "", "python": "Python ", "engine": "engine ", "cluster": ""}
"""Findings of a probe that say which version of what a backend runs, and what stands before each."""
CURVE_CELLS: Final = 20
CURVE_LEAST_CELLS: Final = 6
WAITED_SECONDS: Final = 2.0
"""A question whose answer takes longer is shown as waited for."""


@dataclass(slots=True)
class BackendState:
    """What is known of a backend: its last answer, the last good one, and how its GPUs went."""

    name: str
    type: str
    last: BackendStatus | None = None
    good: BackendStatus | None = None
    asked_us: int = 0
    """When it was last asked."""
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
    versions = [
        VERSIONS[found.subject] + formats.printable(found.found)
        for found in state.good.findings
        if _is_version(found)
    ]
    if versions:
        lines.append(plain("  " + f" {glyphs().dot} ".join(versions), "dim"))
    stale = (now_us - state.good.seen_us) / 1e6 > STALE_SECONDS
    for node in state.good.inventory.nodes:
        shown = _node(node, state.histories, now_us, width)
        lines += [Content.styled(line.plain, "$role-dim") for line in shown] if stale else shown
    return [*lines, *[_finding(found) for found in state.good.findings if found.level != "ok"]]


def _is_version(found: Finding) -> bool:
    return found.level == "ok" and found.subject in VERSIONS


def _health(state: BackendState, now_us: int) -> Content:
    last = state.last
    if last is None:
        return plain("connecting", "dim")
    age = formats.duration((now_us - last.seen_us) / 1e6)
    waited = (now_us - state.asked_us) / 1e6 if state.asked_us > last.seen_us else 0.0
    if last.trouble:
        line = f"does not answer: {last.trouble}"
        if state.good is not None:
            line += f" {glyphs().dot} last seen {formats.duration((now_us - state.good.seen_us) / 1e6)} ago"
        return plain(line, "error")
    if waited > WAITED_SECONDS:
        before = f"answered in {_latency(last.latency_seconds)} {age} ago"
        return plain(f"{before} {glyphs().dot} no answer for {formats.duration(waited)}", "warning")
    if (now_us - last.seen_us) / 1e6 > STALE_SECONDS:
        return plain(f"no answer for {age}", "warning")
    return plain(f"answers in {_latency(last.latency_seconds)}", "completed")


def _latency(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _node(node: Node, histories: Mapping[str, Sequence[float]], now_us: int, width: int) -> list[Content]:
    facts = [f"{node.cpus} CPU" if node.cpus == 1 else f"{node.cpus} CPUs"]
    if node.cpu_percent is not None:
        facts[0] += f" {bar(node.cpu_percent / 100, 8)} {formats.percent(node.cpu_percent / 100)}"
    memory = f"memory {formats.size(node.memory_bytes)}"
    if node.memory_used_bytes is not None:
        used = bar(node.memory_used_bytes / max(1, node.memory_bytes), 8)
        memory += f" {used} {formats.size(node.memory_used_bytes)} used"
    facts.append(memory)
    if node.disk_free_bytes is not None:
        facts.append(f"disk {formats.size(node.disk_free_bytes)} free")
    curve = _curve(histories.get(node.name, ()))
    parts = [plain(node.name), *(plain(fact) for fact in facts)]
    parts[-1] += plain("  ") + curve
    lines = flow(parts, f" {glyphs().dot} ", width, "  ", "    ")
    if node.driver and node.slots:
        lines.append(plain(f"    {node.driver}", "dim"))
    return lines + _slots(node.slots, histories, now_us, width)


def _slots(
    slots: Sequence[Slot], histories: Mapping[str, Sequence[float]], now_us: int, width: int
) -> list[Content]:
    """Return a line for each GPU, in columns; where these are too wide, who uses it is below with its curve."""
    rows = [_facts(slot) for slot in slots]
    kept = [column for column in range(len(rows[0])) if any(row[column] for row in rows)] if rows else []
    widths = {column: max(text.cells(row[column]) for row in rows) for column in kept}
    holders = [_holder(slot, now_us) for slot in slots]
    facts = [
        "    " + "  ".join(row[at].ljust(widths[at]) if at < 2 else row[at].rjust(widths[at]) for at in kept)
        for row in rows
    ]
    room = (
        width - max(map(text.cells, facts), default=0) - max((one.cell_length for one in holders), default=0)
    )
    cells = min(CURVE_CELLS, room - 4)
    lines = []
    for slot, shown, holder in zip(slots, facts, holders, strict=True):
        history = histories.get(slot.uuid, ())
        if cells >= CURVE_LEAST_CELLS:
            lines.append(plain(f"{shown}  ") + _curve(history, cells) + plain("  ") + holder)
        else:
            lines += [
                plain(shown.rstrip()),
                plain("      ") + _curve(history, CURVE_CELLS) + plain("  ") + holder,
            ]
    return lines


def _facts(slot: Slot) -> list[str]:
    """Return the columns of a GPU: its name, use, memory, temperature and power."""
    used = temperature = power = ""
    if slot.utilization_percent is not None:
        share = slot.utilization_percent / 100
        used = f"{bar(share, 8)} {formats.percent(share):>4}"
    memory = formats.size(slot.memory_bytes)
    if slot.memory_used_bytes is not None:
        memory = f"{formats.size(slot.memory_used_bytes)} of {memory}"
    if slot.temperature_celsius is not None:
        degree = "°" if glyphs().unicode else ""
        temperature = f"{slot.temperature_celsius:.0f} {degree}C"
    if slot.power_watts is not None:
        cap = f"/{slot.power_limit_watts:.0f}" if slot.power_limit_watts else ""
        power = f"{slot.power_watts:.0f}{cap} W"
    return [formats.printable(f"GPU {slot.index} {slot.model}"), used, memory, temperature, power]


def _holder(slot: Slot, now_us: int) -> Content:
    since = Content()
    if slot.held_since_us is not None:
        since = plain(f" since {formats.clock_time(slot.held_since_us, now_us=now_us)}", "dim")
    more = since + (plain(" (idle)", "warning") if slot.idle else Content())
    if slot.holder_job:
        job = f"{short_id(slot.holder_job)} {slot.holder_name}".rstrip()
        return plain(f"{slot.holder or 'job'} {job}", "processing") + more
    if slot.foreign:
        return plain(f"other process: {slot.foreign}", "warning")
    if slot.holder:
        return plain(slot.holder, "processing") + more
    return plain("used, and by no job", "warning") if slot.is_used_unseen else plain("free", "completed")


def _finding(found: Finding) -> Content:
    line = f"  {found.subject}: {found.found}"
    if found.consequence:
        line += f" {glyphs().dot} {found.consequence}"
    if found.remedy:
        line += f" {glyphs().dot} {found.remedy}"
    return plain(line, "error" if found.level == "wrong" else "dim")


def _curve(history: Sequence[float], cells: int = CURVE_CELLS) -> Content:
    return plain(sparkline([value / 100 for value in history[-cells:]], cells), "key")
