"""A controller that does not answer is named, a stop ends it, and what only looks so is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.controllers import answers, controller, end_all, log_of
from tests.support.real_jobs import Ground
from tests.support.waiting import ended, until
from workbench.clock import elapsed_seconds, now_us
from workbench.controller.client import connect, hang
from workbench.controller.client.connect import (
    end_controller,
    ensure_controller,
    ensure_heard,
    is_unheard,
    nudge_or_start,
    restart_controller,
    status,
)
from workbench.controller.client.hang import UnansweringController
from workbench.controller.runtime.lock import ControllerLock, read_lock
from workbench.errors import TryAgain
from workbench.job import State
from workbench.learner.platform import system
from workbench.paths import Home
from workbench.services.control.requests import request_stop
from workbench.services.controller_watch import hang_sentence, last_look_us
from workbench.services.follow import full_disk
from workbench.services.follow.full_disk import LONG_SECONDS, UnrecordedEnd
from workbench.services.follow.keeper import Keeper
from workbench.services.follow.wait import wait_until
from workbench.store.db.database import Store
from workbench.store.db.rows import is_over

Stop = Callable[[int], None]


@pytest.fixture
def made(home: Home) -> Iterator[Home]:
    """A home with a store; whatever controller it has at the end is ended."""
    Store.open(home).close()
    yield home
    end_all(home)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a controller hang after a moment."""
    monkeypatch.setattr(connect, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(hang, "HANGS_SECONDS", 0.2)


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[Home]:
    """The homes that controllers are started for."""
    homes: list[Home] = []
    spawn = connect._spawn

    def count(home: Home, *, wait: bool = False) -> None:
        homes.append(home)
        spawn(home, wait=wait)

    monkeypatch.setattr(connect, "_spawn", count)
    return homes


def send_stop(pid: int) -> None:
    """Stop a controller, and wait until it is: it goes on for a moment after the signal, and may answer."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: system.state_letter(pid) == "T", "the controller to stop")


@pytest.fixture
def stop(made: Home) -> Iterator[Stop]:
    """Stops a process as SIGSTOP does; those that are left go on at the end."""
    stopped: list[int] = []

    def send(pid: int) -> None:
        stopped.append(pid)
        send_stop(pid)

    yield send
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def named(home: Home) -> str:
    """Wait until a controller that hangs is named."""
    return until(lambda: ensure_controller(home), "the controller to be named")


def test_one_that_is_stopped_is_named_and_no_other_is_started(
    made: Home, stop: Stop, spawned: list[Home]
) -> None:
    pid = controller(made).pid
    answers(made)
    stop(pid)

    why = named(made)

    assert why == (
        f"controller {pid} does not answer (stopped); `fabric controller restart` ends it and starts another"
    )
    nudge_or_start(made)
    assert spawned == []


def test_one_that_can_take_no_more_clients_is_there_all_the_same(
    made: Home, stop: Stop, spawned: list[Home]
) -> None:
    pid = controller(made).pid
    address = answers(made).socket
    stop(pid)
    with ExitStack() as clients:
        with suppress(BlockingIOError):
            while True:
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(address)

        assert "does not answer (stopped)" in named(made)
        nudge_or_start(made)
    assert spawned == []


def test_a_stop_ends_it_and_starts_another(made: Home, stop: Stop) -> None:
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)
    messages: list[str] = []

    assert ensure_heard(made, messages.append)

    assert ended(hanging) == -signal.SIGKILL
    assert answers(made).pid != hanging.pid
    assert messages == [
        f"controller {hanging.pid} does not answer (stopped): it is ended, and another one is started"
    ]


def test_a_stop_that_one_hears_is_left_to_it(made: Home, spawned: list[Home]) -> None:
    pid = controller(made).pid
    answers(made)
    messages: list[str] = []

    assert ensure_heard(made, messages.append)

    assert (messages, spawned, answers(made).pid) == ([], [], pid)


def test_a_job_is_killed_though_its_controller_hangs(own_ground: Ground) -> None:
    job_id = own_ground.submit("echo ready; sleep 1000")
    own_ground.prints(job_id, "ready")
    row = own_ground.reaches(job_id, State.PROCESSING)
    hanging = answers(own_ground.home).pid
    send_stop(hanging)

    request_stop(own_ground.store, [row], "kill", origin="test")
    [row], _ = wait_until(own_ground.store, [row], lambda rows: is_over(rows[0]), stops=True)

    assert (row.state, row.exit_by) == (State.HALTED, "kill")
    assert answers(own_ground.home).pid != hanging


def test_one_that_cannot_be_ended_keeps_no_learner_here_from_being_killed(
    own_ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a disk cannot: the signal is lost here."""
    job_id = own_ground.submit("echo ready; sleep 1000")
    own_ground.prints(job_id, "ready")
    row = own_ground.reaches(job_id, State.PROCESSING)
    hanging = answers(own_ground.home).pid
    send_stop(hanging)
    monkeypatch.setattr(hang, "DIES_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(hang, "_kill", lambda found: None)
    state = own_ground.learner(job_id).path / "state.json"

    request_stop(own_ground.store, [row], "kill", origin="test")

    until(lambda: json.loads(state.read_text())["phase"] == "exited", "the learner to end")
    os.kill(hanging, signal.SIGCONT)
    assert own_ground.ends(job_id).exit_by == "kill"


def test_who_waits_until_a_job_is_stopped_ends_one_that_hangs_meanwhile(made: Home, stop: Stop) -> None:
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)

    with Keeper(made, stops=True) as keeper:
        assert ended(hanging) == -signal.SIGKILL
        until(lambda: "it is ended" in keeper.error, lambda: keeper.error)


def test_who_only_waits_leaves_it_and_says_so(made: Home, stop: Stop) -> None:
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)
    messages: list[str] = []

    with Keeper(made, say=messages.append):
        until(lambda: messages, "a message")

    assert f"controller {hanging.pid} does not answer (stopped)" in messages[0]
    assert hanging.poll() is None


