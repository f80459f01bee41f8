"""A scribe that is killed: nothing of what was printed is lost, nothing comes twice, the command notices nothing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

import pytest

from tests.learner.agent import Learner, kill, remove_folder
from tests.support.naps import NAP
from tests.support.waiting import ended, until
from workbench.learner.platform import system

Make = Callable[..., Learner]

COUNT = 'n=0; until [ -e "$WORK/go" ]; do n=$((n+1)); echo "line $n"; done; echo "$n" > "$WORK/count"'


def counted(one: Learner) -> bytes:
    count = int((one.work / "count").read_text())
    return b"".join(b"line %d\n" % (n + 1) for n in range(count))


def killed(one: Learner, pid: int) -> int:
    """Kill a scribe and wait for the next one."""
    kill(pid)
    return until(lambda: one.scribe() if one.scribe() != pid else 0)


def test_a_killed_scribe_is_replaced_and_output_is_complete(learner: Make, python: str) -> None:
    one = learner(COUNT, python=python)
    one.start()
    one.until_printed(b"line 100\n")

    pid = one.scribe()
    for _ in range(5):
        pid = killed(one, pid)
    (one.work / "go").touch()
    state = one.wait()

    assert state["exit_code"] == 0
    assert one.output() == counted(one)
    assert one.entries()[-1][2] == one.output().count(b"\n")


def test_a_scribe_that_dies_by_its_own_fault_is_replaced_too(learner: Make) -> None:
    one = learner(COUNT)
    one.start()
    one.until_printed(b"line 1\n")
    pid = one.scribe()

    kill(pid, signal.SIGSEGV)
    until(lambda: one.scribe() != pid)
    (one.work / "go").touch()

    assert one.wait()["exit_code"] == 0
    assert one.output() == counted(one)


def test_signals_that_ask_do_not_end_a_scribe(learner: Make) -> None:
    one = learner(COUNT)
    one.start()
    one.until_printed(b"line 1\n")
    pid = one.scribe()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        kill(pid, number)
    (one.work / "go").touch()
    one.wait()

    assert one.state()["scribe_pid"] == pid
    assert one.output() == counted(one)


def test_a_scribe_killed_after_the_command_has_ended_loses_nothing(learner: Make) -> None:
    """The scribe is held while the command prints its last and ends; what it did not take is in the pipe."""
    one = learner(NAP + 'echo first; until [ -e "$WORK/go" ]; do nap 0.01; done; seq 1000; exit 3')
    one.start()
    one.until_printed(b"first\n")
    pid = one.scribe()
    kill(pid, signal.SIGSTOP)
    (one.work / "go").touch()
    until(lambda: one.state()["exit_code"] == 3)

    kill(pid)
    state = one.wait()

    assert (state["exit_code"], state["phase"]) == (3, "exited")
    assert one.output() == b"first\n" + b"".join(b"%d\n" % (n + 1) for n in range(1000))


def test_secrets_stay_masked_when_the_scribe_is_killed(learner: Make) -> None:
    one = learner(COUNT.replace("line $n", "line $n $TOKEN"))
    path = one.work / "secrets"
    path.write_text('{"TOKEN": "not-to-be-seen"}')
    one.rewrite(secrets_file=str(path))
    one.start()
    one.until_printed(b"line 50 ")
    path.unlink()

    pid = one.scribe()
    for _ in range(4):
        pid = killed(one, pid)
    (one.work / "go").touch()
    one.wait()

    assert one.output() == counted(one).replace(b"\n", b" **************\n")


@pytest.mark.parametrize("guard_is_killed", [False, True])
def test_a_learner_whose_folder_is_removed_before_its_journal_was_opened_leaves_no_process(
    learner: Make, guard_is_killed: bool
) -> None:
    one = learner("sleep 1000")
    (one.folder / "output.log").mkdir()  # what cannot be opened as a file
    guard = one.start()
    until(lambda: one.state().get("stall") and one.state().get("command_pid"))
    scribe = one.scribe()

    if guard_is_killed:
        guard.kill()
        guard.wait()
    remove_folder(one.folder)

    ended(guard)
    until(lambda: not one.left() and not system.start_ticks(scribe))


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_a_scribe_that_is_killed_while_the_home_is_moved_loses_no_line(
    learner: Make, ends_meanwhile: bool
) -> None:
    """Until a moved home is bound, nothing is found at the path that the agents know."""
    one = learner(NAP + "trap 'echo over; exit 0' USR1; echo ready; while :; do nap 0.01; done")
    one.start()
    one.until_printed(b"ready\n")
    scribe, command = one.scribe(), int(one.state()["command_pid"])
    attempt = one.folder.parent
    moved = attempt.with_name("moved")

    attempt.rename(moved)
    kill(scribe)
    if ends_meanwhile:
        os.kill(command, signal.SIGUSR1)
        until(lambda: not system.start_ticks(command))
    attempt.symlink_to(moved)
    if not ends_meanwhile:
        os.kill(command, signal.SIGUSR1)

    assert one.wait()["exit_code"] == 0
    assert one.output() == b"ready\nover\n"


def test_output_is_the_same_without_splice(learner: Make, python: str) -> None:
    """As on a file system that knows none: bytes pass through memory."""
    one = learner("seq 200000", python=python)

    one.start_with(
        "from workbench.learner.platform import system",
        "def none(*_): raise OSError(22, 'no splice')",
        "system.splice = none",
    )
    one.wait()

    assert one.output() == b"".join(b"%d\n" % (n + 1) for n in range(200000))


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps, which macOS has")
def test_an_agent_without_what_only_linux_has_keeps_a_learner(learner: Make) -> None:
    """As on macOS, as far as that can be played here: no /proc, no splice, no subreaper."""
    one = learner("sleep 1000 & seq 1000; exit 3")

    one.start_with(
        "from workbench.learner.platform import system",
        "system.LINUX = False",
        "system.become_subreaper = bool",
    )
    state = one.wait()

    assert state["exit_code"] == 3
    assert one.output() == b"".join(b"%d\n" % (n + 1) for n in range(1000))


SLOW_SCRIBE = """
import time
from workbench.learner.guard import guard
from workbench.learner.scribe import scribe
handle, record_exit = scribe.Scribe._handle, guard.Guard._record_exit
def handle_slowly(self, line):
    time.sleep(0.5 if line.startswith("record ") else 0.0)
    handle(self, line)
def add_note(self):
    self._write_record({"time": 1, "kind": "note", "level": "warning", "text": "the last word"})
    record_exit(self)
scribe.Scribe._handle, guard.Guard._record_exit = handle_slowly, add_note
"""


def test_what_is_recorded_at_the_end_is_there_before_the_exit(learner: Make) -> None:
    one = learner("true", metrics={"type": "auto"})

    one.start_with(SLOW_SCRIBE)
    until(lambda: one.state().get("phase") == "exited", "the exit")

    assert [record["text"] for record in one.records("note")] == ["the last word"]
