"""``fabric`` without the start of a Python for each command: one process has imported it all, and forks for each.

A command is a process of its own all the same, with the environment, folder and streams that it is given. How the
installed program starts, and what it imports, is tried in ``tests/cli``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

PACKAGES: Final = ("workbench", "backends", "runners")
LEFT_OUT: Final = ("__main__", "conformance")
USED_LATER: Final = (
    "typer.main",
    "rich.console",
    "yaml",
    "ssl",
    "http.client",
    "email.parser",
    "encodings.idna",
)
"""What functions of commands import."""
LONGEST: Final = 1 << 18
"""The most bytes of one request."""


class ForkServer:
    """The client's side; several threads may ask at once."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd="/",
                pass_fds=[theirs.fileno()],
            )
        self._asking = ours

    def close(self) -> None:
        """End the server; it ends by itself with its last client."""
        self._asking.close()
        self._process.wait()

    def run(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        input: str | None,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run one command and return what ``subprocess.run`` would.

        Raises:
            subprocess.TimeoutExpired: it was killed, since its time was over.
        """
        request = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
        given, said, wrong = (os.memfd_create(name) for name in ("stdin", "stdout", "stderr"))
        try:
            os.write(given, (input or "").encode(errors="surrogateescape"))
            os.lseek(given, 0, os.SEEK_SET)
            status = self._wait_for(request, (given, said, wrong), timeout)
            texts = [_read(each) for each in (said, wrong)]
        finally:
            for descriptor in (given, said, wrong):
                os.close(descriptor)
        if status is None:
            raise subprocess.TimeoutExpired(["fabric", *words], timeout, *texts)
        return subprocess.CompletedProcess(["fabric", *words], os.waitstatus_to_exitcode(status), *texts)

    def _wait_for(self, request: object, streams: Sequence[int], timeout: float) -> int | None:
        """Have a command run; return how it ended, None where its time was over."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                socket.send_fds(self._asking, [json.dumps(request).encode()], [theirs.fileno(), *streams])
            pid = int(ours.recv(32))
            in_time = bool(select.select([ours], [], [], timeout)[0])
            if not in_time:
                os.kill(pid, signal.SIGKILL)
            status = int(ours.recv(32))
        return status if in_time else None


def _read(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors="surrogateescape") if size else ""


def serve(descriptor: int) -> None:
    """Fork for each request until there is no client left."""
    for name in USED_LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not set(LEFT_OUT) & set(found.name.split(".")):
                importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # what all commands have stays one copy
    with socket.socket(fileno=descriptor) as asking, selectors.DefaultSelector() as news:
        news.register(asking, selectors.EVENT_READ)
        while True:
            for key, _ in news.select():
                if key.data is None:
                    data, descriptors, *_ = socket.recv_fds(asking, LONGEST, 4)
                    if not data:
                        return
                    reply, *streams = descriptors
                    pid = os.fork()
                    if pid == 0:
                        _become(json.loads(data), streams)
                    for each in streams:
                        os.close(each)
                    os.write(reply, str(pid).encode())
                    news.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply))
                else:
                    pid, reply = key.data
                    news.unregister(key.fd)
                    os.close(key.fd)
                    os.write(reply, str(os.waitpid(pid, 0)[1]).encode())
                    os.close(reply)


def _become(request: Mapping[str, object], streams: Sequence[int]) -> NoReturn:
    """Be the command."""
    from fabric_workbench import command

    for number, each in enumerate(streams):
        os.dup2(each, number)
    os.closerange(len(streams), 256)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    environment, words = request["environment"], request["words"]
    assert isinstance(environment, dict) and isinstance(words, list)
    os.environ.update(environment)
    sys.argv = ["fabric", *words]
    code: object = 70
    try:
        command()
    except SystemExit as ended:
        code = ended.code
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 70)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