def test_one_that_goes_on_is_left_alone(made: Home, stop: Stop) -> None:
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)
    named(made)
    hanging.send_signal(signal.SIGCONT)

    until(lambda: status(made) is not None, "it to answer again")

    assert ensure_heard(made, lambda text: pytest.fail(text))
    assert answers(made).pid == hanging.pid


def test_a_wait_that_ends_late_does_not_count(made: Home) -> None:
    """The machine slept, or this process was stopped: the controller was not silent while it could have answered."""
    controller(made)
    answers(made)

    hang.count_silence(made, elapsed_seconds() - 3600.0, 2.0)

    assert hang.unanswering(made, after=0.1) is None
    hang.end_silence(made)


def test_a_stop_counts_as_heard_by_no_controller_that_a_late_wait_has_left_unasked(
    made: Home, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is very busy wakes a client late, as one does that slept."""
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)
    late, count = [3600.0], hang.count_silence

    def count_late_once(home: Home, began: float, patience: float) -> None:
        count(home, began - (late.pop() if late else 0.0), patience)

    monkeypatch.setattr(hang, "count_silence", count_late_once)

    assert ensure_heard(made, lambda _: None)
    assert ended(hanging) == -signal.SIGKILL


def test_waits_at_the_same_time_count_once(made: Home) -> None:
    controller(made)
    answers(made)
    began = elapsed_seconds() - 2.0

    hang.count_silence(made, began, 2.0)
    hang.count_silence(made, began, 2.0)

    found = hang.unanswering(made)
    assert found is not None and 2.0 <= found.seconds < 3.0
    hang.end_silence(made)


@pytest.mark.parametrize(
    ("why", "seconds", "may"),
    [("stopped", 5.0, True), ("waits for a disk", 6.0, False), ("", 6.0, False), ("", 20.0, True)],
)
def test_one_that_may_be_busy_is_given_longer(why: str, seconds: float, may: bool) -> None:
    assert UnansweringController(1, 1, "1.0", why, seconds).may_be_ended is may


def test_a_process_that_has_its_number_now_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        later = UnansweringController(other.pid, system.start_ticks(other.pid) + 1, "1.0", "stopped", 9.0)

        assert hang.end_process(later)
        assert other.poll() is None
        other.kill()


def test_a_client_may_end_it_and_start_another(made: Home, stop: Stop) -> None:
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)

    found = restart_controller(made, lambda text: None)

    assert ended(hanging) == -signal.SIGKILL
    assert found.pid != hanging.pid
    assert restart_controller(made, lambda text: None).pid != found.pid


def test_to_stop_the_controller_ends_one_that_hangs(made: Home, stop: Stop) -> None:
    hanging = controller(made)
    answers(made)
    stop(hanging.pid)
    messages: list[str] = []

    assert end_controller(made, messages.append)
    assert ended(hanging) == -signal.SIGKILL
    assert messages == [f"controller {hanging.pid} does not answer (stopped): it is ended"]
    assert not end_controller(made, messages.append)


def test_one_that_hangs_is_no_full_disk(made: Home, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = controller(made).pid
    answers(made)
    stop(pid)
    why = named(made)
    now = [100.0]
    monkeypatch.setattr(full_disk, "elapsed_seconds", lambda: now[0])
    end = UnrecordedEnd(made)

    end.check([], why)
    now[0] += LONG_SECONDS - 1
    end.check([], why)
    now[0] += 1

    with pytest.raises(TryAgain, match="does not answer"):
        end.check([], why)


def written(home: Home, **changes: object) -> int:
    """Write what a controller with our own number would, with changes; return when it last looked."""
    lock = ControllerLock.take(home)
    assert lock is not None
    lock.write_address("/none.sock")
    lock.beat()
    lock.release()
    text = {**json.loads(home.controller_lock.read_text()), **changes}
    home.controller_lock.write_text(
        json.dumps({key: value for key, value in text.items() if value is not None})
    )
    return int(text["looked_us"])


def test_a_lock_that_names_a_process_which_somebody_else_is_now_counts_as_left(made: Home) -> None:
    written(made)
    assert last_look_us(made) is None, "it is us"

    at = written(made, start_ticks=system.start_ticks(os.getpid()) + 1)
    assert last_look_us(made) == at
    at = written(made, boot_id="another")
    assert last_look_us(made) == at


def test_a_lock_of_an_older_version_is_read_and_one_of_a_newer(made: Home) -> None:
    written(made, start_ticks=None, boot_id=None)
    held = read_lock(made)
    assert held is not None and (held.pid, held.start_ticks) == (os.getpid(), 0)
    assert last_look_us(made) is None

    written(made, more="of a newer version")
    held = read_lock(made)
    assert held is not None and held.start_ticks == system.start_ticks(os.getpid())


def test_who_only_reads_sees_at_once_that_it_is_stopped(made: Home, stop: Stop) -> None:
    pid = controller(made).pid
    answers(made)
    until(lambda: (held := read_lock(made)) is not None and held.looked_us is not None)
    assert last_look_us(made) is None and hang_sentence(made) == ""
    stop(pid)

    assert last_look_us(made) is not None
    assert (
        hang_sentence(made)
        == f"controller {pid} is stopped; `fabric controller restart` ends it and starts another"
    )


def test_one_that_lives_and_has_not_looked_for_long_is_not_called_gone(made: Home) -> None:
    written(made, looked_us=now_us() - 60_000_000)

    assert hang_sentence(made) == f"controller {os.getpid()} has not looked since"


def test_controllers_that_end_at_once_are_started_ever_less_often_with_a_message(
    made: Home, spawned: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    false = shutil.which("false")
    assert false is not None
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", false)
        broken.setattr(connect, "AGAIN_SECONDS", (0.0, 1000.0))

        assert named(made) == "controllers end at once: exit code 1"
        for _ in range(20):
            assert ensure_controller(made) == "controllers end at once: exit code 1"
            nudge_or_start(made)

    assert len(spawned) == 2
    assert is_unheard(made)
    monkeypatch.setitem(connect._failures, made.path, connect._Failure(2, 0.0, 1, "exit code 1"))
    until(lambda: not ensure_controller(made), "a controller to answer")
    assert not is_unheard(made)


def test_what_such_a_controller_wrote_last_is_why(
    made: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.controller_log.write_text("what another one wrote\n")
    script = tmp_path / "python"
    line = "2026-01-01T00:00:00Z [17] ends: \\033[31mMemoryError"
    script.write_text(f"#!/bin/sh\nprintf 'Traceback\\n{line}\\n\\n' >&2; exit 70\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    assert named(made) == "controllers end at once: ends: \\x1b[31mMemoryError", log_of(made)


@pytest.mark.parametrize("fails", ["exit 70", "ulimit -c 0; kill -ABRT $$"])
def test_controllers_that_answer_and_end_soon_by_a_failure_are_started_ever_less_often(
    made: Home, spawned: list[Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    os.mkfifo(end := tmp_path / "end")
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\n{sys.executable} "$@" & read word < {end}\nkill $!; wait $!; echo "[1] no memory" >&2; {fails}\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(connect, "AGAIN_SECONDS", (0.0, 0.0, 1000.0))

    def has_failed() -> bool:
        connect.reap()
        return made.path in connect._failures

    for count in (1, 2, 3):
        until(
            lambda: status(made) or (not ensure_controller(made) and status(made)), "a controller to answer"
        )
        assert len(spawned) == count and not is_unheard(made)
        end.write_text("now\n")
        until(has_failed, "its end to be noticed")

    for _ in range(20):
        assert "controllers end at once: " in ensure_controller(made)
    assert len(spawned) == 3
    assert is_unheard(made)


def test_a_home_that_takes_no_more_is_the_stores_trouble(
    made: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'controller: the disk is full' >&2; exit 73\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    assert named(made) == "controllers end at once: controller: the disk is full"
    assert not is_unheard(made)
