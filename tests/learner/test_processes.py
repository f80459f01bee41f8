from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import dying_slowly
from tests.support.waiting import until
from workbench.learner.platform import process_table, processes, system
from workbench.learner.platform.run import kill_agents

MARKER = f"test-processes/{os.getpid()}/1/1"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert processes.end(MARKER, 0.0) == []


def carrying(script: str, marker: str = MARKER) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", script],
        env={**os.environ, processes.MARKER: marker},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_processes_are_found_by_their_marker_alone() -> None:
    one = carrying("exec sleep 100")
    other = carrying("exec sleep 100", MARKER + "0")
    try:
        until(lambda: processes.find(MARKER) == [one.pid])
    finally:
        for process in (one, other):
            process.kill()
            process.wait()
    assert processes.find(MARKER) == []


def test_descendants_are_found_whatever_they_carry() -> None:
    one = carrying("env -i /bin/sleep 100 & wait")

    until(lambda: len(processes.find(MARKER)) == 2)

    assert processes.end(MARKER, 5.0) == []
    one.wait()


def test_the_caller_is_never_found() -> None:
    code = "import sys; from workbench.learner.platform import processes; print(processes.find(sys.argv[1]))"
    ran = subprocess.run(
        [sys.executable, "-c", code, MARKER],
        cwd=Path(__file__).parents[2],
        env={**os.environ, processes.MARKER: MARKER},
        capture_output=True,
        check=True,
    )

    assert ran.stdout == b"[]\n"


def test_the_dead_are_not_found() -> None:
    one = carrying("exit 0")

    until(lambda: system.start_ticks(one.pid) == 0)

    assert processes.find(MARKER) == []
    assert process_table.lookup(one.pid) is None
    one.wait()


def test_ending_asks_first_and_then_kills() -> None:
    polite = carrying("trap 'exit 0' TERM; while :; do sleep 0.01; done")
    stubborn = carrying("trap '' TERM; while :; do sleep 0.01; done")
    until(lambda: all(process_table.children(one.pid) for one in (polite, stubborn)))
    began = time.monotonic()

    assert processes.end(MARKER, 0.5) == []

    assert stubborn.wait() == -signal.SIGKILL
    assert polite.wait() == 0
    assert time.monotonic() - began >= 0.4


def test_ending_with_nothing_there_returns_at_once() -> None:
    assert processes.end(MARKER + "x", 3600.0) == []


def test_double_forked_children_and_those_that_keep_forking_are_ended() -> None:
    carrying("(setsid sh -c 'while :; do (sleep 100 &) ; sleep 0.02; done' &)").wait()
    until(lambda: len(processes.find(MARKER)) >= 5)

    assert processes.end(MARKER, 0.0) == []

    assert processes.find(MARKER) == []


@pytest.mark.parametrize(
    ("variable", "end"),
    [
        pytest.param(processes.MARKER, lambda: processes.end(MARKER, 0.0), id="processes"),
        pytest.param("FABRIC_GUARD", lambda: kill_agents(MARKER), id="agents"),
    ],
)
def test_what_is_killed_has_ended_only_when_it_is_dead(
    variable: str, end: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with dying_slowly(variable, MARKER) as (pid, let_die):
        seen = 0
        pids = process_table.pids

        def look() -> set[int]:
            nonlocal seen
            seen += not process_table.environment(pid).strip(b"\0")
            if seen == 10:
                let_die()
            return pids()

        monkeypatch.setattr(process_table, "pids", look)

        end()

        assert process_table.lookup(pid) is None


def test_what_is_killed_and_does_not_die_could_not_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE_SECONDS", 0.2)

    with dying_slowly(processes.MARKER, MARKER) as (pid, _):
        assert pid in processes.end(MARKER, 0.0)


def test_a_process_between_fork_and_exec_is_known_by_pid_and_start() -> None:
    one = carrying("exec sleep 100", "another")
    until(lambda: processes.find("another") == [one.pid])
    ticks = system.start_ticks(one.pid)

    assert set(processes.members(MARKER, known=(one.pid, ticks))) == {one.pid}
    assert processes.members(MARKER, known=(one.pid, ticks + 1)) == {}

    one.kill()
    one.wait()


def test_a_tree_holds_descendants_as_they_come_and_go() -> None:
    one = subprocess.Popen(
        ["/bin/bash", "-c", "read a; sleep 100 & sleep 101 & read b; kill %1; wait %1; read c; kill %2"],
        env={**os.environ, processes.MARKER: MARKER},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert one.stdin is not None
    tree = processes.Tree(one.pid)
    assert tree.pids() == []

    one.stdin.write(b"\n")
    one.stdin.flush()
    until(lambda: len(tree.pids()) == 2)
    before = tree.pids()
    one.stdin.write(b"\n")
    one.stdin.flush()
    until(lambda: len(tree.pids()) == 1)

    assert set(tree.pids()) < set(before)
    assert os.getpid() not in processes.Tree(os.getpid()).pids()
    one.stdin.write(b"\n")
    one.stdin.close()
    one.wait()


def test_a_tree_leaves_out_a_branch() -> None:
    one = carrying("sleep 100 & wait")
    until(lambda: len(processes.find(MARKER)) == 2)

    pids = set(processes.Tree(os.getpid(), without=(one.pid,)).pids())

    assert not pids & set(processes.find(MARKER))
    processes.end(MARKER, 0.0)
    one.wait()


def test_the_table_tells_parents_and_starts() -> None:
    table = process_table.read()

    assert table[os.getpid()].parent == os.getppid()
    assert table[os.getpid()].ticks == system.start_ticks(os.getpid())


@pytest.mark.skipif(not system.LINUX, reason="both ways of looking can be compared on Linux only")
def test_ps_tells_the_same_as_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """How processes are looked at where there is no /proc."""
    one = carrying("exec sleep 100", "another")
    until(lambda: processes.find("another") == [one.pid])
    with monkeypatch.context() as patch:
        patch.setattr(system, "LINUX", False)
        table = process_table.read()

        assert table[one.pid].parent == os.getpid()
        assert abs(table[one.pid].ticks - time.time()) < 60
        assert table[one.pid].ticks == system.start_ticks(one.pid)
        assert one.pid in processes.Tree(os.getpid()).pids()
    one.kill()
    one.wait()
