"""Every exit code of the design has one real cause here, but those that only a cluster can show.

What a signal, a hang-up or a closed pipe does to a command (129, 130, 137, 141, 143) is held by
``tests/cli/test_signals.py``; what `attach` and `wait` end with for jobs that are over stands in ``json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frozen.sandbox import Sandbox, sandbox
from tests.support.waiting import until

Before = Callable[[Sandbox], None]

JOBS = {
    "the command's own": (7, "exit 7"),
    "128 and the signal that ended it": (128 + signal.SIGUSR1, "kill -USR1 $$"),
    "a command that is not found": (127, "there-is-no-such-command"),
    "a command that cannot be executed": (126, "/dev/null"),
}

FAILURES = {
    "an option that is not there": (64, "list --jsn"),
    "a job that is not there": (64, "show nothing"),
    "a backend that is not there": (64, "run --backend nowhere -- true"),
    "a runner that is not there": (64, "run --runner magic -- true"),
    "a job that cannot be resumed": (64, "resume steps"),
    "a secret that nobody knows": (64, "run -e NOT_SET_ANYWHERE -- true"),
    "a manifest that is wrong": (65, "run faulty.yml"),
    "a manifest that is not there": (66, "run missing.yml"),
    "a file of a job that is not there": (66, "cp steps:results/none ."),
    "a backend that cannot be reached": (69, "run --backend ssh://127.0.0.1:1 -- true"),
    "an engine that does not answer": (69, "run --runner container --image x -- true"),
    "a command in a job that has ended": (69, "exec broken -- true"),
    "a place where something is already": (73, "download steps results --to taken"),
    "jobs that differ": (1, "diff steps broken"),
    "a controller that does not run": (0, "controller status"),
}


@pytest.fixture(scope="module")
def used() -> Iterator[Sandbox]:
    """The home whose jobs are all over, for tests that run others in it."""
    with sandbox("ended") as box:
        yield box


@pytest.mark.parametrize("why", JOBS)
def test_a_run_ends_with_the_code_of_its_command(used: Sandbox, why: str) -> None:
    code, command = JOBS[why]

    used("run", "--", command, expect=code)


@pytest.mark.parametrize("why", FAILURES)
def test_a_failure_has_its_code(ended: Sandbox, why: str) -> None:
    code, words = FAILURES[why]
    (ended.folder / "faulty.yml").write_text("name: x\nlearners: -1\nframework: {command: 'true'}\n")
    (ended.folder / "taken" / "results").mkdir(parents=True, exist_ok=True)
    (ended.folder / "taken" / "results" / "mine").touch()

    ran = ended(*words.split(), expect=code)

    assert ran.stderr.startswith("error: ") or code <= 1


def test_of_several_learners_the_one_that_decided_gives_the_code(used: Sandbox) -> None:
    used("run", "--set", "learners=2", "--", "[ $LEARNER_ID = 1 ] && sleep 60; exit 5", expect=5)


def test_a_time_limit_ends_with_124(used: Sandbox) -> None:
    used("run", "--timeout", "1", "--name", "slow", "--", "sleep", "60", expect=124)
    used("run", "-d", "--name", "slower", "--", "sleep", "60")
    used("wait", "slower", "--timeout", "0.1", expect=124)
    used("kill", "slower")
    used("wait", "slower", expect=137)


def test_a_requirement_that_does_not_hold_ends_with_1(ended: Sandbox) -> None:
    ended("wait", "steps", "--require", "train/loss<0.1", expect=1)


def test_a_learner_that_its_platform_lost_ends_with_75(changing: Sandbox) -> None:
    changing("run", "-d", "--name", "lost", "--set", "max_platform_restarts=0", "--", "echo ready; sleep 600")
    until(lambda: changing("logs", "lost", expect=None).stdout == "ready\n", "it to run")
    state = json.loads((changing.learner("lost") / "state.json").read_bytes())
    for number in (signal.SIGSTOP, signal.SIGKILL):  # else the one that is left records the end of the other
        for name in ("pid", "scribe_pid", "command_pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(state[name], number)
    changing("wait", "lost", "--timeout", "60", expect=75)

    assert changing.json("show", "lost", "--json")["exit_by"] == "lost"


def lock_the_store(box: Sandbox) -> None:
    box_lock = sqlite3.connect(box.home / "fabric.db")
    box_lock.execute("BEGIN EXCLUSIVE")
    LOCKS.append(box_lock)


def let_others_read_secrets(box: Sandbox) -> None:
    file = box.root / "secrets.toml"
    file.write_text('TOKEN = "abcdefgh"\n')
    file.chmod(0o644)


def break_the_configuration(box: Sandbox) -> None:
    (box.root / "config.toml").write_text("[defaults\n")


def come_from_the_future(box: Sandbox) -> None:
    with contextlib.closing(sqlite3.connect(box.home / "fabric.db")) as database:
        database.execute("PRAGMA user_version = 9999")


def damage_the_store(box: Sandbox) -> None:
    (box.home / "fabric.db").write_bytes(b"garbage" * 1000)


def lose_the_identity(box: Sandbox) -> None:
    (box.home / "home.json").write_text("{}")


LOCKS: list[sqlite3.Connection] = []
TROUBLES: dict[str, tuple[int, Before, str]] = {
    "a store that another process has locked": (75, lock_the_store, "tag steps x"),
    "secrets that others may read": (77, let_others_read_secrets, "run -e TOKEN -- true"),
    "a configuration that is not TOML": (78, break_the_configuration, "backend list"),
    "a database from a newer version": (78, come_from_the_future, "list"),
    "a database that is damaged": (66, damage_the_store, "list"),
    "a home that names itself no more": (66, lose_the_identity, "run -- true"),
}


@pytest.mark.parametrize("why", TROUBLES)
def test_trouble_with_the_home_has_its_code(changing: Sandbox, why: str) -> None:
    code, before, words = TROUBLES[why]
    before(changing)
    try:
        assert changing(*words.split(), expect=code).stderr.startswith("error: ")
    finally:
        while LOCKS:
            LOCKS.pop().close()


def test_a_home_that_cannot_be_written_ends_with_73(ended: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    ended("run", "--", "true", expect=73, FABRIC_HOME=str(tmp_path / "file" / "home"))
