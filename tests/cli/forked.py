"""Commands without the start of a Python: one process has imported what they need, and forks for each.

Each command is a process all the same, with streams, a folder, an environment and an exit code of its own. It is what a
command does most of the time in tests that start one, and half of the gate's command line took it. How a command starts
as a program is tried where :meth:`Fabric.start` and the terminals start it.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = (
    "workbench.cli",
    "workbench.controller.runtime",
    "workbench.services",
    "workbench.store",
    "workbench.manifest",
    "workbench.config",
    "workbench.documents",
    "workbench.terminal",
    "workbench.logs",
    "workbench.metrics",
    "workbench.data",
    "backends",
    "runners",
)
"""What is imported ahead; the rest, as the screens, is when a command asks for it."""
LEFT_OUT: Final = frozenset({"__main__", "conformance"})
USED_LATER: Final = ("paramiko",)
"""What functions of these import."""
LOCALE: Final = ("LC_ALL", "LC_CTYPE", "LANG")
UTF_8: Final = "C.UTF-8"
"""What Python takes, and sets as ``LC_CTYPE``, where no locale is named."""
_LENGTH: Final = struct.Struct("=I")
_ENDED: Final = struct.Struct("=i")


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is looked at only when a Python starts: variables of its own and of the loader, and the locale."""
    own = {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_"))}
    locale = next((environment[name] for name in LOCALE if environment.get(name)), UTF_8)
    return {**own, "LC_ALL": locale}


class Forks:
    """The process that forks, as long as this one lives; started when the first command is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._started_with: dict[str, str] = {}

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Say whether a command would find here what it finds as a program."""
        return read_at_start(environment) == (
            self._started_with if self._server else read_at_start(os.environ)
        )

    def run(
        self, argv: list[str], *, cwd: Path, env: Mapping[str, str], input: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as ``subprocess.run`` does with ``capture_output`` and ``text``."""
        with contextlib.ExitStack() as ours:
            theirs: list[int] = []
            pipes: list[int] = []
            given = -1
            try:
                if input is None:
                    theirs.append(os.open(os.devnull, os.O_RDONLY))
                else:
                    end, given = os.pipe()
                    theirs.append(end)
                for _ in range(3):  # stdout, stderr, and the line that says how it ended
                    kept, end = os.pipe()
                    pipes.append(kept)
                    ours.callback(os.close, kept)
                    theirs.append(end)
                os.umask(mask := os.umask(0o077))
                self.ask({"argv": argv, "cwd": str(cwd), "env": dict(env), "umask": mask}, theirs)
            finally:
                for end in theirs:
                    os.close(end)
                if given >= 0:
                    ours.callback(os.close, given)
            pid = _ENDED.unpack(_read(pipes[2], _ENDED.size))[0]
            try:
                out, err = _converse(
                    given, (input or "").encode(errors="surrogateescape"), pipes[:2], timeout
                )
                code = _ENDED.unpack(_read(pipes[2], _ENDED.size))[0]
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(argv, code, _text(out), _text(err))

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Have a command started: its three streams, and what is told its process and, at its end, its exit code."""
        body = json.dumps(request).encode()
        with self._lock:
            if self._line is None:
                self._line = self._start()
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            self._line.sendmsg([_LENGTH.pack(len(body))], [rights])
            self._line.sendall(body)

    def _start(self) -> socket.socket:
        line, theirs = socket.socketpair()
        with theirs:
            self._started_with = read_at_start(os.environ)
            # OpenBLAS would start threads, which a process that is forked must not have. Nothing names the home of
            # the test that was the first to ask: with that it would be ended.
            environment = {"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1", **self._started_with}
            argv = [sys.executable, "-P", __file__]
            self._server = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=subprocess.PIPE, env=environment, cwd="/"
            )
        atexit.register(self.end)
        return line

    def end(self) -> None:
        """End the process that forks."""
        if self._server and self._line:
            self._line.close()
            self._server.wait()
            assert self._server.stdout
            self._server.stdout.close()


def _converse(given: int, data: bytes, pipes: list[int], timeout: float) -> tuple[bytes, bytes]:
    """Write what is given and read both streams to their ends; a command that says nothing for too long is late."""
    said = {end: bytearray() for end in pipes}
    with selectors.DefaultSelector() as ready:
        for end in pipes:
            ready.register(end, selectors.EVENT_READ)
        if given >= 0:
            os.set_blocking(given, False)
            ready.register(given, selectors.EVENT_WRITE)
        while ready.get_map():
            events = ready.select(timeout)
            if not events:
                raise subprocess.TimeoutExpired("fabric", timeout, *map(bytes, said.values()))
            for key, _ in events:
                if key.fd != given:
                    if part := os.read(key.fd, 65536):
                        said[key.fd] += part
                    else:
                        ready.unregister(key.fd)
                    continue
                with contextlib.suppress(BrokenPipeError):
                    data = data[os.write(given, data[:65536]) if data else 0 :]
                    if data:
                        continue
                ready.unregister(given)
                os.dup2(pipes[0], given)  # its reader sees the end now; the number is closed with the others
    return bytes(said[pipes[0]]), bytes(said[pipes[1]])


def _read(descriptor: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.read(descriptor, length - len(data))
        assert part, "the process that forks for commands has died"
        data += part
    return data


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


FORKS: Final = Forks()


# The process that forks


def main() -> None:
    """Import, then fork for every command that is asked for on stdin, until that is closed."""
    _import_all()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    running: dict[int, int] = {}
    with socket.socket(fileno=os.dup(0)) as line, selectors.DefaultSelector() as ready:
        ready.register(line, selectors.EVENT_READ)
        ready.register(read_end, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == read_end:
                    os.read(read_end, 4096)
                    _tell_of_ended(running)
                    continue
                asked = _receive(line)
                if asked is None:
                    return
                request, descriptors = asked
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for descriptor in (read_end, write_end, descriptors[3], *running.values()):
                        os.close(descriptor)
                    line.close()
                    ready.close()
                    _become(request, descriptors[:3])
                    _run()
                    return
                running[pid] = descriptors.pop()
                os.write(running[pid], _ENDED.pack(pid))
                for descriptor in descriptors:
                    os.close(descriptor)


def _import_all() -> None:
    import importlib
    import pkgutil

    sys.path.insert(0, str(Path(__file__).parents[2]))
    import fabric_workbench

    fabric_workbench._drop_foreign_folders()
    for name in USED_LATER:
        importlib.import_module(name)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if LEFT_OUT.isdisjoint(module.name.split(".")):
                importlib.import_module(module.name)


def _receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    descriptors = array.array("i")
    head, extra, _, _ = line.recvmsg(_LENGTH.size, socket.CMSG_SPACE(4 * descriptors.itemsize))
    if not head:
        return None
    for _, _, data in extra:
        descriptors.frombytes(data)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return json.loads(_read(line.fileno(), _LENGTH.unpack(head)[0])), list(descriptors)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Be a process that was started with these words, folder, environment and streams."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Those from before know what a descriptor was then: whether it can be sought, or is a terminal.
    sys.stdout, sys.stderr = (
        open(number, "w", encoding=stream.encoding, errors=stream.errors, closefd=False)  # noqa: SIM115
        for number, stream in ((1, sys.stdout), (2, sys.stderr))
    )
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if not any(os.environ.get(name) for name in LOCALE):
        os.environ["LC_CTYPE"] = UTF_8
    time.tzset()
    sys.argv[:] = request["argv"]
    sys.orig_argv[:] = [sys.executable, *request["argv"]]


def _run() -> None:
    from fabric_workbench import command

    command()
    sys.exit()


def _tell_of_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        descriptor = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, _ENDED.pack(os.waitstatus_to_exitcode(status)))
        os.close(descriptor)


if __name__ == "__main__":
    main()
