"""The controller as a process: one a home, quick to answer, harmless when killed, gone when nothing is left to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.controllers import alive, answers, controller, end_all, kill, log_of
from tests.support.forked import POSIX_SPAWN
from tests.support.real_jobs import Ground
from tests.support.waiting import ended, patience, until
from workbench.controller.client import connect
from workbench.controller.client.connect import (
    end_controller,
    ensure_controller,
    status,
    stop_controller,
    wake,
)
from workbench.controller.runtime.lock import ControllerLock, read_lock
from workbench.controller.runtime.server import ControllerServer, socket_path
from workbench.errors import NotAllowed
from workbench.learner.platform import system
from workbench.paths import Home, runtime_folder
from workbench.services.controller_watch import last_look_us
from workbench.store.db.database import Store, home_uuid
from workbench.version import VERSION


@pytest.fixture(autouse=True)
def as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controllers are started here as users' are."""
    monkeypatch.setattr(os, "posix_spawn", POSIX_SPAWN)


@pytest.fixture
def made(home: Home) -> Iterator[Home]:
    """A home with a store; whatever controller it has at the end is ended."""
    Store.open(home).close()
    yield home
    end_all(home)


def test_it_is_started_on_demand_and_answers_who_it_is(made: Home) -> None:
    ensure_controller(made)
    answer = answers(made)

    assert (answer.version, answer.home, answer.open_jobs) == (VERSION, home_uuid(made), 0)
    assert alive(answer.pid)
    held = read_lock(made)
    assert held is not None and (held.pid, held.host) == (answer.pid, socket.gethostname())


def test_asking_again_wakes_the_one_there_is(made: Home) -> None:
    ensure_controller(made)
    first = answers(made)
    ensure_controller(made)

    assert wake(made)
    assert answers(made).pid == first.pid


def test_it_is_looked_for_while_another_thread_imports_what_starts_it(
    made: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_controller(made)
    answers(made)
    monkeypatch.setitem(
        sys.modules, connect.__name__, ModuleType(connect.__name__)
    )  # nothing of it is there yet

    assert last_look_us(made) is None


def test_two_threads_may_bury_the_same_ended_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["true"])
    until(lambda: os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT) is not None)
    spawned = [ended.pid]
    monkeypatch.setattr(connect, "_spawned", spawned)
    wait = os.waitpid

    def wait_late(pid: int, options: int) -> tuple[int, int]:
        monkeypatch.setattr(os, "waitpid", wait)
        connect.reap()  # as another thread does at this moment
        return wait(pid, options)

    monkeypatch.setattr(os, "waitpid", wait_late)
    connect.reap()
    ended.wait()

    assert spawned == []


def test_it_belongs_to_no_terminal_no_folder_and_keeps_no_descriptor_of_who_started_it(made: Home) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    ensure_controller(made)
    os.close(writing)
    pid = answers(made).pid

    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
    assert Path(f"/proc/{pid}/fd/1").readlink() == made.controller_log
    assert os.read(reading, 1) == b"", "it holds a pipe of the command that started it"
    os.close(reading)


