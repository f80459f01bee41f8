"""Processes on a host: run to their end within a deadline, or started to outlive the caller."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from typing import BinaryIO, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from workbench.learner.platform import descriptors, process_table, system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders

OUTPUT_LIMIT_BYTES = 64 << 20
"""More of a command's output is not brought back."""

_POLL_SECONDS = 0.01
_spawned: List[int] = []
_running: Set[int] = set()
_starting = threading.Lock()
_ended = False


def run(
    argv: Sequence[str],
    stdin: bytes,
    env: Optional[Mapping[str, str]],
    cwd: Optional[str],
    deadline_seconds: float,
) -> Tuple[int, bytes, bytes]:
    """Run a command to its end and return its exit code (128 + n for signal n), stdout and stderr.

    What it leaves running in the background is not waited for.

    Raises:
        Failure: it cannot be started, or the deadline passed and its whole session was killed.
    """
    with contextlib.ExitStack() as files:
        # Files rather than pipes: whatever the command leaves behind may keep a pipe open for ever.
        stdout, stderr, stdin_file = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin_file.write(stdin)
        stdin_file.seek(0)
        process = _begin(argv, stdin_file, stdout, stderr, env, cwd)
        try:
            if not _ends(process, deadline_seconds):
                end_session(process.pid)
                raise Failure(
                    "timeout", f"{argv[0]} did not end within {deadline_seconds:g} seconds and was killed."
                )
        finally:
            if process.poll() is None:
                end_session(process.pid)
            code = process.wait()
            _running.discard(process.pid)
        return (code if code >= 0 else 128 - code), _content(stdout), _content(stderr)


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, output: str, holding: Sequence[int]) -> int:
    """Start a process in a session of its own, its output appended to a file; return its pid.

    It inherits the descriptors ``holding`` and nothing else.
    """
    reap()
    make_folders([os.path.dirname(output)])
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env={**env, **descriptors.given()},
            cwd=cwd,
            start_new_session=True,
            pass_fds=list(holding),
        )
    except OSError as error:
        raise _not_started(argv, error) from error
    finally:
        os.close(descriptor)
    _spawned.append(process.pid)
    process.returncode = 0  # it outlives us and this object: reap waits for its pid
    return process.pid


def reap() -> None:
    """Take the exit status of started processes that have ended, so that none stays a zombie."""
    for pid in list(_spawned):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            with contextlib.suppress(ValueError):
                _spawned.remove(pid)


def kill_agents(marker: str) -> None:
    """Kill the agents of a learner, which carry its marker in ``FABRIC_GUARD``, until none is left.

    A process that is killed gives up its environment first, and its files and locks a moment later.
    """
    killed: Dict[int, int] = {}
    if system.LINUX and not process_table.carriers("FABRIC_GUARD", marker, process_table.pids()):
        return
    for _ in range(100):
        table = process_table.read()
        killed = {pid: ticks for pid, ticks in killed.items() if pid in table and table[pid].ticks == ticks}
        killed.update(
            (pid, table[pid].ticks) for pid in process_table.carriers("FABRIC_GUARD", marker, table)
        )
        for pid in killed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not killed:
            return
        time.sleep(_POLL_SECONDS)


def end_running() -> None:
    """Kill what :func:`run` is running, and run no more: whoever asked for it is gone."""
    global _ended
    with _starting:
        _ended = True
        for session in list(_running):
            end_session(session)


def end_session(session: int) -> None:
    """Kill every process of a session, also those that have process groups of their own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    for _ in range(100):
        members = list(_members(session))
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            return


def _members(session: int) -> Iterator[int]:
    return (pid for pid, fields in _stats() if int(fields[3]) == session and fields[0] not in "ZX")


def _stats() -> Iterator[Tuple[int, List[str]]]:
    """Give each process's pid and the fields of its stat after the name: state, parent, group, session."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stream:
                    fields = stream.read().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            yield int(name), fields


def _begin(
    argv: Sequence[str],
    stdin: BinaryIO,
    stdout: BinaryIO,
    stderr: BinaryIO,
    env: Optional[Mapping[str, str]],
    cwd: Optional[str],
) -> "subprocess.Popen[bytes]":
    with _starting:  # so that none is begun and not yet known when all are to be ended
        if _ended:
            raise Failure("failed", "The connection is being closed.")
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(argv, error) from error
        _running.add(process.pid)
        return process


def _ends(process: "subprocess.Popen[bytes]", deadline_seconds: float) -> bool:
    """Wait for a process without looking again and again where the system can tell."""
    opened = getattr(os, "pidfd_open", None)
    if opened is not None:
        try:
            descriptor = opened(process.pid)
        except OSError:
            opened = None  # an old kernel, or a filter of system calls
    if opened is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(deadline_seconds)
            return True
        return False
    try:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        until = time.monotonic() + deadline_seconds
        while time.monotonic() < until:
            if waiting.poll(max(0.0, until - time.monotonic()) * 1000):
                return True
        return process.poll() is not None
    finally:
        os.close(descriptor)


def _content(stream: BinaryIO) -> bytes:
    stream.seek(0)
    return stream.read(OUTPUT_LIMIT_BYTES)


def _not_started(argv: Sequence[str], error: OSError) -> Failure:
    kind = "missing" if isinstance(error, FileNotFoundError) else "failed"
    return Failure(kind, f"{argv[0]} cannot be started: {error.strerror}.")
