"""Everything that the screens do apart from drawing: Textual's thread workers, which answer by messages.

A short call gives a value to a callback (:meth:`Background.run`); a task is a call that is listed with how far it is
(:meth:`Background.begin`); a loop runs as long as the widget that owns it (:func:`start_loop`). Textual cancels a
widget's workers when the widget goes.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from textual.app import App
from textual.dom import DOMNode
from textual.message import Message
from textual.worker import NoActiveWorker, Worker, get_current_worker

from workbench.errors import FabricError
from workbench.values import dataclass

KEPT_TASKS: Final = 50
"""So many tasks that have ended are listed."""
NEWS_SECONDS: Final = 0.1
"""News of a task is passed on no more often than that."""
LEAVE_SECONDS: Final = 2.0
"""How long tasks that are left undone may take to clean up."""
T = TypeVar("T")
P = ParamSpec("P")
_PERCENT: Final = re.compile(r"\b(\d{1,3})(?:\.\d+)? ?%")


class Receiver(Protocol):
    """What messages are posted to: a widget, a screen, the app."""

    def post_message(self, message: Message) -> bool:
        """Take a message, from any thread."""


def post(receiver: Receiver, message: Message) -> None:
    """Post a message from a thread; after the end of the app nobody is there to take it, and that is well."""
    with contextlib.suppress(RuntimeError):  # its event loop is closed
        receiver.post_message(message)


class DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a daemon thread of its own; install it as the event loop's default executor.

    Textual runs thread workers there. Python's own executor has a few threads more than the machine has CPUs, which
    as many backends that hang would occupy, and it is joined at exit, so that leaving would wait for them.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a thread for the call."""
        future: Future[T] = Future()
        threading.Thread(target=_fill, args=(future, partial(fn, *args, **kwargs)), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing."""


def _fill(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = call()
    except BaseException as error:  # it is raised by whoever waits for the future
        future.set_exception(error)
    else:
        future.set_result(value)


class TaskReport(Protocol):
    """Takes how far a task is, from the task's thread, and says when nobody waits for it any longer."""

    @property
    def cancel(self) -> threading.Event:
        """Set once the task is to end: what a service takes as ``cancel``."""

    def __call__(self, text: str, fraction: float | None = None) -> None:
        """Take what it does now, and the share that is done; without one, a percentage in the text serves."""


@dataclass(slots=True)
class Task:
    """One thing that is done in the background, as it is listed."""

    title: str
    """What it does, in short: ``download digits``."""
    text: str = ""
    """What it does now."""
    fraction: float | None = None
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    error: FabricError | None = None
    is_kept: bool = False
    """Whether it is finished when the app is left: half of what was asked for is not what was asked for."""
    over: threading.Event = field(default_factory=threading.Event)
    cancel: threading.Event = field(default_factory=threading.Event)
    """Ends it."""

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return (self.ended if self.ended is not None else time.monotonic()) - self.began


class Finished(Message, bubble=False):
    """A call has ended; the app passes this on to :meth:`Background.deliver`."""

    def __init__(self, call: _Call, error: FabricError | None, take: Callable[[], Any] | None) -> None:
        super().__init__()
        self.call = call
        self.error = error
        self.take = take


class TaskNews(Message, bubble=False):
    """A task has begun, or is further than before."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Who wants the value of a call; each call is equal to itself alone."""

    owner: DOMNode | None
    newest: str
    task: Task | None

    @property
    def key(self) -> tuple[int, str]:
        return id(self.owner), self.newest


class Background:
    """Calls and tasks of the app. Its methods are called by the thread that draws; none of them waits."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._newest: dict[tuple[int, str], _Call] = {}
        self.tasks: list[Task] = []
        """The newest last."""

    @property
    def running(self) -> list[Task]:
        """The tasks that have not ended."""
        return [task for task in self.tasks if task.ended is None]

    def run(
        self,
        work: Callable[[], T],
        then: Callable[[T], Any],
        *,
        owner: DOMNode | None = None,
        newest: str = "",
    ) -> None:
        """Call ``work`` in a thread, then ``then`` with its value in the thread that draws.

        With an ``owner`` the value is dropped once it is removed. With ``newest``, a name, an older call of the
        same owner and name is cancelled and its value dropped: it never overwrites a newer one.
        """
        self._start(lambda report: work(), then, _Call(owner, newest, None))

    def begin(
        self, title: str, work: Callable[[TaskReport], T], then: Callable[[T], Any], *, is_kept: bool = False
    ) -> Task:
        """Do something that takes long, and list it; ``then`` is called with its value in the thread that draws.

        One that is kept is finished, too, when the app is left meanwhile.
        """
        task = Task(title, is_kept=is_kept)
        kept = self.running if len(self.tasks) > KEPT_TASKS else self.tasks
        self.tasks = [*kept, task]
        self._start(work, then, _Call(None, "", task))
        post(self._app, TaskNews())
        return task

    def cancel(self, owner: DOMNode, newest: str) -> None:
        """Drop the value of the call of that name."""
        self._newest.pop((id(owner), newest), None)
        owner.workers.cancel_group(owner, newest)

    def finish(self, say: Callable[[str], object]) -> None:
        """Wait, after the end of the app, for the tasks that are kept; ctrl-c leaves what is left of them undone.

        The others are ended.
        """
        for task in self.running:
            if not task.is_kept:
                task.cancel.set()
        for task in [task for task in self.tasks if task.is_kept and task.ended is None]:
            say(f"{task.title}: {task.text or 'begins'}; it is finished now, ctrl-c leaves the rest undone\n")
            try:
                task.over.wait()
            except KeyboardInterrupt:
                self._leave_kept()
                say(f"{task.title}: left at {task.text}\n")
                return
            say(f"{task.title}: {f'failed: {task.error}' if task.error else 'done'}\n")

    def _leave_kept(self) -> None:
        """End what is left, so that nothing half-made stays; what cannot be ended at once is left as it is."""
        left = [task for task in self.tasks if task.ended is None]
        for task in left:
            task.cancel.set()
        until = time.monotonic() + LEAVE_SECONDS
        for task in left:
            task.over.wait(max(0.0, until - time.monotonic()))

    def _start(self, work: Callable[[TaskReport], T], then: Callable[[T], Any], call: _Call) -> None:
        node = call.owner or self._app
        if call.newest:
            self._newest[call.key] = call
        node.run_worker(
            partial(self._run, work, then, call),
            name=call.task.title if call.task else "call",
            group=call.newest or "calls",
            exclusive=bool(call.newest),
            exit_on_error=False,
            thread=True,
        )

    def _run(self, work: Callable[[TaskReport], T], then: Callable[[T], Any], call: _Call) -> None:
        error: FabricError | None = None
        take: Callable[[], Any] | None = None
        try:
            value = work(_Report(self._app, call.task))
        except FabricError as raised:
            error = raised
        except (OSError, IndexError) as raised:  # a file was cut or replaced meanwhile
            error = FabricError(f"the file changed while it was read: {raised}")
        except Exception as raised:  # a bug of ours is shown, and must not end in silence
            what = call.task.title if call.task else "reading"
            error = FabricError(f"{what} failed: {type(raised).__name__}: {raised}")
        else:
            take = partial(then, value)
        if call.task is not None:
            call.task.error, call.task.ended = error, time.monotonic()
            call.task.over.set()
        post(self._app, Finished(call, error, take))

    def deliver(self, finished: Finished) -> FabricError | None:
        """Give a value to who wants it; return why there is none, if somebody still wants to know."""
        call = finished.call
        if call.newest and self._newest.get(call.key) is not call:
            return None
        if call.newest:
            del self._newest[call.key]
        if call.owner is not None and not call.owner.is_attached:
            return None
        if finished.take is not None:
            finished.take()
        return finished.error


class _Report:
    """Notes how far a task is, and has that shown; a call that is no task reports nothing."""

    def __init__(self, app: Receiver, task: Task | None) -> None:
        self._app = app
        self._task = task
        self._passed_on = 0.0

    @property
    def cancel(self) -> threading.Event:
        """Set once the task is to end; a call that is no task ends with whoever wanted it."""
        return self._task.cancel if self._task is not None else get_current_worker().cancelled_event

    def __call__(self, text: str, fraction: float | None = None) -> None:
        """Take what the task does now."""
        if self._task is None:
            return
        self._task.text = text
        self._task.fraction = fraction if fraction is not None else percentage(text)
        if time.monotonic() - self._passed_on >= NEWS_SECONDS:
            self._passed_on = time.monotonic()
            post(self._app, TaskNews())


def cancel_event() -> threading.Event | None:
    """Return what is set once nobody wants the value of the call that runs in this thread; None outside of a call."""
    try:
        return get_current_worker().cancelled_event
    except NoActiveWorker:
        return None


def start_loop(owner: DOMNode, name: str, loop: Callable[[], None]) -> Worker[None]:
    """Run in a thread what goes on as long as a widget or the app; its owner ends it."""
    app = owner.app

    def run() -> None:
        try:
            loop()
        except Exception as error:  # a bug of ours is shown; the screens stay
            raised = FabricError(f"{name} failed: {type(error).__name__}: {error}")
            post(app, Finished(_Call(None, "", None), raised, None))

    return owner.run_worker(run, name=name, group=name, exit_on_error=False, thread=True)


def percentage(text: str) -> float | None:
    """Return the share that a sentence names, from 0 to 1: ``copied 43%``."""
    found = _PERCENT.search(text)
    return min(1.0, int(found[1]) / 100) if found else None
