"""What a job uses: curves of each learner and GPU against their limits, and the processes of one that runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.worker import Worker, get_current_worker

from screens.base.job_tab import JobPage, JobTab
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.jobs.usage_chart import CHARTS, UsageChart, draw_time, draw_usage, time_axis
from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.notices import EmptyNotice, no_usage
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle
from screens.widgets.text_page import LineKeys
from screens.workers.background import post, start_loop
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.errors import FabricError
from workbench.job import State
from workbench.services.inspect.usage_history import (
    ListedProcess,
    ProcessList,
    ProcessReader,
    UsageCurves,
    UsageQuery,
)
from workbench.values import dataclass

if TYPE_CHECKING:
    from screens.charts.axis import Axis
    from workbench.services.inspect.job_overview import JobOverview
    from workbench.store.db.rows import JobRow

CHART_LEAST_HEIGHT: Final = 4
PROCESSES_SECONDS: Final = 2.0
"""How often the lists of processes are read: as often as agents write them."""
PROCESSES_SHARE: Final = 3
"""A third of the page is left to the processes, where they are that many."""
APART: Final = 2
"""So many cells lie between charts."""
ACROSS: Final = 4
"""So many charts stand side by side at most: all of a GPU."""
WIDE: Final = 150
WINDOWS: Final = ((None, "the whole job"), (3600, "the last hour"), (600, "the last 10 minutes"))
STALE_SECONDS: Final = 45.0
"""Processes that sleep are sampled every thirty seconds."""


@dataclass(frozen=True, slots=True)
class UsageBlock:
    """Some lines of the page: a learner's heading, a row of its charts, the time axis below them, or its processes."""

    top: int
    height: int
    learner: int
    charts: tuple[UsageChart, ...] = ()
    axes: int = 0
    """How many time axes stand side by side, below as many charts."""
    is_list: bool = False


class ProcessesRead(Message, bubble=False):
    """Lists of processes were read, or could not be."""

    def __init__(self, job: tuple[str, int], found: dict[int, ProcessList | None], trouble: str) -> None:
        super().__init__()
        self.job = job
        self.found = found
        self.trouble = trouble


