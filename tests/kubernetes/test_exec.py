"""``fabric exec`` and ``fabric shell`` beside a learner in its pod, with the terminal that a person has."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.cli.conftest import EXECUTABLE
from tests.containers.forked import ForkedFabric
from tests.kubernetes.images import DEBIAN
from tests.kubernetes.space import Space
from tests.waiting import until


@pytest.fixture
def running(fabric: ForkedFabric, space: Space, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A job that runs in a pod; its id."""
    monkeypatch.setenv("KUBECONFIG", str(space.kubeconfig))
    job = fabric(
        "run", "-d", "-q", "--accept-loss", "-b", "k8s", "--image", DEBIAN, "--", "sleep", "600"
    ).stdout.strip()
    until(lambda: fabric("exec", job, "--", "true", expect=None).returncode == 0, "a command", seconds=60)
    yield job
    fabric("delete", "--yes", job)


@dataclass(slots=True)
class Terminal:
    """A command on a terminal of its own."""

    pid: int
    descriptor: int
    said: bytes = b""
    sizes: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, *words: str) -> Terminal:
        pid, descriptor = pty.fork()
        if pid == 0:
            os.execv(EXECUTABLE, [str(EXECUTABLE), *words])
        return cls(pid, descriptor)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while text.encode() not in self.said:
            left = deadline - time.monotonic()
            assert left > 0, self.said
            if select.select([self.descriptor], [], [], left)[0]:
                self.said += os.read(self.descriptor, 65536)

    def wait(self) -> int:
        while True:
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:  # so a terminal says that its other side has gone
                break
            if not data:
                break
            self.said += data
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)


def test_a_command_beside_a_learner_gets_input_and_gives_its_exit_code(
    fabric: ForkedFabric, running: str
) -> None:
    ran = fabric("exec", running, "--", "sh", "-c", "cat; echo wrong >&2; exit 5", input="typed\n", expect=5)

    assert ran.stdout == "typed\n"
    assert "wrong\n" in ran.stderr


def test_a_shell_has_the_terminals_size_also_when_that_changes(running: str) -> None:
    shell = Terminal.of("shell", running)
    shell.resize(21, 71)
    shell.type("stty size; echo fir''st\n")
    shell.until("first")
    shell.resize(44, 99)

    def is_told() -> bool:
        shell.type("stty size; echo as''ked\n")
        shell.said = b""
        shell.until("asked")
        return b"44 99" in shell.said

    until(is_told, "the new size to be known")
    shell.type("exit 9\n")

    assert shell.wait() == 9


def test_a_command_beside_a_learner_that_has_ended_is_refused(fabric: ForkedFabric, running: str) -> None:
    fabric("halt", running)
    until(
        lambda: fabric.json("show", running, "--json")["state"] == "HALTED",
        "the job to be halted",
        seconds=60,
    )

    ran = fabric("exec", running, "--", "true", expect=None)

    assert ran.returncode != 0 and "is not running" in ran.stderr
