"""What stands above the list of jobs: a line for each backend, and one that says what the list shows.

A backend's GPUs in use and CPUs busy are bars, with how they were used lately.
The backends are asked in workers of their own, and what they answered last is shown: no host is waited for. While no
job is open they are asked only when the list comes into view and after keys, so that an idle terminal stays idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from screens.core.app_protocol import JumpTarget, Part
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle, MadeLines
from screens.widgets.markup import bar
from screens.widgets.sparkline import sparkline
from workbench import formats
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.services.backends.watch import BackendStatus

HISTORY: Final = 12
"""So many samples are kept."""
STALE_SECONDS: Final = 90.0
"""An answer so old is shown with its age."""
WAITED_SECONDS: Final = 5.0
"""A question that is open for so long is shown, however new the last answer is."""
NAME_MAX: Final = 18
NAME_NARROW: Final = 12
_WIDE: Final = 110
"""From so many columns on bars are longer, and numbers explained."""

Parts = list[tuple[str, str, str]]


@dataclass(slots=True)
class BackendLine:
    """What is known of a backend: its last good answer, what is wrong since, and how it was used lately."""

    name: str
    answer: BackendStatus | None = None
    trouble: str = ""
    asked_us: int = 0
    """When it was last asked."""
    answered_us: int = 0
    """When it last answered, or failed to."""
    gpu_use: list[float | None] = field(default_factory=list)
    """Shares of all its GPUs, the newest last."""
    cpu_use: list[float | None] = field(default_factory=list)

    def take(self, status: BackendStatus) -> None:
        """Take an answer; what a probe adds to the same inventory is not a new sample."""
        self.answered_us = status.seen_us
        if status.inventory is None:
            self.trouble = "needs a login: P, then L" if status.needs_login else status.trouble
            return
        self.trouble = ""
        same = self.answer is not None and self.answer.inventory is status.inventory
        self.answer = status
        if same:
            return
        nodes = status.inventory.nodes
        uses = [slot.utilization_percent for node in nodes for slot in node.slots]
        _keep(self.gpu_use, _mean([use for use in uses if use is not None]))
        _keep(self.cpu_use, self.cpu_share)

    def waited_seconds(self, now_us: int) -> float:
        """Return for how long a question is open; 0 while none is, or where it was asked only just now."""
        seconds = (now_us - self.asked_us) / 1e6 if self.asked_us > self.answered_us else 0.0
        return seconds if seconds >= WAITED_SECONDS else 0.0

    @property
    def gpus(self) -> tuple[int, int]:
        """How many GPUs are in use, by jobs or others, seen or not, and how many there are."""
        nodes = self.answer.inventory.nodes if self.answer and self.answer.inventory else ()
        slots = [slot for node in nodes for slot in node.slots]
        return sum(not slot.free or slot.is_used_unseen for slot in slots), len(slots)

    @property
    def cpus(self) -> int:
        """How many CPUs there are."""
        nodes = self.answer.inventory.nodes if self.answer and self.answer.inventory else ()
        return sum(node.cpus for node in nodes)

    @property
    def cpu_share(self) -> float | None:
        """How much of all CPUs is busy."""
        nodes = self.answer.inventory.nodes if self.answer and self.answer.inventory else ()
        known = [(node.cpu_percent, node.cpus) for node in nodes if node.cpu_percent is not None]
        whole = sum(cpus for _, cpus in known)
        return sum(percent * cpus for percent, cpus in known) / whole / 100 if whole else None


def _mean(percents: Sequence[float]) -> float | None:
    return sum(percents) / len(percents) / 100 if percents else None


def _keep(history: list[float | None], share: float | None) -> None:
    history.append(share)
    del history[:-HISTORY]


class BackendLines(MadeLines):
    """The lines; as many as the height of the screen leaves room for, the last one says how many more there are."""

    class Clicked(Message):
        """One of them was clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, BackendLine] = {}
        self._used: frozenset[str] = frozenset()
        self._now_us = 0
        self._shown: list[Parts] = []

    def on_mount(self) -> None:
        """Start without a line."""
        self.add_class("-empty")

    def set_names(self, names: Sequence[str]) -> None:
        """Have a line for each of these, and keep what is known of those that stay."""
        self.lines = {name: self.lines.get(name) or BackendLine(name) for name in names}
        self.update()

    def ask(self, name: str, time_us: int) -> None:
        """Note since when a backend is waited for; the next tick shows it."""
        if (line := self.lines.get(name)) is not None:
            line.asked_us = time_us

    def take(self, status: BackendStatus, now_us: int) -> None:
        """Take an answer."""
        if (line := self.lines.get(status.name)) is not None:
            line.take(status)
            self.tick(now_us)

    def use(self, backends: frozenset[str]) -> None:
        """Put the backends of open jobs first."""
        if backends != self._used:
            self._used = backends
            self.update()

    def tick(self, now_us: int) -> None:
        """Let ages grow; the terminal is written to only where a line is another."""
        self._now_us = now_us
        self.update()

    def update(self) -> None:
        """Take as many lines as there is room for, and draw them again if they changed."""
        most = 2 if self.screen.size.height < 30 else 4 if self.screen.size.height < 50 else 6
        rows = sorted(self.lines.values(), key=lambda line: line.name not in self._used)
        self.set_class(not rows, "-empty")
        if not rows:
            return
        height = min(most, len(rows))
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
        shown = backend_parts(rows, self._now_us, self.screen.size.width)[:height]
        if len(rows) > height:
            shown[-1].append((f"  + {len(rows) - height} more", "accent", ""))
        if shown != self._shown:
            self._shown = shown
            self.redraw()

    def on_resize(self) -> None:
        """Fit the lines."""
        self.update()

    def make_lines(self) -> list[Strip]:
        """Draw the lines."""
        return [self.text_strip(parts, self.size.width) for parts in self._shown]

    def on_click(self, event: events.Click) -> None:
        """Go to the page of all backends."""
        event.stop()
        self.post_message(self.Clicked())

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name the lines."""
        yield JumpTarget(self.region.x, self.region.y, lambda: self.post_message(self.Clicked()))


@dataclass(frozen=True, slots=True)
class _Widths:
    """Cells of each part, the same in all lines."""

    line: int
    name: int
    count: int
    """Of how many GPUs are in use, the longest."""
    bar: int
    curve: int
    roomy: bool
    """Whether numbers are explained."""

    @property
    def gpus(self) -> int:
        """Cells of all about GPUs."""
        return 5 + self.bar + 1 + self.count + self.use

    @property
    def use(self) -> int:
        """Cells of a share and its curve."""
        return (7 if self.roomy else 2) + 4 + 1 + self.curve


def backend_parts(lines: Sequence[BackendLine], now_us: int, width: int) -> list[Parts]:
    """Return each line with its parts under those of the others."""
    roomy = width >= _WIDE
    widths = _Widths(
        line=width,
        name=min(NAME_MAX if roomy else NAME_NARROW, max(text.cells(line.name) for line in lines)),
        count=max(len(_count(line)) for line in lines),
        bar=16 if roomy else 8,
        curve=HISTORY if roomy else HISTORY // 2,
        roomy=roomy,
    )
    return [_parts(line, now_us, widths) for line in lines]


def _parts(line: BackendLine, now_us: int, widths: _Widths) -> Parts:
    name = text.shorten(formats.printable(line.name), widths.name)
    parts: Parts = [(f" {name}{' ' * (widths.name - text.cells(name))}  ", "text", "bold")]
    if line.trouble:
        seen = "" if line.answer is None else f" {glyphs().dot} last seen {_age(line.answer, now_us)} ago"
        shown = formats.printable(line.trouble).removeprefix(f"{line.name} ")
        says = shown if shown.startswith(("does not answer", "needs")) else f"does not answer: {shown}"
        return [*parts, (says + seen, "error", "")]
    waited = line.waited_seconds(now_us)
    if line.answer is None:
        return [*parts, (_no_answer_for(waited) if waited else "asked, no answer yet", "dim", "")]
    used, there = line.gpus
    if there:
        role = "warning" if used == there else "key"
        parts += [("GPUs ", "dim", ""), (bar(used / there, widths.bar), role, "")]
        parts.append((f" {_count(line):>{widths.count}}", "text", ""))
        parts += _use(line.gpu_use, widths)
    elif widths.count:
        parts.append((f"{'no GPU':<{widths.gpus}}", "dim", ""))
    if (share := line.cpu_share) is not None:
        parts += [("  CPUs ", "dim", ""), (bar(share, widths.bar), "key", "")]
        parts.append((f" of {line.cpus:<4}" if widths.roomy else "", "dim", ""))
        parts += _use(line.cpu_use, widths)
    elif line.cpus:
        parts.append((f"  {formats.count(line.cpus, 'CPU')}", "dim", ""))
    if waited:
        return _stale(parts, _no_answer_for(waited), widths)
    if (now_us - line.answer.seen_us) / 1e6 > STALE_SECONDS:
        return _stale(parts, f"{_age(line.answer, now_us)} ago", widths)
    return parts


def _stale(parts: Parts, why: str, widths: _Widths) -> Parts:
    """Return a line that may not be so any more: dim, with why, which is never what is cut off."""
    shown = text.fit(parts, max(0, widths.line - text.cells(why) - 2))
    return [*((part, "dim", "") for part, _, _ in shown), (f"  {why}", "dim", "")]


def _no_answer_for(seconds: float) -> str:
    """Say for how long a question is open; after a minute in one unit, for the terminal's sake."""
    whole = int(seconds)
    return f"no answer for {formats.duration(whole) if whole < 60 else formats.short_duration(whole)}"


