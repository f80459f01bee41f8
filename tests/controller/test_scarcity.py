"""A controller with too few descriptors or too little memory: it says so, goes on, and no job waits for ever."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from runners.interface import Runner
from tests.quick.controller.values import HOME, row, spec
from tests.support.controllers import ROOT, answers, controller, end_all
from tests.support.waiting import patience
from workbench.controller.decide.errors import EXHAUSTED, classify_error
from workbench.controller.decide.messages import Event, LogNote, Unreachable
from workbench.controller.decide.model import BackendTrouble, Finish, Operation
from workbench.controller.decide.reconcile import decide
from workbench.controller.loop.job_state import EXHAUSTED_TRIES, TrackedJob
from workbench.controller.runtime import server
from workbench.controller.runtime.lock import read_lock
from workbench.controller.runtime.server import ControllerServer, socket_path
from workbench.controller.targets import worker_pool
from workbench.controller.targets.observer import TargetObserver
from workbench.controller.targets.worker_pool import Call, WorkerPool
from workbench.errors import BackendUnreachable, CannotWrite, RunnerError
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store

TOO_MANY = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
NO_THREAD = RuntimeError("can't start new thread")


class Threads:
    """Lets threads start, or refuses them as a system without memory does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = True
        start = threading.Thread.start

        def try_to_start(thread: threading.Thread) -> None:
            if self.refused:
                raise NO_THREAD
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", try_to_start)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (TOO_MANY, "no file descriptors"),
        (MemoryError(), "no memory"),
        (NO_THREAD, "no memory or threads"),
        (caused(CannotWrite("cannot write x"), TOO_MANY), "no file descriptors"),
        (caused(BackendUnreachable("no answer"), TOO_MANY), "no file descriptors"),
        (caused(RunnerError("cannot be started"), MemoryError()), "no memory"),
    ],
)
def test_what_the_controller_lacks_is_the_reason(error: BaseException, lacking: str) -> None:
    trouble = classify_error(error, started=False)

    assert trouble.reason.code == EXHAUSTED
    assert trouble.reason.text.startswith(f"the controller has {lacking} left")
    assert "ulimit" in trouble.reason.hint


@pytest.mark.parametrize("started", [False, True])
def test_a_launch_that_lacks_something_is_tried_again_and_then_ends_the_job_with_that(started: bool) -> None:
    tracked = TrackedJob.load(row(State.PENDING), spec(), HOME)
    tracked.observed([], whole=True)
    trouble = classify_error(TOO_MANY, started=started)
    now = 0.0
    for _ in range(EXHAUSTED_TRIES):
        tracked.call(Operation.LAUNCH)
        tracked.call_failed(trouble, now)
        assert not any(isinstance(one, Finish) for one in decide(tracked.snapshot(now)).actions)
        assert tracked.trouble is not None and tracked.trouble.reason == trouble.reason
        assert tracked.not_before is not None
        now = tracked.not_before

    tracked.call(Operation.LAUNCH)
    tracked.call_failed(trouble, now)
    [finish] = decide(tracked.snapshot(now)).actions
    assert isinstance(finish, Finish)
    assert (finish.outcome.state, finish.outcome.reason) == (State.FAILED, trouble.reason)
    assert finish.restart is None


def test_a_call_that_works_again_begins_to_count_anew() -> None:
    tracked = TrackedJob.load(row(State.PENDING), spec(), HOME)
    trouble = BackendTrouble("fault", Reason("the controller has no memory left", EXHAUSTED))
    for _ in range(EXHAUSTED_TRIES):
        tracked.call(Operation.LAUNCH)
        tracked.call_failed(trouble, 0.0)
    tracked.call(Operation.LAUNCH)
    tracked.launched(1.0)
    tracked.call(Operation.LAUNCH)
    tracked.call_failed(trouble, 2.0)

    assert tracked.fault is None


def test_a_call_is_made_once_a_thread_can_be_started(threads: Threads) -> None:
    posted: SimpleQueue[Event] = SimpleQueue()
    pool = WorkerPool("test", posted.put)
    pool.submit(Call(lambda: LogNote("made"), lambda: None, 60.0))
    due = pool.check(0.0)
    threads.refused = False
    pool.check(1.0)

    assert due is not None, "it is looked at again"
    assert posted.get(timeout=patience()) == LogNote("made")
    pool.close()


def test_a_call_that_no_thread_can_be_started_for_is_given_up_and_the_pool_goes_on(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "STARVED_SECONDS", 0.0)
    posted: SimpleQueue[Event] = SimpleQueue()
    pool = WorkerPool("test", posted.put)
    pool.submit(Call(lambda: LogNote("made"), lambda: None, 60.0, starved=lambda error: LogNote(str(error))))
    pool.check(float("inf"))
    assert posted.get(timeout=patience()) == LogNote(str(NO_THREAD))

    threads.refused = False
    pool.submit(Call(lambda: LogNote("next"), lambda: None, 60.0))
    assert posted.get(timeout=patience()) == LogNote("next")
    pool.close()


def test_a_watch_whose_thread_cannot_be_started_says_so_and_is_started_later(threads: Threads) -> None:
    posted: SimpleQueue[Event] = SimpleQueue()
    asked = threading.Event()

    def make_runner() -> Runner:
        asked.set()
        raise BackendUnreachable("it was asked")

    observer = TargetObserver("box", make_runner, posted.put)
    observer.probe()
    assert observer.check() is not None
    event = posted.get(timeout=patience())
    assert isinstance(event, Unreachable) and "no memory or threads" in event.text

    threads.refused = False
    assert observer.check() is None
    assert asked.wait(patience())
    observer.end()


def test_the_socket_answers_again_after_a_time_without_descriptors(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ACCEPT_AGAIN_SECONDS", 0.01)
    failed = threading.Event()

    class Listener:
        def accept(self) -> object:
            if not failed.is_set():
                failed.set()
                raise TOO_MANY
            return real.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    made = ControllerServer(socket_path("scarce"), lambda _: {"ok": True})
    real = made._listener
    made._listener = Listener()  # type: ignore[assignment]
    made.start()
    from workbench.controller.client.connect import _connect, _read_answer

    assert failed.wait(patience())
    connection = _connect(str(made.path), "wake")
    assert connection is not None
    assert _read_answer(connection) == {"ok": True}
    made.close()


def test_the_soft_limit_is_raised_to_the_hard_one(home: Home) -> None:
    Store.open(home).close()
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    controller(home, preexec_fn=limit)
    pid = answers(home).pid

    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)
    end_all(home)


def test_a_controller_that_falls_leaves_why(home: Home) -> None:
    Store.open(home).close()
    program = (
        "import sys, workbench.controller.main as main\n"
        "def fall(*_): raise MemoryError\n"
        "main._run = fall\n"
        "sys.exit(main.main(['--home', sys.argv[1]]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, home.path], cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 70, ran.stderr
    held = read_lock(home)
    assert held is not None and (held.socket, held.ended) == ("", "MemoryError")
    assert "MemoryError" in home.controller_log.read_text()


def test_a_thread_that_dies_is_in_the_log(home: Home, tmp_path: Path) -> None:
    Store.open(home).close()
    program = (
        "import sys, threading, workbench.controller.main as main\n"
        "def run(*_):\n"
        "    def die(): raise ValueError('worn out')\n"
        "    thread = threading.Thread(target=die, name='weak')\n"
        "    thread.start(); thread.join()\n"
        "    return 0\n"
        "main._run = run\n"
        "sys.exit(main.main(['--home', sys.argv[1]]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, home.path], cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert "thread weak, which ends: ValueError: worn out" in home.controller_log.read_text()
