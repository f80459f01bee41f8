"""Who leaves stops nobody's job; a pipeline that is cancelled does not train on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric, shared_fabric
from tests.support.terminal import OnTerminal
from tests.support.waiting import patience, until
from workbench.job import short_id

WAITS = 'echo started; while [ ! -e "$RESULT_DIR/go" ]; do sleep 0.2; done; echo gone on; exit 5'
TRAPS = 'trap "echo checkpoint; exit 0" TERM; echo started; while :; do sleep 0.2; done'
STUBBORN = 'trap "" TERM; echo started; while :; do sleep 0.2; done'


@pytest.fixture
def fabric(module_fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    return module_fabric.entered(tmp_path / "work", monkeypatch)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    """A home of its own, for a test that shows all jobs."""
    with shared_fabric() as fabric:
        yield fabric.entered(tmp_path / "work", monkeypatch)


def last(fabric: Fabric) -> dict[str, Any]:
    return dict(fabric.json("show", "@last", "--json"))


def let_go(fabric: Fabric) -> None:
    """Let a job that waits go on, and see that it does."""
    (Path(last(fabric)["results"]) / "go").write_text("")
    assert fabric("attach", expect=5).stdout == "started\ngone on\n"


def goes_on(fabric: Fabric) -> None:
    """See that the last job runs; its output may be there before the controller has written that down."""
    until(lambda: last(fabric)["state"] == "PROCESSING", "the job to run")


def started(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"


def test_ctrl_c_on_a_terminal_leaves_and_says_how_to_come_back(fabric: Fabric) -> None:
    terminal = OnTerminal(fabric.folder, "run", "--", WAITS)
    terminal.read_until(b"started")

    terminal.press(b"\x03")

    assert terminal.wait() == 130
    assert f"`fabric attach {short_id(last(fabric)['id'])}` follows it again".encode() in terminal.shown
    goes_on(fabric)
    let_go(fabric)


def test_a_hang_up_leaves(fabric: Fabric) -> None:
    terminal = OnTerminal(fabric.folder, "run", "--", WAITS)
    terminal.read_until(b"started")

    terminal.hang_up()

    assert terminal.wait() == 129
    goes_on(fabric)
    let_go(fabric)


def test_output_to_a_pipe_does_not_make_a_terminal_a_machine(fabric: Fabric) -> None:
    reader, writer = os.pipe()
    terminal = OnTerminal(fabric.folder, "run", "--", WAITS, stdout=writer)
    os.close(writer)
    assert os.read(reader, 100) == b"started\n"

    terminal.press(b"\x03")

    assert terminal.wait() == 130
    os.close(reader)
    let_go(fabric)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(
            signal.SIGTERM, marks=pytest.mark.soak("a stop; the gate has it in tests/cli/test_ci.py")
        ),
    ],
)
def test_without_a_terminal_a_signal_halts(fabric: Fabric, number: signal.Signals) -> None:
    process = fabric.start("run", "--", TRAPS)
    started(process)

    process.send_signal(number)
    output, stderr = process.communicate(timeout=patience())

    assert process.returncode == 143, stderr
    assert output.endswith(b"checkpoint\n")
    assert (last(fabric)["state"], last(fabric)["exit_by"]) == ("HALTED", "halt")
    assert b"halt of " in stderr
    assert b"fabric resume" in stderr


def test_a_second_signal_kills(fabric: Fabric) -> None:
    process = fabric.start("run", "--", STUBBORN)
    started(process)

    process.send_signal(signal.SIGTERM)
    until(lambda: last(fabric)["intent"] == "halt", "the halt to be asked for")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patience())

    assert process.returncode == 137
    assert (last(fabric)["state"], last(fabric)["exit_by"]) == ("HALTED", "kill")


def test_a_pipe_that_nobody_reads_does_not_keep_a_signal_from_halting(fabric: Fabric) -> None:
    process = fabric.start(
        "run", "--", 'trap "exit 0" TERM; echo started; while :; do echo 0123456789abcdef; done'
    )
    started(process)

    process.send_signal(signal.SIGTERM)

    until(lambda: last(fabric)["state"] == "HALTED", "the job to be halted")
    process.communicate(timeout=patience())
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("policy", "code", "state"), [("kill", 137, "HALTED"), ("detach", 130, "PROCESSING")]
)
def test_on_interrupt_decides_otherwise(fabric: Fabric, policy: str, code: int, state: str) -> None:
    process = fabric.start("run", "--on-interrupt", policy, "--", STUBBORN)
    started(process)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patience())

    assert process.returncode == code
    until(lambda: last(fabric)["state"] == state, f"the job to be {state}")
    fabric("kill", "@last", expect=None)  # one that was left would run until the module ends


def test_on_a_terminal_a_halt_can_be_asked_for(fabric: Fabric) -> None:
    terminal = OnTerminal(fabric.folder, "run", "--on-interrupt", "halt", "--", TRAPS)
    terminal.read_until(b"started")

    terminal.press(b"\x03")

    assert terminal.wait() == 143
    assert last(fabric)["state"] == "HALTED"


def test_ci_makes_a_terminal_a_machine(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    terminal = OnTerminal(fabric.folder, "run", "--", TRAPS)
    terminal.read_until(b"started")

    terminal.press(b"\x03")

    assert terminal.wait() == 143


def test_a_closed_pipe_leaves_silently(fabric: Fabric) -> None:
    reader, writer = os.pipe()
    process = fabric.start(
        "run", "-q", "--", 'while [ ! -e "$RESULT_DIR/go" ]; do echo line; sleep 0.01; done', stdout=writer
    )
    os.close(writer)
    assert os.read(reader, 5) == b"line\n"
    os.close(reader)

    stderr = process.communicate(timeout=patience())[1]

    assert process.returncode == 141
    assert stderr == b""
    goes_on(fabric)
    fabric("kill", "@last")


def test_a_client_that_is_stopped_or_blocked_stops_nobodys_job(alone: Fabric) -> None:
    fabric = alone
    blocked = fabric.start("run", "--", "echo started; head -c 10000000 /dev/zero; exit 6")
    started(blocked)
    stopped = fabric.start("run", "--", "echo started; sleep 0.5; exit 7")
    started(stopped)
    stopped.send_signal(signal.SIGSTOP)

    fabric("run", "--", "exit 8", expect=8)

    def codes() -> list[str]:
        return sorted(str(each["exit_code"]) for each in fabric.json("list", "--json"))

    until(lambda: codes() == ["6", "7", "8"], "all jobs to end")
    stopped.send_signal(signal.SIGCONT)
    assert blocked.stdout is not None
    rest = blocked.stdout.read()  # communicate would pass by what readline has read ahead
    assert len(rest) == 10_000_000
    blocked.communicate(timeout=patience())
    stopped.communicate(timeout=patience())
    assert (blocked.returncode, stopped.returncode) == (6, 7)


def test_a_signal_that_is_ignored_stays_ignored(fabric: Fabric) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = fabric.start("run", "--", WAITS, preexec_fn=ignore)
    started(process)

    process.send_signal(signal.SIGINT)
    (Path(last(fabric)["results"]) / "go").write_text("")
    process.communicate(timeout=patience())

    assert process.returncode == 5


def test_the_status_line_is_drawn_in_place_and_gives_way(fabric: Fabric) -> None:
    go = fabric.folder / "go"
    words = f"echo one; while [ ! -e {go} ]; do sleep 0.2; done; echo two"
    terminal = OnTerminal(fabric.folder, "run", "--", words)
    terminal.read_until(b"one\r\n")
    # A line that was drawn before the job's first output has given way to that.
    terminal.shown = terminal.shown.partition(b"one\r\n")[2]
    terminal.read_until(b"\r\x1b[K[processing ")
    go.touch()

    assert terminal.wait() == 0
    shown = terminal.shown
    assert b"\r\x1b[Ktwo\r\n" in shown
    assert b"completed" in shown


def test_no_terminal_no_control_sequences(fabric: Fabric) -> None:
    ran = fabric("run", "--", "echo one; sleep 0.3")

    assert "\x1b" not in ran.stderr
    assert "\r" not in ran.stderr


def test_a_terminal_is_not_driven_by_the_job(fabric: Fabric) -> None:
    terminal = OnTerminal(fabric.folder, "run", "--", r"printf '\033]0;owned\007\033[31mred\033[0m\n'")

    assert terminal.wait() == 0
    assert b"\x1b[31mred\x1b[0m" in terminal.shown
    assert b"owned" not in terminal.shown.split(b"manifest:")[1].split(b"completed")[0]


def test_colour_is_for_terminals_that_want_it(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric("run", "--", "true")
    shown = OnTerminal(fabric.folder, "list")
    shown.wait()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = OnTerminal(fabric.folder, "list")
    plain.wait()

    assert b"\x1b[32mCOMPLETED" in shown.shown
    assert b"\x1b" not in plain.shown


def test_the_screens_open_and_close(alone: Fabric) -> None:
    alone("run", "--name", "seen", "--", "true")
    terminal = OnTerminal(alone.folder, "tui")
    terminal.read_until(b"seen")

    terminal.press(b"q")

    assert terminal.wait() == 0


def test_the_screens_need_a_terminal(fabric: Fabric) -> None:
    assert "need a terminal" in fabric("tui", expect=64).stderr


def test_a_person_is_asked_before_anything_is_deleted(alone: Fabric) -> None:
    fabric = alone
    fabric("run", "--name", "dear", "--", "true")
    terminal = OnTerminal(fabric.folder, "delete", "dear")
    terminal.read_until(b"[y/N]")
    assert b"stopped first" not in terminal.shown
    terminal.press(b"n\n")
    terminal.wait()
    assert len(fabric.json("list", "--json")) == 1

    terminal = OnTerminal(fabric.folder, "delete", "dear")
    terminal.read_until(b"[y/N]")
    terminal.press(b"y\n")

    assert terminal.wait() == 0
    assert fabric.json("list", "--json") == []


BLOCKED = """
import os, signal
from workbench.cli.follow import signals

signals.ENDS_WITHIN_SECONDS = {seconds}
reading, writing = os.pipe()
words = []
with signals.Interruption("halt", words.append, lambda: print("left", flush=True)):
    for _ in range({count}):
        os.kill(os.getpid(), signal.SIGTERM)
    os.read(reading, 1)
"""
"""A command that waits for what never comes, and gets signals."""


@pytest.mark.parametrize(("count", "seconds"), [(2, 0.1), (3, 1e6)])
def test_a_command_that_cannot_go_on_is_ended(count: int, seconds: float) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(count=count, seconds=seconds)],
        capture_output=True,
        text=True,
        timeout=patience(),
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (143, "left\n", "")
