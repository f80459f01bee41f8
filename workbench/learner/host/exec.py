"""An interactive command on a host: its streams are relayed, over a terminal of its own if requested."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from workbench.learner.platform.errors import Failure
from workbench.learner.platform.run import end_session

CHUNK_BYTES = 65536
POLL_SECONDS = 0.05
STDOUT, STDERR = 1, 2
END_OF_INPUT = b"\x04"
_BEGIN = (
    "import fcntl,os,signal,sys,termios;fcntl.ioctl(0,termios.TIOCSCTTY,0);"
    "[signal.signal(each,signal.SIG_DFL) for each in (signal.SIGPIPE,signal.SIGXFSZ)];"
    "os.execvp(sys.argv[1],sys.argv[1:])"
)
"""Makes the terminal its controlling one; between fork and exec that is not safe in a process with threads.

Python ignores two signals, and what is ignored stays so through exec.
"""


class CommandSession:
    """One running command; :meth:`relay` passes its output on until it has ended."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        terminal: bool = False,
        rows: int = 24,
        columns: int = 80,
    ) -> None:
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise Failure("missing", "%s cannot be started: there is no such command." % argv[0])
        self._writing = threading.Lock()
        self._outputs: Dict[int, int] = {}
        if terminal:
            self._begin_on_terminal(argv, env, cwd, rows, columns)
        else:
            self._begin_on_pipes(argv, env, cwd)

    def _begin_on_terminal(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, rows: int, columns: int
    ) -> None:
        master, slave = pty.openpty()
        os.set_inheritable(master, False)
        self._terminal: Optional[int] = master
        self._input: Optional[int] = master
        self._outputs[master] = STDOUT
        self.resize(rows, columns)
        try:
            self._process = _popen([sys.executable, "-ISc", _BEGIN, *argv], env, cwd, slave, slave, slave)
        finally:
            os.close(slave)

    def _begin_on_pipes(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        self._terminal = None
        self._process = _popen(argv, env, cwd, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        # As plain descriptors: they are closed here and nowhere else.
        self._input = os.dup(self._process.stdin.fileno())
        self._process.stdin.close()
        for stream, number in ((self._process.stdout, STDOUT), (self._process.stderr, STDERR)):
            self._outputs[os.dup(stream.fileno())] = number
            stream.close()

    def write(self, data: bytes) -> None:
        """Give the command input; what it does not take any more is dropped."""
        with self._writing:
            left = memoryview(data)
            while left and self._input is not None:
                try:
                    left = left[os.write(self._input, left) :]
                except OSError:
                    return

    def end_input(self) -> None:
        """Say that no more input comes."""
        if self._terminal is not None:
            self.write(END_OF_INPUT)
            return
        with self._writing:
            if self._input is not None:
                os.close(self._input)
                self._input = None

    def resize(self, rows: int, columns: int) -> None:
        """Tell the command how large the terminal is."""
        if self._terminal is not None:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def relay(self, take: Callable[[int, bytes], None], is_abandoned: Callable[[], bool]) -> int:
        """Pass output on until the command has ended and all of it has come; return its exit code.

        What it leaves running in the background may keep its streams, and is not waited for. Once ``is_left`` says
        that nobody is in front of it any more, it is ended.
        """
        open_ones = list(self._outputs)
        while open_ones and not is_abandoned():
            ended = self._process.poll() is not None
            ready = select.select(open_ones, (), (), 0.0 if ended else POLL_SECONDS)[0]
            if ended and not ready:
                break
            for descriptor in ready:
                data = _read(descriptor)
                if data:
                    take(self._outputs[descriptor], data)
                else:
                    open_ones.remove(descriptor)
        while True:  # it may have closed its streams, and go on
            if is_abandoned():
                self.hang_up()
            try:
                code = self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return code if code >= 0 else 128 - code

    def hang_up(self) -> None:
        """End the command: its user has disconnected."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGHUP)
                self._process.wait(1.0)
            except (OSError, subprocess.TimeoutExpired):
                end_session(self._process.pid)

    def close(self) -> None:
        """Give the descriptors back."""
        with self._writing:
            descriptors = set(self._outputs) | ({self._input} if self._input is not None else set())
            self._input = self._terminal = None
            for descriptor in descriptors:
                os.close(descriptor)
            self._outputs = {}


def _popen(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: int, stdout: int, stderr: int
) -> "subprocess.Popen[bytes]":
    command: List[str] = list(argv)
    try:
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=dict(env), cwd=cwd, start_new_session=True
        )
    except OSError as error:
        raise Failure("failed", "%s cannot be started: %s." % (command[0], error.strerror)) from error


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""  # how a terminal says that nobody is at its other end any more
        raise
