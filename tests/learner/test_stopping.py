from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, kill, remove_folder
from tests.support.naps import NAP
from tests.support.waiting import ended, until
from workbench.learner.platform import system

Make = Callable[..., Learner]

FOREVER = NAP + 'echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done'
WATCHFUL = NAP + "trap '' TERM; echo ready; until [ -e \"$FABRIC_STOP_FILE\" ]; do nap 0.01; done; echo saved"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1; done"


def started(one: Learner) -> Learner:
    one.start()
    one.until_printed(b"ready\n")
    return one


def test_a_halt_asks_and_says_who(learner: Make, python: str) -> None:
    one = started(learner(FOREVER, python=python))

    one.stop("halt", by="ada@box")
    state = one.wait()

    assert (state["signal"], state["exit_code"], state["stopped"]) == (signal.SIGTERM, None, "halt")
    assert state["reason"] == {"text": "halted by ada@box", "code": "", "hint": ""}
    assert state["decided"] is False


def test_a_halt_kills_when_the_grace_period_is_over(learner: Make, python: str) -> None:
    one = started(learner(STUBBORN, python=python, grace_seconds=3600.0))
    began = time.monotonic()

    one.stop("halt", grace_seconds=0.3)
    state = one.wait()

    assert (state["signal"], state["stopped"]) == (signal.SIGKILL, "halt")
    assert time.monotonic() - began >= 0.3


def test_a_halt_is_seen_while_the_command_saves(learner: Make) -> None:
    one = started(learner(STUBBORN))

    one.stop("halt", grace_seconds=3600)
    state = one.until_phase("stopping")
    assert (state["stopped"], state["reason"]["text"]) == ("halt", "halted by me@box")

    one.stop("kill")
    assert one.wait()["stopped"] == "kill"


def test_a_kill_does_not_wait_and_hastens_a_halt(learner: Make, python: str) -> None:
    one = started(learner(STUBBORN, python=python))
    one.stop("halt", grace_seconds=3600)  # it would not end in time by itself
    one.until_phase("stopping")

    one.stop("kill", by="root@box")
    state = one.wait()

    assert (state["signal"], state["stopped"]) == (signal.SIGKILL, "kill")
    assert state["reason"]["text"] == "killed by root@box"


def test_children_that_save_have_the_whole_grace_period(learner: Make) -> None:
    """The shell dies of the first signal; the child that it waited for takes longer than what is left behind may."""
    code = (
        "import os, signal, time\n"
        "def save(*_): time.sleep(1); os.write(1, b'saved\\n'); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    one = learner(f'"$PYTHON" -c "{code}"; echo not reached')
    one.start_sparing(0.3)
    one.until_printed(b"ready\n")

    one.stop("halt", grace_seconds=3600)
    state = one.wait()

    assert one.output() == b"ready\nsaved\n"
    assert state["signal"] == signal.SIGTERM


LOOKS = (
    "import os, subprocess, sys, time\n"
    "from workbench.learner import should_stop\n"
    "worker = subprocess.Popen(['sleep', '3600'])\n"
    "assert not should_stop()\n"
)
"""Training code that looks for a request to stop, and needs a process of its own to the end."""

SAVES = (
    "while not should_stop(): time.sleep(0.01)\n"
    "time.sleep(0.5)\n"
    "print('saves with', worker.poll(), flush=True)\n"
    "worker.kill()\n"
)


def looking(learner: Make, code: str, then: str = "", **document: Any) -> Learner:
    """Start a learner whose command is such code and what follows it."""
    one = learner(f'"$PYTHON" look.py{then}', **document)
    one.launch["env"]["PYTHONPATH"] = str(Path.cwd())
    one.rewrite()
    (one.work / "look.py").write_text(f"{LOOKS}print('ready', flush=True)\n{code}")
    return started(one)


def test_code_that_looks_ends_by_itself_with_all_that_it_needs(learner: Make) -> None:
    one = looking(learner, SAVES)

    one.stop("halt", grace_seconds=3600)
    state = one.wait()

    assert one.output() == b"ready\nsaves with None\n"
    assert (state["exit_code"], state["signal"], state["stopped"]) == (0, None, "halt")


def test_what_follows_code_that_has_looked_is_ended(learner: Make) -> None:
    one = looking(learner, SAVES, then='; echo then; sleep 3600; echo "not reached"')

    one.stop("halt", grace_seconds=3600)
    state = one.wait()

    assert one.output() == b"ready\nsaves with None\nthen\n"
    assert (state["signal"], state["stopped"]) == (signal.SIGTERM, "halt")


def test_code_that_looks_no_more_gets_its_signal_in_the_end(learner: Make) -> None:
    code = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saves', flush=True), os._exit(3)))\n"
        "print('set', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    one = looking(learner, code)
    one.until_printed(b"set\n")

    one.stop("halt", grace_seconds=2.0)
    state = one.wait()

    assert one.output() == b"ready\nset\nsaves\n"
    assert (state["exit_code"], state["stopped"]) == (3, "halt")


def test_code_that_looks_and_has_a_handler_gets_its_signal_at_once(learner: Make) -> None:
    code = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('told', flush=True), os._exit(4)))\n"
        "print('waits', should_stop(), flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    one = looking(learner, code)
    one.until_printed(b"waits False\n")

    one.stop("halt", grace_seconds=3600)
    state = one.wait()

    assert one.output() == b"ready\nwaits False\ntold\n"
    assert (state["exit_code"], state["stopped"]) == (4, "halt")


