"""What tests fork instead of starting programs is seen as those programs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil

from tests.cli.conftest import Fabric
from tests.cli.forked import FORKS
from tests.waiting import ended, until
from workbench.controller.runtime.client import ControllerStatus, status
from workbench.paths import Home

OF_PROGRAMS = (1 << 31) - 1
"""The signals that programs use: those above are the C library's."""


def answering(home: Home) -> ControllerStatus:
    found = until(lambda: status(home), "a controller to answer")
    assert found is not None
    return found


def facts(pid: int) -> dict[str, object]:
    """What the kernel says of a process, as far as it may not depend on how it was started."""
    states = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    process = psutil.Process(pid)
    return {
        "words": [word for word in process.cmdline() if word],
        "environment": {
            name: process.environ().get(name) for name in ("FABRIC_HOME", "HOME", "PATH", "WORD")
        },
        "signals": {name: int(states[name], 16) & OF_PROGRAMS for name in ("SigBlk", "SigIgn", "SigCgt")},
        "umask": states["Umask"],
        "session": os.getsid(pid) == pid,
        "folder": process.cwd(),
        "streams": [Path(f"/proc/{pid}/fd/{number}").readlink() for number in (0, 1, 2)],
    }


def test_a_controller_that_is_forked_is_seen_as_its_program(fabric: Fabric, home: Home) -> None:
    fabric("run", "-d", "--", "sleep", "600", WORD="said")
    forked = answering(home)
    assert FORKS._server is not None
    assert psutil.Process(forked.pid).ppid() == FORKS._server.pid
    seen = facts(forked.pid)
    fabric("controller", "stop")
    until(lambda: not psutil.pid_exists(forked.pid), "the controller to end")

    unread = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**fabric.variables, "WORD": "said"}
    assert ended(fabric.start("run", "-d", "--", "sleep", "600", env=environment, **unread)) == 0
    program = answering(home)
    assert psutil.Process(program.pid).ppid() != FORKS._server.pid
    assert seen == facts(program.pid)


def test_a_forked_controller_that_is_killed_is_followed_by_another(fabric: Fabric, home: Home) -> None:
    fabric("run", "-d", "--name", "late", "--begin", "2030-12-24T22:00", "--", "true")
    first = answering(home)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(first.pid), "the controller to be gone")
    fabric("queue", "set", "late", "begin=now")
    fabric("wait", "late")
    assert answering(home).pid != first.pid
