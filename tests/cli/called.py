"""A program ``fabric`` for shells of tests whose commands are forked as those of :mod:`tests.support.forked` are.

What a shell runs is a small program that starts in 10 ms: it hands its words, folder, environment and streams to this
process, passes signals on, and ends as the command does. If it is killed, the command is, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.forked import FORKS

EXECUTABLE: Final = Path(sys.executable).with_name("fabric")
_NUMBER: Final = struct.Struct("=i")
_PROGRAM: Final = """\
#!{python} -IS
import _signal, _socket, posix, sys
pid, early = 0, []
def pass_on(number, frame):
    posix.kill(pid, number) if pid else early.append(number)
for each in {passed_on}:
    _signal.signal(each, pass_on)
mask = posix.umask(0o077)
posix.umask(mask)
words = [word.encode("utf-8", "surrogateescape") for word in sys.argv[1:]]
variables = [b"%s=%s" % item for item in posix.environ.items()]
body = b"\\0".join([b"%d" % mask, posix.getcwdb(), b"%d" % len(words), *words, *variables])
number = lambda value: value.to_bytes(4, sys.byteorder, signed=True)
line = _socket.socket(_socket.AF_UNIX)
line.connect({socket!r})
streams = b"".join(map(number, range(3)))
line.sendmsg([number(len(body))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
line.sendall(body)
answer = line.recv(4)
if not answer:  # one with another locale, say, which only a Python's start takes in
    posix.execv({executable!r}, [{executable!r}, *sys.argv[1:]])
pid = int.from_bytes(answer, sys.byteorder)
for each in early:
    posix.kill(pid, each)
code = int.from_bytes(line.recv(4), sys.byteorder, signed=True)
if code < 0:
    if -code in {passed_on}:
        _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
"""
_PASSED_ON: Final = tuple(
    map(int, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
)


@contextmanager
def forked_fabric(folder: Path) -> Iterator[None]:
    """Make a folder with the program ``fabric``, which is of use as long as this is entered."""
    folder.mkdir()
    address = folder / "line"
    program = folder / "fabric"
    program.write_text(
        _PROGRAM.format(
            python=sys.executable, socket=str(address), executable=str(EXECUTABLE), passed_on=_PASSED_ON
        )
    )
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        taker = threading.Thread(target=_take, args=(listener,), daemon=True)
        taker.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            taker.join()
            shutil.rmtree(folder, ignore_errors=True)


def _take(listener: socket.socket) -> None:
    while True:
        try:
            line, _ = listener.accept()
        except OSError:  # shut down
            return
        threading.Thread(target=_run, args=(line,), daemon=True).start()


def _run(line: socket.socket) -> None:
    """Have a command run for a program, and tell it the process and the exit code."""
    with line, contextlib.suppress(OSError):
        head, streams, _, _ = socket.recv_fds(line, _NUMBER.size, 3)
        try:
            length = _NUMBER.unpack(head)[0]
            body = line.recv(length, socket.MSG_WAITALL)
            if len(body) < length:  # the program has been killed
                return
            mask, folder, count, *rest = body.split(b"\0")
            args = [os.fsdecode(word) for word in rest[: int(count)]]
            environment = dict(os.fsdecode(each).split("=", 1) for each in rest[int(count) :])
            if not FORKS.can_run(environment):
                return
            ended, end = os.pipe()
            streams.append(end)
            FORKS.ask(
                {
                    "argv": [str(EXECUTABLE), *args],
                    "cwd": os.fsdecode(folder),
                    "env": environment,
                    "umask": int(mask),
                },
                streams,
            )
        finally:
            for stream in streams:
                os.close(stream)
        try:
            pid = os.read(ended, _NUMBER.size)
            line.sendall(pid)
            ready, _, _ = select.select([ended, line.fileno()], [], [])
            if ended not in ready:  # the program has been killed
                os.kill(_NUMBER.unpack(pid)[0], signal.SIGKILL)
                return
            line.sendall(os.read(ended, _NUMBER.size))
        finally:
            os.close(ended)