def _use(history: Sequence[float | None], widths: _Widths) -> Parts:
    last = history[-1] if history else None
    if last is None:
        return [(" " * widths.use, "dim", "")]
    shown = f"  busy {formats.percent(last):>4} " if widths.roomy else f" {formats.percent(last):>5} "
    return [(shown, "text", ""), (sparkline(history[-widths.curve :], widths.curve), "completed", "")]


def _count(line: BackendLine) -> str:
    used, there = line.gpus
    return f"{used} of {there}" if there else ""


def _age(answer: BackendStatus, now_us: int) -> str:
    """Return an age in one unit: one in seconds would have the terminal written to all the time."""
    return formats.short_duration(max(60.0, (now_us - answer.seen_us) / 1e6))


class Chips(CachedStyle):
    """One line: the order to the left, then the terms, of which a click takes one away, and the facts to the right."""

    order: reactive[str] = reactive("")
    terms: reactive[tuple[str, ...]] = reactive(())
    facts: reactive[tuple[Part, ...]] = reactive(())

    class Removed(Message):
        """A term was clicked."""

        def __init__(self, term: str) -> None:
            super().__init__()
            self.term = term

    class OrderClicked(Message):
        """The order was clicked."""

    def _places(self) -> Iterator[tuple[str, int, int]]:
        """Name the terms in view with their first column and their width."""
        at, end = self._terms_from, self._facts_from
        for term in self.terms:
            width = text.cells(_chip(term))
            if at + width > end:
                return
            yield term, at, width
            at += width + 1

    @property
    def _terms_from(self) -> int:
        return 1 + (text.cells(self.order) + 2 if self.order else 0)

    @property
    def _facts_from(self) -> int:
        return self.size.width - sum(text.cells(shown) + 2 for shown, _ in self.facts)

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name every term: jumping to one takes it away."""
        for term, at, _ in self._places():
            yield JumpTarget(at, self.region.y, partial(self.post_message, self.Removed(term)))

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        base, paint, width = self.base, paint_of(self), self.size.width
        segments = [Segment(" ", base), Segment(self.order, base + paint.style("dim"))]
        segments += [Segment("  ", base)] if self.order else []
        at = self._terms_from
        shown = list(self._places())
        for term, _, size in shown:
            segments += [
                Segment(_chip(term), base + paint.style("accent", "reverse")),
                Segment(" ", base),
            ]
            at += size + 1
        if left_out := len(self.terms) - len(shown):
            segments.append(Segment(f"+{left_out}", base + paint.style("accent")))
            at += text.cells(f"+{left_out}")
        segments.append(Segment(" " * max(0, self._facts_from - at), base))
        for fact, role in self.facts:
            segments += [Segment(fact, base + paint.style(role)), Segment("  ", base)]
        return Strip(segments).adjust_cell_length(width, base)

    def on_click(self, event: events.Click) -> None:
        """Take away the term that was clicked, or turn the order round."""
        for term, at, width in self._places():
            if at <= event.x < at + width:
                self.post_message(self.Removed(term))
                return
        if 0 < event.x < self._terms_from - 1:
            self.post_message(self.OrderClicked())


def _chip(term: str) -> str:
    return f" {formats.printable(term)} x "
