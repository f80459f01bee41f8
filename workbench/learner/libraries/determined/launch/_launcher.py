"""What all launchers have in common: their arguments, how many processes there are, and how they become a command."""

from __future__ import annotations

import os
import signal
import sys

# Relative: this package is imported by its last name.
from .. import _wheel  # noqa: TID252
from .._info import get_cluster_info  # noqa: TID252

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Callable, Mapping, Sequence

HARNESS = ("python3", "-m", "determined.exec.harness")
"""What Determined runs a Trial class with."""
CHIEF = "localhost"
"""The address of the processes' first one, where they are on one machine."""


class Refused(Exception):
    """A launch cannot be; the exit code comes with the message."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def parsed(words: Sequence[str], usage: str) -> tuple[list[str], list[str]]:
    """Return what overrides the launcher's options, which stands before ``--``, and the command of a process.

    Raises:
        Refused: there is no command, an option is not known, or a Trial class has arguments.
    """
    overrides: list[str] = []
    script = list(words)
    if "--" in script:
        at = script.index("--")
        overrides, script = script[:at], script[at + 1 :]
    trial = None
    while script and script[0].startswith("-"):
        name, equals, value = script.pop(0).partition("=")
        if name in ("-h", "--help"):
            raise Refused(usage, 0)
        if name != "--trial":
            raise Refused("unrecognized arguments: %s\n%s" % (name, usage))
        if not equals and not script:
            raise Refused("--trial needs the name of a class\n%s" % usage)
        trial = value if equals else script.pop(0)
    if trial is not None:
        if script:
            raise Refused("extra arguments to --trial: %s\n%s" % (" ".join(script), usage))
        return overrides, [*HARNESS, trial]
    if not script:
        raise Refused("empty script is not allowed\n%s" % usage)
    return overrides, script


def slots() -> int:
    """Return how many processes the job has slots for; one where there is none."""
    info = get_cluster_info()
    return max(len(info.slot_ids), 1) if info else 1


def learners() -> int:
    """Return on how many machines the job runs."""
    info = get_cluster_info()
    return len(info.container_addrs) if info else 1


def learner() -> int:
    """Return the number of this machine among those of the job, from 0."""
    info = get_cluster_info()
    return info.container_rank if info else 0


def chief() -> str:
    """Return the address of the machine with the processes' first one."""
    info = get_cluster_info()
    return info.container_addrs[0] if info and len(info.container_addrs) > 1 else CHIEF


def refuse_several(program: str, instead: str) -> None:
    """Refuse to start processes on several machines, which a program does by ssh.

    Raises:
        Refused: the job has several learners.
    """
    count = learners()
    if count > 1:
        raise Refused(
            "the trial has %d learners, and %s starts processes on other machines by ssh, which learners do not"
            " have: %s; or let it be one learner: resources.is_single_node: true" % (count, program, instead),
            1,
        )


def port() -> str:
    """Return the port that the processes' first one listens on."""
    return os.environ.get("MASTER_PORT") or os.environ.get("C10D_PORT") or "29400"


def wrapped(rank: str, script: Sequence[str]) -> list[str]:
    """Return the arguments of Python that run a command whose lines begin with its rank."""
    return ["-m", "determined.launch.wrap_rank", rank, "--", *script]


def run(
    name: str,
    words: Sequence[str],
    usage: str,
    command_of: Callable[[list[str], list[str]], list[str]],
    environment: Mapping[str, str],
) -> int:
    """Become the command that starts a job's processes; return an exit code where that cannot be.

    Args:
        name: of the launcher, for messages.
        words: its arguments.
        usage: how it is called.
        command_of: the command for overrides and script.
        environment: the variables that the command has besides.
    """
    try:
        overrides, script = parsed(words, usage)
        if tuple(script[: len(HARNESS)]) == HARNESS and _wheel.folder() is None:
            raise Refused("--trial: " + _wheel.NEEDED)
        command = command_of(overrides, script)
    except Refused as error:
        return refused(name, error)
    if get_cluster_info() is not None:
        # A stop is for the training code to see, where the launcher does not end its processes by itself.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    return become(name, command)


def refused(name: str, error: Refused) -> int:
    """Say why a launch cannot be, and return the exit code that it has for that."""
    print("determined.launch.%s: %s" % (name, error) if error.code else error, file=sys.stderr)
    return error.code


def become(name: str, command: list[str]) -> int:
    """Become a command; return an exit code where that cannot be."""
    os.environ.setdefault("DET_CHIEF_IP", chief())
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print("determined.launch.%s: %s: %s" % (name, command[0], error.strerror), file=sys.stderr)
        return 127


def tool(name: str, package: str) -> str:
    """Return the path of a program that a package brings.

    Raises:
        Refused: it is not there.
    """
    import shutil

    # That of the Python that runs this goes before one of another environment.
    own = os.path.join(os.path.dirname(sys.executable), name)
    found = own if os.access(own, os.X_OK) else shutil.which(name)
    if found is None:
        raise Refused(
            "%s is not on the PATH: %s is not installed; name it in requirements:, or an image that has it"
            % (name, package),
            1,
        )
    return found
