"""The page of the queue: what waits at each backend, in the order in which it starts, and for what."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from textual import on
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import get_current_worker

from screens.core import actions
from screens.core.app_protocol import JumpTarget
from screens.jobs.actions import JobActions
from screens.style import text
from screens.style.notices import EmptyNotice
from screens.style.themes import overlay, paint_of
from screens.widgets.cursor_list import CursorList
from screens.widgets.markup import plain
from screens.workers.background import post, start_loop
from screens.workers.reader import QueryAnswer
from screens.workers.writer import Write
from workbench import formats
from workbench.job import short_id
from workbench.services.backends.inventory import (
    BackendQueue,
    HostAnswer,
    HostQuestion,
    QueuedJob,
    queue_hosts,
    queues,
)
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import JobRow
from workbench.store.queries.home_queue import WaitingJob, waiting_jobs
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions

ASK_SECONDS: Final = 2.0
"""How often a host is asked who waits there: as often as the controller asks it."""
CHANGED_SECONDS: Final = 0.5
"""How long after a change of the jobs here it is asked: by then its queue has the change."""
EMPTY: Final = EmptyNotice(
    "no job waits",
    "n opens a form for a new job; one that needs what others hold, comes after other jobs or begins later waits here",
)
NAME_LEAST: Final = 12


@dataclass(frozen=True, slots=True)
class HomeWaiting:
    """The jobs of a home that wait."""

    home_uuid: str
    jobs: tuple[WaitingJob, ...]


def read_waiting(store: Store) -> HomeWaiting:
    """Read which jobs of the home wait."""
    return HomeWaiting(home_uuid(store.home), tuple(waiting_jobs(store)))


class HostAnswered(Message, bubble=False):
    """A host has said who waits there, or could not be asked."""

    def __init__(self, machine: str, answer: HostAnswer) -> None:
        super().__init__()
        self.machine = machine
        self.answer = answer


Line = QueuedJob | BackendQueue
"""A line of the list: one that waits, or the heading of a backend."""


class QueueList(CursorList):
    """A heading for each backend, below it those that wait there; the cursor goes from one to the next of them."""

    PANE: ClassVar = "queue"
    BINDINGS: ClassVar = actions.bindings("queue")
    HEAD_LINES: ClassVar = 1

    class Moved(Message):
        """The cursor is on another one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.notice = EmptyNotice("loading the queue")
        self._entries: tuple[Line, ...] = ()
        self._now_us = 0
        self._rank_cells = self._names_cells = 0
        self._is_held = False

    def hold(self) -> None:
        """Keep the cursor on its job from now on; before, it is on the first one, whichever that is."""
        self._is_held = True

    @property
    def _name_cells(self) -> int:
        return max(NAME_LEAST, min(self._names_cells, self.room // 4))

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._entries)

    @property
    def chosen(self) -> QueuedJob | None:
        """The one under the cursor."""
        found = self._entries[self._at] if self._at < len(self._entries) else None
        return found if isinstance(found, QueuedJob) else None

    @property
    def beside(self) -> frozenset[str]:
        """The jobs of this home that stand in one line with that under the cursor: with it at the host, or not yet."""
        chosen = self.chosen
        backend: list[QueuedJob] = []
        for queue in (one for one in self._entries if isinstance(one, BackendQueue)):
            backend = list(queue.waiting) if chosen in queue.waiting else backend
        return frozenset(
            str(one.job.row.id)
            for one in backend
            if one.job is not None and chosen is not None and (one.rank is None) == (chosen.rank is None)
        )

    def show(self, queues: Sequence[BackendQueue], now_us: int) -> None:
        """Take over who waits; the cursor stays on its job, or near where that was."""
        before = self._job_id(self._at)
        self.notice, self._now_us = EMPTY, now_us
        self._entries = tuple(chain.from_iterable((queue, *queue.waiting) for queue in queues))
        self.offer_keys(has_content=bool(self._entries))
        names = [text.cells(_name(one)) for one in self._entries if isinstance(one, QueuedJob)]
        self._rank_cells = max(
            (len(_rank(one)) for one in self._entries if isinstance(one, QueuedJob)), default=0
        )
        self._rank_cells = max(self._rank_cells, len("rank")) if self._rank_cells else 0
        self._names_cells = max(names, default=0)
        self.virtual_size = Size(self.room, len(self._entries) + self.HEAD_LINES)
        # A job over several hosts may stand in the list of each, too.
        places = [at for at in range(len(self._entries)) if before and self._job_id(at) == before]
        nearest = min(places, key=lambda at: abs(at - self._at), default=self._at)
        self._go_to(nearest if self._is_held else 0)

    def _job_id(self, at: int) -> str:
        one = self._entries[at] if at < len(self._entries) else None
        return str(one.job.row.id) if isinstance(one, QueuedJob) and one.job is not None else ""

    def _move(self, at: int) -> None:
        self.hold()
        self._go_to(at)

    def _go_to(self, at: int) -> None:
        """Go to a line, or on to the next that is not a heading."""
        jobs = [index for index, one in enumerate(self._entries) if isinstance(one, QueuedJob)]
        if not jobs:
            self._at = 0
            self.refresh()
        elif at >= self._at:
            super()._move(next((index for index in jobs if index >= at), jobs[-1]))
        else:
            super()._move(next((index for index in reversed(jobs) if index <= at), jobs[0]))
        if jobs and self._at == jobs[0]:
            self.scroll_to(y=0, animate=False, force=True)  # its backend's heading stands above it
        self.post_message(self.Moved())

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name those in view."""
        top = self.scroll_offset.y
        for at in range(top, min(len(self._entries), top + self.size.height - self.HEAD_LINES)):
            if isinstance(self._entries[at], QueuedJob):
                y = self.region.y + self.HEAD_LINES + at - top
                yield JumpTarget(self.region.x + 1, y, partial(self._move, at))

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw the titles, a heading, one that waits, or why there are none."""
        width = self.room
        if not self._entries:
            return self.notice_strip(self.notice, y, (width, self.size.height))
        if y == 0:
            titles = self._cells(("rank", "job", "name", "pri", "gpus", "since", "why"))
            return self.text_strip([(titles, "dim", "")], width)
        at = self.scroll_offset.y + y - self.HEAD_LINES
        if at >= len(self._entries):
            return Strip.blank(width, self.base)
        line = self._entries[at]
        if isinstance(line, BackendQueue):
            return self._heading(line, width)
        strip = self.text_strip(
            [(self._cells(self._texts(line)), "dim" if line.job is None else "text", "")], width
        )
        return overlay(strip, paint_of(self).cursor(focused=self.has_focus)) if at == self._at else strip

    def _heading(self, queue: BackendQueue, width: int) -> Strip:
        parts = [(f" {formats.printable(queue.backend)}", "key", "bold")]
        parts.append((f"  {len(queue.waiting):,} wait" + ("s" if len(queue.waiting) == 1 else ""), "dim", ""))
        if queue.trouble:
            trouble = f"  who else waits there is not known: {formats.printable(queue.trouble)}"
            parts.append((trouble, "error", ""))
        return self.text_strip(parts, width)

    def _texts(self, one: QueuedJob) -> tuple[str, ...]:
        gpus = str(one.gpus or "")
        if one.job is None:
            return (_rank(one), "", _name(one), "", gpus, "", "")
        row = one.job.row
        since = formats.clock_time(row.changed_us, now_us=self._now_us)
        priority = str(one.job.stands.priority)
        why = formats.printable(row.reason.text)
        return (_rank(one), short_id(row.id), _name(one), priority, gpus, since, why)

    def _cells(self, texts: tuple[str, ...]) -> str:
        """Lay texts out in columns; the reason comes last and has what is left."""
        rank, job, name, priority, gpus, since, why = texts
        name = text.shorten(name, self._name_cells)
        parts = [f"{rank:>{self._rank_cells}}"] if self._rank_cells else []
        parts += [f"{job:<9}", name + " " * (self._name_cells - text.cells(name))]
        return "  " + "  ".join((*parts, f"{priority:>3}", f"{gpus:>4}", f"{since:<8}", why))


def _rank(one: QueuedJob) -> str:
    return "" if one.rank is None else f"{one.rank} of {one.of}"


def _name(one: QueuedJob) -> str:
    return formats.printable(one.title)


class QueueScreen(JobActions):
    """What waits, read when something changed; hosts are asked while the screen is in view."""

    BINDINGS: ClassVar = actions.early_bindings("queue")

    def __init__(self) -> None:
        super().__init__()
        self._waiting: HomeWaiting | None = None
        self._answers: dict[str, HostAnswer] = {}
        self._asked: set[str] = set()
        """The machines that are asked again and again, or were."""
        self._wanted: frozenset[str] = frozenset()
        """The machines whose answers are of use now."""
        self._in_view = threading.Event()
        self._changes = 0
        """How often the jobs that wait were others than before."""

    def body(self) -> Iterator[Widget]:
        """Make the list, and below it what is known of the job under the cursor."""
        yield QueueList(id="queue")
        yield Static(id="queue-job", classes="-empty", markup=False)

    @property
    def waiting(self) -> QueueList:
        """The list."""
        return self.query_one(QueueList)

    def on_mount(self) -> None:
        """Begin to read."""
        self.waiting.focus()
        self.fabric.reader.watch(
            self, "queue", read_waiting, counters=("jobs", "requests"), every_seconds=0.2
        )
        self.refresh_head()

    def on_unmount(self) -> None:
        """Read no more."""
        self._in_view.set()  # those who wait for it see that they are to end
        self.fabric.reader.forget(self)

    def on_screen_resume(self) -> None:
        """Ask hosts again."""
        self._in_view.set()

    def on_screen_suspend(self) -> None:
        """Leave hosts alone while another screen is in front."""
        self._in_view.clear()

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take over which jobs wait, and have their hosts asked."""
        if not isinstance(answer.value, HomeWaiting) or not self.whole:
            return
        self._waiting = answer.value
        self._changes += 1
        hosts = queue_hosts(answer.value.jobs)
        self._wanted = frozenset(hosts)
        self._answers = {machine: found for machine, found in self._answers.items() if machine in hosts}
        for machine, options in hosts.items():
            if machine not in self._asked:
                self._asked.add(machine)
                start_loop(self, f"queue of {options.name}", partial(self._ask_again, machine, options))
        self._write()

    def _ask_again(self, machine: str, options: BackendOptions) -> None:
        """Ask a host again and again, in a thread of its own: one that hangs keeps only itself waiting."""
        worker, host = get_current_worker(), HostQuestion(options)
        while not worker.is_cancelled:
            changes, asked_at = self._changes, time.monotonic()
            if machine in self._wanted and not self.fabric.reader.paused:
                post(self, HostAnswered(machine, host.ask()))
            while time.monotonic() < asked_at + ASK_SECONDS and not worker.is_cancelled:
                worker.cancelled_event.wait(CHANGED_SECONDS)
                if changes != self._changes:
                    break
            self._in_view.wait()
        host.close()

    def on_host_answered(self, answered: HostAnswered) -> None:
        """Take over who waits at a host."""
        if answered.machine in self._wanted and not self.fabric.reader.paused:
            self._answers[answered.machine] = answered.answer
            self._write()

    def _write(self) -> None:
        if self.whole and self._waiting is not None:
            found = queues(self._waiting.home_uuid, self._waiting.jobs, self._answers)
            self.waiting.show(found, self.fabric.clock())
            self.refresh_head()

    @on(QueueList.Moved)
    def _moved(self) -> None:
        """Show the whole reason of the job under the cursor, which its line may have no room for."""
        if not self.whole:
            return
        shown, one = self.query_one("#queue-job", Static), self.waiting.chosen
        shown.set_class(one is None, "-empty")
        if one is not None and one.job is None:
            shown.update(plain(f"{one.title}: of other people's jobs no more is shown", "dim"))
        elif one is not None and one.job is not None:
            row = one.job.row
            shown.update(plain(row.name) + plain(f"  {row.reason.text or 'waits for its turn'}", "dim"))
        self.refresh_keys()

    def refresh_head(self) -> None:
        """Say how many jobs wait."""
        count = 0 if self._waiting is None else len(self._waiting.jobs)
        amount = "" if self._waiting is None else f"{formats.count(count, 'job')} wait" + "s" * (count == 1)
        self.head(("queue",), ((amount, "dim"),))

    # What is done with the job under the cursor

    def targets(self) -> list[JobRow]:
        """Return the job under the cursor, if it is of this home."""
        one = self.waiting.chosen if self.whole else None
        return [] if one is None or one.job is None else [one.job.row]

    def can_do(self, action_id: str) -> bool:
        """Offer what changes the order where the job under the cursor is one's own."""
        if action_id.startswith("queue."):
            return bool(self.targets())
        return super().can_do(action_id)

    def show(self, tab: str) -> None:
        """Open the job under the cursor on a tab."""
        for row in self.targets():
            self.fabric.open_job(row, tab)

    @on(QueueList.Chosen)
    def action_queue_open(self) -> None:
        """Open the job under the cursor."""
        self.show("overview")

    def action_queue_up(self) -> None:
        """Have the job start ahead of one's own job before it."""
        self._move_past("ahead")

    def action_queue_down(self) -> None:
        """Have the job start behind one's own job after it."""
        self._move_past("behind")

    def _move_past(self, side: Literal["ahead", "behind"]) -> None:
        among = self.waiting.beside
        self._change("move", lambda row: partial(_move_past, row, side, among))

    def _change(self, label: str, write: Callable[[JobRow], Write]) -> None:
        """Have the job under the cursor stand somewhere else; the cursor goes with it."""
        if not self.refused():
            for row in self.targets():
                self.waiting.hold()
                self.fabric.write(label, write(row))

    def action_queue_top(self) -> None:
        """Have the job start first."""
        self._change("move", lambda row: partial(_move_to_top, row))

    def action_queue_priority(self) -> None:
        """Ask for another priority."""
        one = self.waiting.chosen
        if one is not None and one.job is not None:
            self._ask("priority", "priority (0 to 100)", str(one.job.stands.priority))

    def action_queue_begin(self) -> None:
        """Ask for another time."""
        self._ask("begin", "begin (22:00, +2h, now)", "")

    def _ask(self, key: str, purpose: str, before: str) -> None:
        """Ask for another value of a key of ``fabric queue set``."""
        if not self.refused():
            for row in self.targets():
                self.waiting.hold()
                self.fabric.ask_line(purpose, before, (), partial(self._set, row, key))

    def _set(self, row: JobRow, key: str, line: str) -> None:
        self.fabric.write(key, partial(_set, row, f"{key}={line.strip()}"))


def _move_past(row: JobRow, side: Literal["ahead", "behind"], among: frozenset[str], store: Store) -> str:
    from workbench.services.control.requests import move_past

    move_past(store, row, side, among, origin="tui")
    return ""  # the list shows it


def _move_to_top(row: JobRow, store: Store) -> str:
    from workbench.services.control.requests import move

    move(store, row, "top", None, origin="tui")
    return ""  # the list shows it


def _set(row: JobRow, setting: str, store: Store) -> str:
    from workbench.services.control.requests import change, parse_change

    change(store, [row], parse_change([setting]), origin="tui")
    return ""  # the list shows it