def test_a_kill_waits_for_no_code_that_looks(learner: Make) -> None:
    one = looking(learner, "time.sleep(3600)\n")
    one.stop("halt", grace_seconds=3600)
    one.until_phase("stopping")

    one.stop("kill")

    assert one.wait()["signal"] == signal.SIGKILL


LOADS = (
    "import ctypes, os, signal, sys, time\n"
    "parent = os.getpid()\n"
    "worker = os.fork()\n"
    "if worker == 0:\n"
    "    ctypes.CDLL(None).prctl(15, b'pt_data_worker')\n"
    "    print('ready', flush=True)\n"
    "    while True: time.sleep(3600)\n"
)
"""Training with a worker process that is named as PyTorch's ``DataLoader`` names its own."""


def loading(learner: Make, code: str) -> Learner:
    one = learner('exec "$PYTHON" load.py')
    (one.work / "load.py").write_text(LOADS + code)
    return started(one)


@pytest.mark.skipif(not system.LINUX, reason="processes have no names of their own")
def test_training_that_handles_its_signal_keeps_the_workers_that_load_its_data(learner: Make) -> None:
    code = (
        "asked = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        "print('waits', flush=True)\n"
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print('saves with', os.waitpid(worker, os.WNOHANG), flush=True)\n"
    )
    one = loading(learner, code)
    one.until_printed(b"waits\n")

    one.stop("halt", grace_seconds=3600)
    state = one.wait()

    assert b"saves with (0, 0)\n" in one.output()
    assert (state["exit_code"], state["stopped"]) == (0, "halt")


@pytest.mark.skipif(not system.LINUX, reason="processes have no names of their own")
def test_workers_whose_training_is_over_are_ended(learner: Make) -> None:
    one = loading(learner, "while True: time.sleep(3600)\n")

    one.stop("halt", grace_seconds=3600)

    assert one.wait()["signal"] == signal.SIGTERM


def test_a_halt_is_seen_where_nothing_tells_of_changes(learner: Make) -> None:
    """As where a user has used up all watches: files are looked at again and again."""
    one = learner(FOREVER)
    one.start_with(
        "from workbench.learner.platform import folder_signal, watch",
        "folder_signal.signal_changes = lambda _: False",
        "watch.open_inotify = lambda: None",
    )
    one.until_printed(b"ready\n")

    one.stop()

    assert one.wait()["stopped"] == "halt"


@pytest.mark.parametrize("act", ["setup", "command"])
def test_who_obeys_a_halt_before_the_guard_has_read_it_is_halted(learner: Make, act: str) -> None:
    """As ``should_stop()`` lets a program do, which looks for the request itself."""
    obeys = (
        NAP
        + 'echo $$ >"$WORK/new"; mv "$WORK/new" "$WORK/pid"; until [ -e "$WORK/go" ]; do nap 0.02; done; exit 0'
    )
    one = learner(obeys) if act == "command" else learner("echo never", setup=obeys)
    one.start()
    until((one.work / "pid").exists)
    guard, obedient = one.state()["pid"], (one.work / "pid").read_text().strip()
    kill(guard, signal.SIGSTOP)

    one.stop("halt", by="me@box")
    (one.work / "go").touch()
    until(lambda: Path(f"/proc/{obedient}/stat").read_text().rpartition(") ")[2].startswith("Z"))
    kill(guard, signal.SIGCONT)

    state = one.wait()
    assert (state["stopped"], state["reason"]["text"]) == ("halt", "halted by me@box")
    assert state["exit_code"] == (0 if act == "command" else None)
    assert b"never" not in one.output()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "halt", "grace_seconds": "soon"}'])
