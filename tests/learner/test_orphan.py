"""A guard that is killed, alone or with its scribe: the learner is ended, and its end recorded once and truthfully."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.learner.agent import Learner, kill
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.platform import system

Make = Callable[..., Learner]

FOREVER = NAP + 'echo ran >> "$WORK/runs"; echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; echo end'


def started(one: Learner) -> Learner:
    one.start()
    one.until_printed(b"ready\n")
    return one


def without_guard(one: Learner) -> dict[str, object]:
    """Kill the guard and wait until its scribe has recorded the end and let go of the lock."""
    assert one.process is not None
    scribe = one.scribe()
    one.process.kill()
    one.process.wait()
    until(lambda: one.state()["phase"] == "exited" and not system.start_ticks(scribe))
    return one.state()


def test_a_learner_whose_guard_is_killed_is_ended_and_lost_to_the_platform(
    learner: Make, python: str
) -> None:
    one = started(
        learner(
            "(setsid sh -c \"trap '' TERM; sleep 1000; :\" &); " + FOREVER, grace_seconds=0.3, python=python
        )
    )

    state = without_guard(one)

    assert (state["exit_code"], state["signal"], state["stopped"]) == (None, None, "")
    assert state["reason"] == {
        "text": "the agent was killed while the command ran",
        "code": "S202",
        "hint": "",
    }
    assert one.left() == []
    assert one.output() == b"ready\n"


def test_what_a_command_says_as_it_is_ended_is_kept(learner: Make) -> None:
    code = (
        "import os, signal\n"
        "def end(*_): os.write(1, b'x' * 300000); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    one = started(learner(f'exec "$PYTHON" -c "{code}"'))

    without_guard(one)

    assert one.output() == b"ready\n" + b"x" * 300000


def test_nothing_is_started_again_after_the_scribe_has_recorded_the_end(learner: Make, python: str) -> None:
    one = started(learner(FOREVER, python=python))
    state = without_guard(one)

    assert subprocess.run(one.argv(), check=False).returncode == 0

    assert one.state() == state
    assert (one.work / "runs").read_text() == "ran\n"


def test_a_scribe_without_a_guard_keeps_the_lock_until_it_has_recorded_the_end(learner: Make) -> None:
    one = started(learner("trap '' TERM; " + FOREVER, grace_seconds=60.0))
    assert one.process is not None
    scribe = one.scribe()
    one.process.kill()
    one.process.wait()

    assert subprocess.run(one.argv(), check=False).returncode == 0
    assert one.state()["phase"] == "running"

    one.stop("kill")
    until(lambda: not system.start_ticks(scribe))
    assert (one.state()["phase"], one.state()["stopped"]) == ("exited", "kill")
    assert one.left() == []
    assert (one.work / "runs").read_text() == "ran\n"


def test_when_both_are_killed_the_next_guard_ends_what_is_left(learner: Make, python: str) -> None:
    one = started(learner("(setsid sleep 1000 >/dev/null 2>&1 &); " + FOREVER, python=python))
    assert one.process is not None
    state = one.state()
    for pid in (state["pid"], state["scribe_pid"]):
        kill(pid, signal.SIGSTOP)
    for pid in (state["scribe_pid"], state["pid"]):
        kill(pid)
    one.process.wait()
    until(lambda: not system.start_ticks(state["scribe_pid"]))
    assert len(one.left()) >= 2

    one.run()

    state = one.state()
    assert (state["exit_code"], state["reason"]["code"]) == (None, "S202")
    assert one.left() == []
    assert (one.work / "runs").read_text() == "ran\n"


def test_what_waits_in_the_pipe_is_kept_by_the_next_guard(learner: Make) -> None:
    """Both are killed with output in the pipe; a process of the learner still holds it."""
    one = started(learner(FOREVER.replace("echo end", "seq 1000; sleep 1000")))
    assert one.process is not None
    state = one.state()
    for pid in (state["pid"], state["scribe_pid"]):
        kill(pid, signal.SIGSTOP)
    (one.work / "go").touch()
    until(lambda: any(b"sleep\x001000" in _command_line(pid) for pid in one.left()))
    for pid in (state["scribe_pid"], state["pid"]):
        kill(pid)
    one.process.wait()

    one.run()

    assert one.output() == b"ready\n" + b"".join(b"%d\n" % (n + 1) for n in range(1000))
    assert one.state()["reason"]["code"] == "S202"
    assert one.left() == []


def test_a_guard_killed_after_the_command_has_ended_loses_nothing_of_that(learner: Make) -> None:
    one = learner(NAP + 'echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; echo end; exit 7')
    started(one)
    kill(one.scribe(), signal.SIGSTOP)
    (one.work / "go").touch()
    until(lambda: one.state()["exit_code"] == 7)
    assert one.process is not None and one.state()["phase"] == "stopping"

    scribe = one.scribe()
    one.process.kill()
    one.process.wait()
    kill(scribe, signal.SIGCONT)
    until(lambda: one.state()["phase"] == "exited")

    state = one.state()
    assert (state["exit_code"], state["reason"]["code"], state["decided"]) == (7, "C201", True)
    assert one.output() == b"ready\nend\n"


@pytest.mark.parametrize(
    ("exit_code", "code", "failed"), [(0, "S206", False), (7, "C201", True)], ids=["success", "failure"]
)
def test_output_that_went_with_both_agents_is_admitted_and_changes_no_end(
    learner: Make, exit_code: int, code: str, failed: bool
) -> None:
    """The command has ended and only the agents held its pipe: nobody can say what was printed last."""
    one = started(
        learner(f'{NAP}echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; echo end; exit {exit_code}')
    )
    scribe = one.scribe()
    kill(scribe, signal.SIGSTOP)
    (one.work / "go").touch()
    until(lambda: one.state()["exit_code"] == exit_code)
    assert one.process is not None and one.state()["phase"] == "stopping"

    one.process.kill()
    one.process.wait()
    kill(scribe)
    until(lambda: not system.start_ticks(scribe))
    one.run()

    state = one.state()
    assert (state["exit_code"], state["reason"]["code"], state["decided"]) == (exit_code, code, True)
    assert "may be missing" in state["reason"]["text"]
    assert json.loads((one.folder.parent / "decision.json").read_text())["failed"] is failed
    assert one.output() == b"ready\n"
    notes = [record["text"] for record in one.records() if record.get("kind") == "note"]
    assert notes == [state["reason"]["text"].split("; ")[-1]]


def test_no_output_is_reported_missing_once_it_was_saved(learner: Make) -> None:
    """As both agents leave it that are killed while they store the results."""
    one = started(learner("echo ready; exit 0"))
    one.wait()
    saved = {**one.state(), "phase": "stopping", "output_saved": True}
    (one.folder / "state.json").write_text(json.dumps(saved))

    one.run()

    assert (one.state()["phase"], one.state()["exit_code"], one.state()["reason"]) == ("exited", 0, None)


def test_a_halt_that_the_guard_did_not_live_to_finish_stays_a_halt(learner: Make) -> None:
    one = started(learner("trap '' TERM; " + FOREVER, grace_seconds=0.3))
    one.stop("halt", grace_seconds=60.0, by="ada@box")
    one.until_phase("stopping")

    state = without_guard(one)

    assert (state["stopped"], state["exit_code"]) == ("halt", None)
    assert state["reason"]["text"] == "halted by ada@box"  # type: ignore[index] # it is an object


def test_a_guard_that_its_machine_ended_and_then_killed_halted_nobody(learner: Make) -> None:
    one = started(learner("trap '' TERM; " + FOREVER, grace_seconds=0.3))
    assert one.process is not None
    one.process.terminate()
    one.until_phase("stopping")

    state = without_guard(one)

    assert (state["stopped"], state["exit_code"]) == ("", None)
    assert state["reason"]["code"] == "S202"  # type: ignore[index] # it is an object


def test_a_learner_whose_machine_was_restarted_is_recorded_so(learner: Make) -> None:
    one = started(learner(FOREVER))
    one.stop("kill")
    one.wait()
    before = one.state()
    # As a lost power leaves it: running, of another boot, with a pid that is somebody else's now.
    before.update(phase="running", boot_id="another", exit_code=None, signal=None, stopped="", reason=None)
    (one.folder / "state.json").write_text(json.dumps(before))
    (one.folder / "stop.json").unlink()
    with (one.folder / "output.log").open("ab") as file:
        file.write(b"printed and not yet published")

    one.run()

    assert one.state()["reason"]["code"] == "S203"
    assert one.output() == b"ready\nprinted and not yet published"
    assert (one.work / "runs").read_text() == "ran\n"


def test_a_start_that_was_announced_is_never_repeated(learner: Make) -> None:
    """Killed between writing the start down and letting the command go, as the state alone shows it."""
    one = learner('touch "$WORK/ran"')
    (one.folder / "state.json").write_text(
        json.dumps(
            {"phase": "running", "boot_id": system.boot_id(), "command_pid": 2**22, "command_ticks": 1}
        )
    )

    state = one.run()

    assert (state["reason"]["code"], state["home"]) == ("S202", one.launch["home"])
    assert not (one.work / "ran").exists()


def test_a_guard_killed_before_the_start_may_be_started_again(learner: Make, python: str) -> None:
    one = learner("echo ran", python=python)
    (one.folder / "state.json").write_text(json.dumps({"phase": "starting", "boot_id": system.boot_id()}))

    assert one.run()["exit_code"] == 0
    assert one.output() == b"ran\n"


def test_a_state_that_cannot_be_read_is_taken_for_a_start(learner: Make) -> None:
    one = learner('touch "$WORK/ran"')
    (one.folder / "state.json").write_bytes(b"\0" * 100)

    state = one.run()

    assert state["reason"]["code"] == "S202"
    assert not (one.work / "ran").exists()


def _command_line(pid: int) -> bytes:
    return system.read_bytes(f"/proc/{pid}/cmdline")