def test_folders_of_the_users_that_are_called_like_ours_are_not_imported(
    made: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("workbench", "runners", "backends", "socket"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('the decoy {name} was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ensure_controller(made)

    assert answers(made).version == VERSION
    assert "decoy" not in log_of(made)


def test_of_many_that_start_at_once_one_stays_and_the_others_end_with_0(made: Home) -> None:
    started = [controller(made) for _ in range(4)]
    answer = answers(made)
    others = [one for one in started if one.pid != answer.pid]

    assert [ended(one) for one in others] == [0, 0, 0]
    assert status(made) is not None
    stop_controller(made)
    [stayed] = [one for one in started if one.pid == answer.pid]
    assert ended(stayed) == 0


def test_a_signal_ends_it_cleanly_and_leaves_no_socket(made: Home) -> None:
    process = controller(made)
    path = Path(answers(made).socket)
    process.send_signal(signal.SIGTERM)

    assert ended(process) == 0
    assert not path.exists()
    assert "SIGTERM came" in log_of(made)
    assert status(made) is None


HANGS = """
import sys, threading
from workbench.controller import main
from workbench.controller.loop.loop import Loop
main.ENDS_WITHIN_SECONDS = 0.1
Loop.run = lambda self: threading.Event().wait()
sys.exit(main.main(["--home", sys.argv[1]]))
"""


def test_one_that_hangs_is_ended_by_a_signal_too(made: Home) -> None:
    process = subprocess.Popen([sys.executable, "-c", HANGS, str(made.path)])
    until(lambda: "looks after" in log_of(made), lambda: log_of(made))

    def is_over() -> bool:
        for _ in range(50):  # that gives it no more time, and interrupts no handler
            process.terminate()
        return process.poll() is not None

    until(is_over, "its end")

    assert process.returncode == -signal.SIGALRM
    ensure_controller(made)
    assert answers(made).pid != process.pid


LOSES_ITS_STORE = """
import shutil, sys
from pathlib import Path
from workbench.controller import main
from workbench.controller.loop.loop import Loop
from workbench.store.db.errors import lost_store
home, removes = Path(sys.argv[1]), sys.argv[2]
def lose(self):
    shutil.rmtree(home) if removes else None
    raise lost_store(home / "fabric.db")
Loop.run = lose
sys.exit(main.main(["--home", str(home)]))
"""


@pytest.mark.parametrize(("removes", "code"), [("home", 0), ("", 66)])
def test_a_home_that_is_removed_in_the_middle_of_work_is_a_controllers_ordinary_end(
    made: Home, removes: str, code: int
) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOSES_ITS_STORE, str(made.path), removes])

    assert ended(process) == code
    assert made.path.exists() is (not removes)


def test_one_that_is_asked_where_it_is_says_so_in_its_log_and_goes_on(made: Home) -> None:
    ensure_controller(made)
    pid = answers(made).pid
    os.kill(pid, signal.SIGUSR1)

    until(lambda: " in _run" in log_of(made), lambda: log_of(made))
    assert answers(made).pid == pid


def test_a_client_can_end_it(made: Home) -> None:
    process = controller(made)
    answers(made)

    assert stop_controller(made)
    assert ended(process) == 0
    assert not stop_controller(made)


def test_when_it_was_ended_nothing_of_it_is_left(made: Home) -> None:
    messages: list[str] = []
    pid = controller(made).pid
    answers(made)

    assert end_controller(made, messages.append)
    assert system.start_ticks(pid) == 0
    assert not list(made.path.glob("*.db-wal"))
    assert not messages


def test_one_that_takes_long_to_end_is_named(made: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    pid = controller(made).pid
    answers(made)
    held = read_lock(made)
    assert held is not None
    monkeypatch.setattr(connect, "ENDS_WITHIN_SECONDS", 0.0)
    monkeypatch.setattr(system, "start_ticks", {pid: held.start_ticks}.__getitem__)

    assert end_controller(made, messages.append)
    assert messages == [f"controller {pid} is ending: what it does now is not done yet"]


def test_a_killed_controller_leaves_when_it_last_looked(made: Home) -> None:
    ensure_controller(made)
    pid = answers(made).pid
    until(lambda: (held := read_lock(made)) is not None and held.looked_us is not None)
    assert last_look_us(made) is None, "one looks now"
    kill(pid)

    left = read_lock(made)
    assert left is not None and left.looked_us is not None
    at = left.looked_us
    until(lambda: last_look_us(made) == at)  # its threads may end a moment after its first one


def test_after_a_kill_the_next_client_starts_another_over_what_it_left(made: Home) -> None:
    ensure_controller(made)
    first = answers(made)
    kill(first.pid)
    assert Path(first.socket).exists() and not wake(made)

    ensure_controller(made)
    until(lambda: (answer := status(made)) is not None and answer.pid != first.pid)


def test_it_ends_when_nothing_was_left_to_do_for_a_while(made: Home) -> None:
    process = controller(made, env={"FABRIC_LINGER_SECONDS": "0.05"})

    assert ended(process) == 0
    assert "nothing was left to do" in log_of(made)


def test_a_client_that_comes_while_it_ends_starts_another(made: Home) -> None:
    for _ in range(5):
        controller_process = controller(made, env={"FABRIC_LINGER_SECONDS": "0.0"})
        while controller_process.poll() is None:
            # Whoever gets the answer "yes" is heard; whoever is not starts another one.
            wake(made)
        assert controller_process.returncode == 0


def test_it_ends_when_its_lock_file_is_removed_so_that_there_are_never_two(made: Home) -> None:
    lock = ControllerLock.take(made)
    assert lock is not None and lock.is_ours()
    assert ControllerLock.take(made) is None
    made.controller_lock.unlink()

    assert not lock.is_ours()
    other = ControllerLock.take(made)
    assert other is not None and other.is_ours() and not lock.is_ours()
    other.release()
    lock.release()


def test_one_that_finds_the_lock_held_by_nobody_who_answers_stays_until_it_is_let_go(made: Home) -> None:
    dying = ControllerLock.take(made)
    assert dying is not None
    process = controller(made)
    threading.Timer(0.3, dying.release).start()

    assert answers(made).pid == process.pid


def test_an_older_one_is_asked_to_step_down_for_a_newer_client(
    made: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_controller(made)
    first = answers(made)
    monkeypatch.setattr("workbench.controller.client.connect.VERSION", "99.0.0")
    ensure_controller(made)
    until(lambda: (answer := status(made)) is not None and answer.pid != first.pid, lambda: log_of(made))

    assert "ends: a client asked for it" in log_of(made)
    until(lambda: not alive(first.pid))


def test_its_socket_is_for_its_owner_alone_and_its_path_never_too_long(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = socket_path("u" * 36)
    server = ControllerServer(path, lambda what: {"ok": True})
    server.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime_folder().stat().st_mode) == 0o700
    server.close()

    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert len(str(socket_path("u" * 36))) <= 100


def test_a_runtime_folder_that_is_open_to_others_is_refused(home: Home) -> None:
    runtime_folder().mkdir(mode=0o755)
    runtime_folder().chmod(0o755)

    with pytest.raises(NotAllowed, match="not a folder of yours alone"):
        socket_path("u" * 36)


def test_it_answers_nonsense_with_a_sentence_and_goes_on(made: Home) -> None:
    ensure_controller(made)
    path = answers(made).socket

    def say(line: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(path)
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(4096)

    assert b"unknown command" in say(b'{"do": "dance"}\n')
    assert b"send one JSON object" in say(b"[]\n")
    unlent = b'{"do": "lend", "place": {"name": "x"}, "command": 7}\n'
    for garbage in (b"", b"\0\xff\n", b"{" * 10_000, b"x" * 100_000, b'{"do": "lend"}\n', unlent):
        try:
            say(garbage)
        except (BrokenPipeError, ConnectionResetError):
            continue  # it hung up in the middle
    assert json.loads(say(b'{"do": "status"}\n'))["ok"]


def test_a_stopped_controller_blocks_no_client_for_long(made: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    process = controller(made)
    answers(made)
    monkeypatch.setattr(connect, "ANSWER_SECONDS", 0.1)
    process.send_signal(signal.SIGSTOP)

    def is_stopped() -> bool:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    try:
        until(is_stopped, "the controller to stop")  # on a busy machine it runs on until its turn comes
        ensure_controller(made)
        assert is_stopped()
    finally:
        process.send_signal(signal.SIGCONT)
    assert wake(made)


def test_two_homes_have_a_controller_each(made: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    Store.open(other).close()
    ensure_controller(made)
    ensure_controller(other)
    first, second = answers(made), answers(other)

    assert first.pid != second.pid and first.home != second.home
    end_all(other)
    assert wake(made)


def test_it_waits_for_a_store_that_is_locked_and_says_so(made: Home) -> None:
    with Store.open(made) as store:
        store.connection.execute("BEGIN EXCLUSIVE")
        process = controller(made)
        answers(made)
        assert process.poll() is None
        store.connection.execute("ROLLBACK")
    until(lambda: "looks after" in log_of(made))


def test_a_store_of_a_newer_version_is_left_alone_and_the_log_says_why(made: Home) -> None:
    with Store.open(made) as store:
        store.connection.execute("PRAGMA user_version = 9999")
    process = controller(made)

    assert ended(process) == 78
    assert "newer version of fabric" in log_of(made)


def test_options_that_it_does_not_know_are_named(made: Home) -> None:
    assert ended(controller(made, "--dance", stderr=subprocess.DEVNULL)) == 64


def test_a_controller_of_a_home_that_is_gone_ends_and_makes_none(tmp_path: Path) -> None:
    gone = Home(tmp_path / "gone")
    process = controller(gone, stderr=subprocess.PIPE)

    _, stderr = process.communicate(timeout=patience())

    assert process.returncode == 66
    assert f"the home {gone.path} no longer exists" in stderr.decode()
    assert not gone.path.exists()


def test_a_folder_without_its_home_json_gets_no_other_from_a_controller(made: Home) -> None:
    made.identity.unlink()

    assert ended(controller(made)) == 66
    assert not made.identity.exists()


def test_a_controller_whose_home_is_removed_under_a_job_ends_and_makes_it_not_anew(home: Home) -> None:
    ground = Ground(home)
    process = controller(home)
    assert answers(home).pid == process.pid  # or the one that the job's start brings is quicker
    job_id = ground.submit("echo ready; sleep 1000")
    ground.prints(job_id, "ready")
    ground.store.close()

    until(lambda: subprocess.run(["rm", "-rf", str(home.path)], stderr=subprocess.DEVNULL).returncode == 0)

    assert ended(process) == 0
    until(lambda: not ground.processes())
    assert not home.path.exists()