def test_a_request_that_is_not_what_it_should_be_halts(learner: Make, text: str) -> None:
    one = started(learner(FOREVER, grace_seconds=0.2))

    (one.folder / "stop.new").write_text(text)
    (one.folder / "stop.new").rename(one.folder / "stop.json")

    assert one.wait()["stopped"] == "halt"


def test_a_request_that_came_before_the_start_starts_nothing(learner: Make, python: str) -> None:
    one = learner('touch "$WORK/ran"', python=python)
    one.stop("halt")

    state = one.run()

    assert (state["stopped"], state["exit_code"], state["started_us"]) == ("halt", None, None)
    assert not (one.work / "ran").exists()


def test_a_stopped_process_can_be_halted(learner: Make) -> None:
    one = started(learner("sh -c 'echo ready; kill -STOP $$'; echo woken"))

    one.stop("halt", grace_seconds=3600)

    assert one.wait()["stopped"] == "halt"


def test_a_command_is_stopped_when_its_time_is_over(learner: Make, python: str) -> None:
    one = learner(FOREVER, max_runtime_seconds=0.5, python=python)
    began = time.monotonic()

    state = one.run()

    assert (state["stopped"], state["signal"], state["reason"]["code"]) == (
        "max_runtime",
        signal.SIGTERM,
        "C204",
    )
    assert "0.5 s" in state["reason"]["text"]
    assert time.monotonic() - began >= 0.5
    assert state["decided"] is True


def test_code_that_looks_sees_that_its_time_is_over(learner: Make) -> None:
    one = learner(WATCHFUL, max_runtime_seconds=0.5, grace_seconds=3600.0)

    state = one.run()

    assert one.output() == b"ready\nsaved\n"
    assert (state["exit_code"], state["stopped"], state["reason"]["code"]) == (0, "max_runtime", "C204")


def test_time_limits_do_not_depend_on_the_wall_clock(learner: Make) -> None:
    """The agent's wall clock is a year ahead, then a year behind: neither ends nor delays the command."""
    for jump in (365 * 86400, -365 * 86400):
        command = NAP + 'echo a; until [ -e "$WORK/go" ]; do nap 0.01; done; touch "$WORK/jumped"; echo b'
        one = learner(command, max_runtime_seconds=60.0, grace_seconds=0.1)
        one.start_with(
            "import os, time",
            "real = time.time_ns",
            f"jumped, jump = {str(one.work / 'jumped')!r}, {jump} * 10**9",
            "time.time_ns = lambda: real() + (jump if os.path.exists(jumped) else 0)",
        )
        one.until_printed(b"a\n")
        (one.work / "go").touch()
        state = one.wait()

        assert (state["exit_code"], state["stopped"]) == (0, "")
        assert one.output() == b"a\nb\n"
        (_, first, _), (_, second, _) = one.entries()
        assert abs((second - first) - jump * 10**6) < 60 * 10**6


def test_a_learner_over_its_memory_limit_is_ended_with_a_reason(learner: Make, python: str) -> None:
    code = "x = b'x' * 300_000_000; import time; print('held', flush=True); time.sleep(60)"
    one = learner(f'"$PYTHON" -c "{code}"; echo not reached', memory_bytes=100 << 20, python=python)

    state = one.run()

    assert (state["stopped"], state["signal"], state["reason"]["code"]) == ("memory", signal.SIGKILL, "C203")
    assert "its limit of 100.00 MiB" in state["reason"]["text"]
    assert state["decided"] is True


def test_memory_that_processes_share_counts_once(learner: Make) -> None:
    code = (
        "import os, time\n"
        "x = bytearray(60_000_000)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0: time.sleep(1); os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
    )
    one = learner(f'exec "$PYTHON" -c "{code}"', memory_bytes=150 << 20)

    assert one.run()["exit_code"] == 0


def test_a_guard_that_gets_sigterm_ends_its_learner_and_says_so(learner: Make) -> None:
    one = started(learner(FOREVER))
    assert one.process is not None

    one.process.terminate()
    state = one.wait()

    assert (state["signal"], state["stopped"], state["reason"]["code"]) == (signal.SIGTERM, "", "S202")


def test_training_code_that_looks_sees_that_its_machine_ends_it(learner: Make, python: str) -> None:
    one = started(learner(WATCHFUL, python=python, grace_seconds=3600.0))
    assert one.process is not None

    one.process.terminate()
    state = one.wait()

    assert one.output() == b"ready\nsaved\n"
    assert (state["exit_code"], state["stopped"], state["reason"]["code"]) == (0, "", "S202")