class UsagePage(ScrollView, CachedStyle, LineKeys, JobTab, can_focus=True):
    """What a job's learners use."""

    TAB: ClassVar = "usage"
    PANE: ClassVar = "usage"
    BINDINGS: ClassVar = actions.bindings("usage")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.notice = EmptyNotice("loading")
        self.window = 0
        self._job: JobOverview | None = None
        self._now_us = 0
        self._read: UsageCurves | None = None
        self._x: Axis | None = None
        self._asked: object = None
        self._lists: dict[int, ProcessList | None] = {}
        self._trouble = ""
        self._watched: tuple[str, int] | None = None
        self._worker: Worker[None] | None = None
        self._read_again = threading.Event()
        self._blocks: tuple[UsageBlock, ...] = ()
        self._drawn: dict[UsageBlock, tuple[object, list[Strip]]] = {}

    # What is shown

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Show a job as of now, and read what it uses."""
        self._job, self._now_us = page.overview, now_us
        self._watch_processes(page.row)
        self._arrange()
        for block in self._blocks:
            if not block.charts:
                self.refresh_lines(block.top, block.height)  # ages grow

    @property
    def has_curves(self) -> bool:
        """Whether there is anything to be seen over time."""
        return bool(self._blocks)

    def can_do(self, action_id: str) -> bool | None:
        """Offer other stretches of time where there are curves."""
        return self.has_curves if action_id == "usage.window" else None

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show the notice and nothing else."""
        self.rest()
        self._job, self._read, self.notice = None, None, notice
        self._arrange()

    def rest(self) -> None:
        """Read nothing while it is out of sight."""
        self._asked = None
        fabric_app(self).reader.forget(self)
        self._stop_processes()

    @property
    def plain(self) -> str:
        """What is shown, without colours."""
        if not self._blocks:
            return str(self.notice)
        return "\n".join(strip.text.rstrip() for block in self._blocks for strip in self._lines(block))

    def on_resize(self) -> None:
        """Take the room that there is."""
        self._arrange()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Read what has come into view."""
        super().watch_scroll_y(old_value, new_value)
        self._ask()

    def action_usage_window(self) -> None:
        """Show another stretch of time."""
        self.window = (self.window + 1) % len(WINDOWS)
        self._ask()

    # Reading

    def _ask(self) -> None:
        shown = self._job
        if shown is None or not self.room:
            return
        cells = [self.room // len(block.charts) for block in self._blocks if block.charts]
        learners, width = self._in_view(), 2 * max(8, *cells, self.room // ACROSS)
        asked = shown.row.id, shown.row.attempt, learners, width, self.window
        if asked == self._asked:
            return
        self._asked = asked
        self._read_again.set()  # the processes of others may have come into view
        window = WINDOWS[self.window][0]
        query = UsageQuery(
            shown.row.id,
            shown.detail.spec if shown.detail else None,
            width=width,
            learners=learners,
            window_us=None if window is None else window * formats.MICROSECONDS,
        )
        fabric_app(self).reader.watch(self, "usage", query, counters=("series",), every_seconds=1.0)

    def _in_view(self) -> frozenset[int]:
        """Return the learners whose parts are in view; the first one where nothing is known yet."""
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        seen = {
            block.learner for block in self._blocks if block.top < bottom and block.top + block.height > top
        }
        return frozenset(seen or {1})

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take what was read."""
        read: UsageCurves = answer.value
        if self._read is not None:  # of learners that are out of view the last curves stay
            read = replace(read, curves={**self._read.curves, **read.curves})
        self._read = read
        self._arrange()
        self.refresh()

    def _watch_processes(self, row: JobRow) -> None:
        """Read the processes of a job that runs, and of no other."""
        key = (row.id, row.attempt) if row.state is State.PROCESSING else None
        if key == self._watched:
            return
        self._stop_processes()
        self._watched = key
        if key is not None:
            home = fabric_app(self).home
            self._worker = start_loop(
                self, "processes", partial(self._read_processes, ProcessReader(home, row))
            )

    def _stop_processes(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            self._read_again.set()
        self._worker, self._watched, self._lists, self._trouble = None, None, {}, ""

    def _read_processes(self, reader: ProcessReader) -> None:
        worker, job = get_current_worker(), reader.job
        try:
            while not worker.is_cancelled:
                found: dict[int, ProcessList | None] = {}
                trouble = ""
                try:
                    found = reader.read(self._in_view())
                except FabricError as error:
                    trouble = str(error)
                    reader.close()
                except Exception as error:  # someone else's runner may raise anything
                    trouble = f"{type(error).__name__}: {error}"
                    reader.close()
                if not worker.is_cancelled:
                    post(self, ProcessesRead(job, found, trouble))
                self._read_again.wait(PROCESSES_SECONDS)
                self._read_again.clear()
        finally:
            reader.close()

    def on_processes_read(self, message: ProcessesRead) -> None:
        """Take lists of processes."""
        if message.job != self._watched or fabric_app(self).reader.paused:
            return
        self._lists |= message.found
        self._trouble = message.trouble
        self._arrange()
        for block in self._blocks:
            if block.is_list:
                self.refresh_lines(block.top, block.height)

    # Where everything stands

    def _arrange(self) -> None:
        """Lay the page out: it fills the screen where it is shorter."""
        before = self._blocks
        if self._read is None or not self._read.measures or not self.room:
            self._blocks = ()
            if self._job is not None and self._read is not None:
                self.notice = no_usage(self._job.row)
        else:
            parts = [
                (learner, self._charts(learner), self._list_height(learner))
                for learner in self._read.measures
            ]
            self._blocks = lay_out_usage(parts, self.room, self.size.height)
            row = self._job.row if self._job is not None else None
            self._x = time_axis(
                self._read, (row.started_us or row.submitted_us) if row else self._read.from_us
            )
        self.offer_keys(has_content=self.has_curves)
        height = self._blocks[-1].top + self._blocks[-1].height if self._blocks else self.size.height
        size = Size(self.room, height)
        if size != self.virtual_size:
            self.virtual_size = size
        self._drawn = {block: drawn for block, drawn in self._drawn.items() if block in self._blocks}
        self._ask()
        if not self._blocks or self._blocks != before:
            self.refresh()

    def _charts(self, learner: int) -> list[list[UsageChart]]:
        """Return the charts of a learner's machine, and of each of its GPUs."""
        assert self._read is not None
        measured = self._read.measures[learner]
        groups: list[list[UsageChart]] = []
        for number, gpu in enumerate(["", *(gpu for gpu in measured if gpu)]):
            charts = []
            for kind in CHARTS:
                known = [name for name in kind.measures if name in measured[gpu]]
                if kind.is_gpu == bool(gpu) and (
                    known or (kind.absent and "disk_read_bytes_per_second" in measured[gpu])
                ):
                    charts.append(UsageChart(kind, learner, gpu, number - 1))
            if len(charts) == 1 and len(groups) > 1 and len(groups[-1]) < ACROSS and _is_alone(groups[-1]):
                groups[-1] += charts
            else:
                groups.append(charts)
        return groups

    def _list_height(self, learner: int) -> int:
        if self._watched is None:
            return 0
        found = self._lists.get(learner)
        return 1 if found is None else 1 + len(found.processes) + bool(found.omitted)

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw a line."""
        at = self.scroll_offset.y + y
        for block in self._blocks:
            if block.top <= at < block.top + block.height:
                return self._lines(block)[at - block.top]
        if not self._blocks:
            return self.notice_strip(self.notice, y, (self.room, self.size.height))
        return Strip.blank(self.size.width, self.base)

    def _lines(self, block: UsageBlock) -> list[Strip]:
        """Return a block's lines, made again only when something of it has changed."""
        assert self._read is not None
        curves = [id(one) for chart in block.charts for one in chart.curves(self._read)]
        look = id(paint_of(self)), self.base, self.size.width
        if block.charts or block.axes:
            made_for: object = (*look, *curves, self._x)
        else:
            listed = self._lists.get(block.learner)
            made_for = (
                *look,
                id(listed),
                self._why_no_list(block.learner),
                self._now_us // 1_000_000,
                self._read.from_us,
                self._read.to_us,
            )
        known = self._drawn.get(block)
        if known is None or known[0] != made_for:
            made = self._make(block)
            made = [strip.adjust_cell_length(self.size.width, self.base) for strip in made[: block.height]]
            made += [Strip.blank(self.size.width, self.base)] * (block.height - len(made))
            self._drawn[block] = known = (made_for, made)
        return known[1]

    def _make(self, block: UsageBlock) -> list[Strip]:
        if block.charts:
            return self._chart_lines(block)
        if block.axes:
            width = self._cell(block.axes) - APART
            return self._side_by_side([[draw_time(self._x, width, paint_of(self), self.base)]] * block.axes)
        return list(self._process_lines(block.learner)) if block.is_list else [self._heading(block.learner)]

    def _heading(self, learner: int) -> Strip:
        assert self._read is not None
        sample = self._read.last[learner]
        age = max(0.0, (self._now_us - sample.time_us) / 1e6)
        facts = [formats.count(sample.processes, "process", "processes")]
        is_open = self._job is not None and status.is_open(self._job.row)
        facts += [f"sampled {formats.duration(age)} ago"] if is_open else []
        for number, gpu in enumerate(gpu for gpu in self._read.measures[learner] if gpu):
            facts.append(f"GPU {number} {text.shorten(formats.printable(gpu), 12)}")
        window = WINDOWS[self.window]
        span = formats.duration((self._read.to_us - self._read.from_us) / 1e6)
        right = f" {window[1]}" + (f", {span}" if window[0] is None else "")
        left = f"learner {learner} "
        dot = f" {glyphs().dot} "
        room = self.room - text.cells(left) - text.cells(right) - 1
        while facts and text.cells(dot.join(facts)) + 1 > room:
            facts.pop()
        shown = dot.join(facts)
        ruler = glyphs().ruler * max(0, room - text.cells(shown) - 1)
        stale = is_open and age > STALE_SECONDS
        return self.text_strip(
            [
                (left, "key", "bold"),
                (f"{shown} ", "warning" if stale else "dim", ""),
                (ruler, "dim", ""),
                (right, "dim", ""),
            ],
            self.room,
        )

    def _chart_lines(self, block: UsageBlock) -> list[Strip]:
        assert self._read is not None
        size = self._cell(len(block.charts)) - APART, block.height
        return self._side_by_side(
            [
                draw_usage(chart, self._read, size, paint_of(self), self.base, self._x)
                for chart in block.charts
            ]
        )

    def _cell(self, count: int) -> int:
        """Return how wide each of so many charts in a row is, with the gap behind it: the last one needs none."""
        return (self.room + APART) // count

    def _side_by_side(self, tiles: Sequence[Sequence[Strip]]) -> list[Strip]:
        cell = self._cell(len(tiles))
        padded = [[strip.adjust_cell_length(cell, self.base) for strip in tile] for tile in tiles]
        return [Strip.join(row) for row in zip(*padded, strict=True)]

    def _process_lines(self, learner: int) -> Iterator[Strip]:
        found = self._lists.get(learner)
        if found is None:
            yield self.text_strip([(self._why_no_list(learner), "dim", "")], self.room)
            return
        on_gpus = any(one.gpu_memory_bytes is not None for one in found.processes)
        gpu_title = f"{'gpu mem':>10} " if on_gpus else ""
        title = f"{'pid':>8} {'user':<9}{'cpu':>6} {'memory':>10} {gpu_title}command"
        age = (self._now_us - found.time_us) / 1e6
        old = f"  (as of {formats.duration(age)} ago)" if self._trouble or age > STALE_SECONDS else ""
        yield self.text_strip([(title, "dim", "bold"), (old, "warning", "")], self.room)
        for branch, one in found.tree():
            yield self._process_line(branch, one, on_gpus)
        if found.omitted:
            yield self.text_strip(
                [(f"and {formats.count(found.omitted, 'more process', 'more processes')}", "dim", "")],
                self.room,
            )

    def _process_line(self, branch: Sequence[bool], one: ListedProcess, on_gpus: bool) -> Strip:
        gpu = ""
        if on_gpus:
            held = glyphs().dash if one.gpu_memory_bytes is None else formats.size(one.gpu_memory_bytes)
            gpu = f"{held:>10} "
        facts = f"{formats.percent(one.cpu_percent / 100):>6} {formats.size(one.memory_bytes):>10} {gpu}"
        return self.text_strip(
            [
                (f"{one.pid:>8} ", "text", ""),
                (f"{text.shorten(one.user, 8):<9}", "dim", ""),
                (facts, "text", ""),
                (_branch(branch), "dim", ""),
                (one.command, "text", ""),
            ],
            self.room,
        )

    def _why_no_list(self, learner: int) -> str:
        if self._trouble:
            return f"its processes cannot be read: {formats.printable(self._trouble)}"
        if learner not in self._lists:
            return "its processes are being read"
        return "no list of its processes: its agent is older, or has not sampled it yet"


def lay_out_usage(
    parts: Sequence[tuple[int, Sequence[Sequence[UsageChart]], int]], width: int, height: int
) -> tuple[UsageBlock, ...]:
    """Lay learners out below each other, each with its groups of charts, their axis and so many lines of processes.

    Where all is shorter than the page, charts grow until it is full.
    """
    most = max((len(group) for _, groups, _ in parts for group in groups), default=1)
    columns = _columns(parts, min(ACROSS, most), width, height)
    rows = [
        (
            learner,
            [
                tuple(group[start : start + columns])
                for group in groups
                for start in range(0, len(group), columns)
            ],
            listed,
        )
        for learner, groups, listed in parts
    ]
    count = sum(len(charts) for _, charts, _ in rows) or 1
    lists = (
        min(sum(listed for _, _, listed in rows), max(2, height // PROCESSES_SHARE))
        if len(rows) == 1
        else sum(listed for _, _, listed in rows)
    )
    fixed = len(rows) + sum(bool(charts) for _, charts, _ in rows)
    apart = 1 if height - fixed - lists - (len(rows) - 1) >= count * (CHART_LEAST_HEIGHT + 1) else 0
    room = height - fixed - lists - apart * (len(rows) - 1)
    each, rest = divmod(max(room, 0), count)
    if each < CHART_LEAST_HEIGHT:
        each, rest = CHART_LEAST_HEIGHT + 1, 0
    blocks: list[UsageBlock] = []
    top = 0
    for learner, charts, listed in rows:
        blocks.append(UsageBlock(top, 1, learner))
        top += 1
        for row in charts:
            tall = each + (rest > 0)
            rest -= 1
            blocks.append(UsageBlock(top, tall, learner, row))
            top += tall
        if charts:
            blocks.append(UsageBlock(top, 1, learner, axes=len(charts[-1])))
            top += 1
        if listed:
            blocks.append(UsageBlock(top, listed, learner, is_list=True))
            top += listed
        top += apart
    return tuple(blocks)


def _columns(
    parts: Sequence[tuple[int, Sequence[Sequence[UsageChart]], int]], most: int, width: int, height: int
) -> int:
    """Return how many charts stand side by side: few, unless more of them are needed to see all at once."""
    if width >= WIDE and most == ACROSS and any(len(groups) > 1 for _, groups, _ in parts):
        return ACROSS  # a GPU's measures stand in one row
    for columns, least in ((1, 0), (2, 72), (ACROSS, 104)):
        if columns > most or width < least:
            continue
        chosen = columns
        lines = sum(
            2 + listed + sum(-(-len(group) // columns) for group in groups) * 2 * CHART_LEAST_HEIGHT
            for _, groups, listed in parts
        )
        if lines <= height and columns > 1:
            return columns
    return chosen


def _is_alone(charts: Sequence[UsageChart]) -> bool:
    """Say whether each of some charts is all that is known of its GPU: slices stand side by side."""
    return len({chart.gpu for chart in charts}) == len(charts)


def _branch(branch: Sequence[bool]) -> str:
    """Draw a process's place in the tree; each part says whether that ancestor, or itself, is the last child."""
    if not branch:
        return ""
    unicode = glyphs().unicode
    through, last, middle = ("│ ", "└─ ", "├─ ") if unicode else ("| ", "`- ", "|- ")
    return "".join("  " if is_last else through for is_last in branch[:-1]) + (last if branch[-1] else middle)
