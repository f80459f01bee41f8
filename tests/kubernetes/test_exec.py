"""``fabric exec`` and ``fabric shell`` beside a learner in its pod, with the terminal that a person has."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.kubernetes.jobs import Pods
from tests.support.command import EXECUTABLE
from tests.support.waiting import until


@dataclass(slots=True)
class Terminal:
    """A command on a terminal of its own."""

    pid: int
    descriptor: int
    output: bytes = b""
    sizes: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, *args: str, environment: Mapping[str, str]) -> Terminal:
        pid, descriptor = pty.fork()
        if pid == 0:
            os.execve(EXECUTABLE, [str(EXECUTABLE), *args], environment)
        return cls(pid, descriptor)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str) -> None:
        def is_printed() -> bool:
            if select.select([self.descriptor], [], [], 0)[0]:
                self.output += os.read(self.descriptor, 65536)
            return text.encode() in self.output

        until(is_printed, lambda: f"{text!r} on the terminal; it says {self.output!r}")

    def wait(self) -> int:
        while True:
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:  # so a terminal says that its other side has gone
                break
            if not data:
                break
            self.output += data
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)


class TestOneJob:
    """What is done beside one job, and at last after it."""

    @pytest.fixture(scope="class")
    @classmethod
    def running(cls, shared_pods: Pods) -> str:
        """A job that runs in a pod; its id."""
        job = shared_pods.start("--", "sh", "-c", "echo ready; exec sleep 600")
        shared_pods.until_printed(job, "ready")
        return job

    def test_a_command_beside_a_learner_gets_input_and_gives_its_exit_code(
        self, shared_pods: Pods, running: str
    ) -> None:
        args = ("exec", running, "--", "sh", "-c", "cat; echo wrong >&2; exit 5")

        ran = shared_pods.fabric(*args, input="typed\n", expect=5)

        assert ran.stdout == "typed\n"
        assert "wrong\n" in ran.stderr

    def test_a_shell_has_the_terminals_size_also_when_that_changes(
        self, shared_pods: Pods, running: str
    ) -> None:
        shell = Terminal.of("shell", running, environment=shared_pods.fabric.variables)
        shell.resize(21, 71)
        shell.type("stty size; echo fir''st\n")
        shell.until("first")
        shell.resize(44, 99)

        def has_new_size() -> bool:
            shell.type("stty size; echo as''ked\n")
            shell.output = b""
            shell.until("asked")
            return b"44 99" in shell.output

        until(has_new_size, "the new size to be known")
        shell.type("exit 9\n")

        assert shell.wait() == 9

    def test_a_command_beside_a_learner_that_has_ended_is_refused(
        self, shared_pods: Pods, running: str
    ) -> None:
        shared_pods.fabric("halt", running)
        shared_pods.until_state(running, "HALTED")

        ran = shared_pods.fabric("exec", running, "--", "true", expect=None)

        assert ran.returncode != 0 and "is not running" in ran.stderr
