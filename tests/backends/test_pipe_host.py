"""The pipe itself: noise before it, an old Python at its other end, and every way in which it can break."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.alive import wait_until_dead
from tests.learner.agent import oldest_python
from tests.support.pipe_host import PipeHost
from tests.support.waiting import patience, until
from workbench.errors import BackendError, BackendUnreachable
from workbench.learner.boot import archive
from workbench.learner.platform import lease_holders


@pytest.fixture
def agent(tmp_path: Path) -> str:
    return archive.build(str(tmp_path / "agents"))


@pytest.fixture
def opened(tmp_path: Path, agent: str) -> Iterator[list[PipeHost]]:
    hosts: list[PipeHost] = []
    yield hosts
    for host in hosts:
        host.close()


def open_host(opened: list[PipeHost], argv: list[str], root: Path) -> PipeHost:
    opened.append(PipeHost(argv, root=str(root)))
    return opened[-1]


def python38() -> str:
    """Find the oldest Python that the agent runs on; skips aloud without one."""
    return oldest_python() or pytest.skip("there is no Python 3.8 here to run the agent with")


def test_what_a_login_shell_prints_first_is_skipped(
    opened: list[PipeHost], agent: str, tmp_path: Path
) -> None:
    script = f"echo Welcome; printf 'no newline \\033[31m'; exec {sys.executable} -I {agent} host"
    host = open_host(opened, ["sh", "-c", script], tmp_path)

    assert host.run(["echo", "through"]).stdout == b"through\n"


def test_the_agent_serves_on_python_38(opened: list[PipeHost], agent: str, tmp_path: Path) -> None:
    python = python38()
    host = open_host(opened, [python, "-I", agent, "host"], tmp_path / "place")

    assert host.call("survey")["python"] == python
    assert host.run(["cat"], stdin=b"x" * 1_000_000).stdout == b"x" * 1_000_000
    assert host.call("inventory", leases_folder=str(tmp_path / "leases"))["cpus"] > 0
    lock = host.lock(["a"], folder=str(tmp_path / "leases"), text="{}")
    assert lock is not None
    lock.release()
    found = host.call("observe", asker="t", known={str(tmp_path): ""}, timeout_seconds=0)
    assert list(found["learners"]) == [str(tmp_path)]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sh", "-c", "echo permission denied >&2; exit 255"], "permission denied"),
        (["sh", "-c", "echo I am something else"], "I am something else"),
        (["sh", "-c", r"printf '\nfabric-host\nGARBAGEGARBAGE'"], "lost"),
    ],
)
def test_what_is_no_agent_is_reported(argv: list[str], words: str) -> None:
    with pytest.raises(BackendUnreachable, match=words):
        PipeHost(argv)


def test_a_command_that_is_not_there_is_reported() -> None:
    with pytest.raises(BackendError, match="no-such-program cannot be started"):
        PipeHost(["no-such-program"])


def test_a_host_that_does_not_answer_is_given_up() -> None:
    with pytest.raises(BackendUnreachable, match=r"did not answer within 0\.3 seconds"):
        PipeHost(["cat"], connect_seconds=0.3)


def test_calls_under_way_fail_when_the_other_end_is_killed(
    opened: list[PipeHost], agent: str, tmp_path: Path
) -> None:
    host = open_host(opened, [sys.executable, "-I", agent, "host"], tmp_path)
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            host.watch([str(tmp_path / "never")], timeout_seconds=60)
        except BackendUnreachable as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    os.kill(int(host.run(["sh", "-c", "echo $PPID"]).stdout), 9)
    waiting.join(patience())

    assert len(failed) == 1
    with pytest.raises(BackendUnreachable):
        host.identity()


def test_locks_are_free_when_the_connection_is_gone(
    opened: list[PipeHost], agent: str, tmp_path: Path
) -> None:
    host = open_host(opened, [sys.executable, "-I", agent, "host"], tmp_path)
    folder = str(tmp_path / "leases")
    assert host.lock(["a"], folder=folder, text="{}") is not None
    assert list(lease_holders.holders(folder, ["a"])) == ["a"]

    host.close()

    assert lease_holders.holders(folder, ["a"]) == {}


def test_what_was_run_is_killed_with_the_connection(
    opened: list[PipeHost], agent: str, tmp_path: Path
) -> None:
    host = open_host(opened, [sys.executable, "-I", agent, "host"], tmp_path)
    pid_file = tmp_path / "pid"
    running = threading.Thread(target=_run_for_ever, args=(host, pid_file))
    running.start()
    pid = int(until(lambda: pid_file.exists() and pid_file.read_text(), "the command to run"))

    host.close()
    running.join(patience())

    assert wait_until_dead(pid)


def _run_for_ever(host: PipeHost, pid_file: Path) -> None:
    with contextlib.suppress(BackendUnreachable):  # its answer may still get through
        host.run(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 300"], deadline_seconds=300)


THE_OTHER_INPUT = pytest.mark.soak("all pairs; the gate has each way to leave, and each kind of input")


@pytest.mark.parametrize(
    "script",
    [
        "echo $$; exec sleep 300",
        "trap '' HUP; echo $$; sleep 300; sleep 300",
        "echo $$; exec sleep 300 >/dev/null 2>&1",
        "echo $$; exec yes",
    ],
)
@pytest.mark.parametrize(
    ("leaves", "input_ended"),
    [
        ("the command", True),
        ("the host", False),
        pytest.param("the command", False, marks=THE_OTHER_INPUT),
        pytest.param("the host", True, marks=THE_OTHER_INPUT),
    ],
)
def test_a_command_that_nobody_is_in_front_of_any_more_is_ended(
    opened: list[PipeHost], agent: str, tmp_path: Path, script: str, input_ended: bool, leaves: str
) -> None:
    host = open_host(opened, [sys.executable, "-I", agent, "host"], tmp_path)
    stream = host.exec(["sh", "-c", script], env=os.environ, cwd="/", terminal=False)
    part = stream.read()
    assert part is not None
    if input_ended:
        stream.close_input()

    if leaves == "the command":
        stream.close()
    else:
        host.close()

    assert wait_until_dead(int(part[1].split()[0]))


def test_a_hundred_calls_at_once_are_all_answered(opened: list[PipeHost], agent: str, tmp_path: Path) -> None:
    host = open_host(opened, [sys.executable, "-I", agent, "host"], tmp_path)
    answers: dict[int, bytes] = {}

    def ask(number: int) -> None:
        answers[number] = host.run(["cat"], stdin=b"%d" % number * 1000).stdout

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())

    assert answers == {number: b"%d" % number * 1000 for number in range(100)}