def test_who_kills_a_learner_that_its_machine_ends_is_obeyed(learner: Make) -> None:
    one = started(learner(STUBBORN, grace_seconds=3600.0))
    assert one.process is not None
    one.process.terminate()
    until((one.folder / "stop.json").exists, "its end to be announced")

    one.stop("kill")

    assert one.wait()["stopped"] == "kill"


def test_a_stop_of_the_kind_finish_is_seen_and_ends_nothing(learner: Make) -> None:
    one = learner(WATCHFUL)

    one.stop("finish")  # before it starts, so that its agent has certainly looked
    state = one.run()

    assert (state["exit_code"], state["stopped"], state["reason"]) == (0, "", None)
    assert one.output() == b"ready\nsaved\n"


@pytest.mark.parametrize("learners", [1, 2])
def test_a_learner_whose_folder_is_removed_ends_with_its_agents(
    learner: Make, learners: int, python: str
) -> None:
    one = started(learner(STUBBORN, learners=learners, python=python))
    assert one.process is not None
    scribe = one.scribe()

    remove_folder(one.folder)

    assert ended(one.process) == 0
    until(lambda: not one.left() and not system.start_ticks(scribe))


def test_a_learner_whose_folder_is_removed_ends_without_its_guard_too(learner: Make) -> None:
    one = started(learner(STUBBORN, grace_seconds=60.0))
    assert one.process is not None
    scribe = one.scribe()
    one.process.kill()
    one.process.wait()

    remove_folder(one.folder)

    until(lambda: not one.left() and not system.start_ticks(scribe))


def test_setup_runs_before_the_command_with_a_log_of_its_own(learner: Make, python: str) -> None:
    one = learner(
        'echo run; cat "$WORK/made"', setup='echo preparing; echo made > "$WORK/made"', python=python
    )

    state = one.run()

    assert state["exit_code"] == 0
    assert one.output() == b"run\nmade\n"
    assert one.output("setup") == b"preparing\n"


def test_a_setup_that_fails_is_the_reason_with_its_last_line(learner: Make, python: str) -> None:
    one = learner("echo never", setup="echo one; echo no such package > /dev/stderr; exit 4", python=python)

    state = one.run()

    assert (state["exit_code"], state["reason"]["code"], state["started_us"]) == (4, "C206", None)
    assert state["reason"]["text"] == "setup failed with exit code 4: no such package"
    assert one.output() == b""
    assert one.output("setup") == b"one\nno such package\n"


def test_a_setup_can_be_halted(learner: Make) -> None:
    one = learner("echo never", setup="echo ready; sleep 1000")
    one.start()
    until(lambda: one.output("setup") == b"ready\n")
    assert one.state()["phase"] == "setup"

    one.stop()

    assert one.wait()["stopped"] == "halt"
    assert one.output() == b""


def test_what_setup_leaves_running_lives_as_long_as_the_command(learner: Make) -> None:
    one = learner(
        NAP + 'echo hello > "$WORK/pipe"; until [ -e "$WORK/heard" ]; do nap 0.01; done',
        setup='cd "$WORK"; mkfifo pipe; (cat pipe > heard.new; mv heard.new heard; sleep 1000) & echo ready',
    )

    state = one.run()

    assert state["exit_code"] == 0
    assert (one.work / "heard").read_text() == "hello\n"
    assert one.output("setup") == b"ready\n"


def test_processes_of_a_learner_are_known_by_pid_and_start(learner: Make) -> None:
    one = started(learner(FOREVER))
    state = one.state()

    assert state["pid"] == (one.process.pid if one.process else 0)
    assert state["start_ticks"] == system.start_ticks(state["pid"])
    assert state["command_ticks"] == system.start_ticks(state["command_pid"])
    assert kill(state["command_pid"], 0) and kill(state["scribe_pid"], 0)
    (one.work / "go").touch()
    one.wait()


def test_the_command_can_see_that_it_is_to_stop_and_where_to_report(learner: Make) -> None:
    one = learner(
        'trap \'\' TERM; echo ready; until [ -e "$FABRIC_STOP_FILE" ]; do :; done; echo "$FABRIC_REPORT"',
        shell="sh",
    )
    started(one)

    one.stop("halt", grace_seconds=30)
    state = one.wait()

    assert state["exit_code"] == 0
    assert one.output().decode() == f"ready\n{one.folder / 'report.jsonl'}\n"
