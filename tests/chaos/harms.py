"""Who is killed in a round: how each victim is found, and what the harm may change of a job's end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.controllers import still_of
from workbench.paths import Home


def _number(file: Path, key: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text()).get(key)
        return int(found) if found else None
    return None


def controller(home: Home, job: str) -> int | None:
    """Return the pid in the controller's lock."""
    return still_of(home.path, _number(home.controller_lock, "pid"))


def guard(home: Home, job: str) -> int | None:
    """Return the pid of the newest attempt's guard, while its learner has not ended."""
    return _agent(home, job, "pid")


def scribe(home: Home, job: str) -> int | None:
    """Return the pid of the newest attempt's scribe, while its learner has not ended."""
    return _agent(home, job, "scribe_pid")


def _agent(home: Home, job: str, key: str) -> int | None:
    attempts = sorted(home.job(job).path.glob("attempt-*"), key=lambda path: int(path.name.split("-")[1]))
    if not attempts:
        return None
    state = attempts[-1] / "learner-1" / "state.json"
    with contextlib.suppress(OSError, ValueError):
        if json.loads(state.read_text())["phase"] == "exited":
            return None
    return still_of(home.path, _number(state, key))


@dataclass(frozen=True, slots=True)
class Harm:
    """One kind of harm."""

    victims: tuple[str, ...]
    """Names in :data:`FIND`; ``client`` and ``screen`` are known to the round itself."""
    another_attempt: bool = False
    """Whether the job may need another attempt to end well."""
    pipe_is_lost: bool = False
    """Whether nobody is left who holds the pipe: what the kernel kept in it goes with its last reader."""


def container(home: Home, job: str) -> int | None:
    """Return the pid of the newest container's first process, if there is one."""
    argv = ["docker", "ps", "-q", "--filter", f"label=fabric.job={job}"]
    for name in subprocess.run(argv, capture_output=True, text=True).stdout.split():
        looked = subprocess.run(
            ["docker", "inspect", "--format", "{{.State.Pid}}", name], capture_output=True, text=True
        )
        return int(looked.stdout.strip() or 0) or None
    return None


FIND: Final[Mapping[str, Callable[[Home, str], int | None]]] = {
    "controller": controller,
    "guard": guard,
    "scribe": scribe,
    "container": container,
}

HARMS: Final[Mapping[str, Harm]] = {
    "controller": Harm(("controller",)),
    "client": Harm(("client",)),
    "screen": Harm(("screen",)),
    "scribe": Harm(("scribe",)),
    "guard": Harm(("guard",), another_attempt=True),
    "guard and scribe": Harm(("guard", "scribe"), another_attempt=True, pipe_is_lost=True),
    "controller and guard": Harm(("controller", "guard"), another_attempt=True),
    "controller and client": Harm(("controller", "client")),
}

IN_CONTAINERS: Final[Mapping[str, Harm]] = {
    "controller": HARMS["controller"],
    "scribe": HARMS["scribe"],
    "guard": HARMS["guard"],
    "guard and scribe": HARMS["guard and scribe"],
    "container": Harm(("container",), another_attempt=True, pipe_is_lost=True),
    "controller and container": Harm(("controller", "container"), another_attempt=True, pipe_is_lost=True),
}
"""What is done to jobs in containers: a client or a screen is no other one there."""


def kill(pid: int | None) -> bool:
    """Kill a process at once; say whether there was one."""
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
