"""Runs rclone's S3 server over a folder of this machine."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from threading import Event

from workbench.data.stores.local_server import TRIAL_KEY, LocalStore, make_containers, serving
from workbench.data.stores.rclone import find_rclone
from workbench.errors import BackendError, CannotWrite, InputMissing, TryAgain
from workbench.paths import Home
from workbench.values import dataclass

LOOPBACK = "127.0.0.1"
PORT = 9023
"""What is tried first, so that a job finds the store where it was when it is started again."""

READY_SECONDS = 30.0
END_SECONDS = 5.0

_LISTENS = b"Starting s3 server on"
_TAKEN = "address already in use"
_PORTS_TRIED = 3


@dataclass(frozen=True, slots=True)
class ServedStore:
    """The store that is served."""

    address: str
    folder: str
    made: tuple[str, ...]
    """The containers that were missing and were made."""


def serve_store(
    home: Home, folder: Path, port: int, containers: Sequence[str], cancel: Event
) -> Generator[ServedStore]:
    """Serve a folder; yields once, when the store answers, and ends when ``cancel`` is set.

    Args:
        home: Whose jobs may name the store ``served``.
        folder: What is served, made where it is missing: a folder for each container.
        port: Where; 0 for the usual port, or a free one.
        containers: Made where they are missing.
        cancel: Ends the server.

    Raises:
        InputMissing: there is no rclone, or the folder is a file.
        TryAgain: the port is taken, or a store is served already.
        BackendError: rclone ended by itself.
    """
    rclone = find_rclone()
    _make_folder(folder)
    with serving(home) as registration:
        made = make_containers(folder, containers)
        server, address = _start_on_port(rclone.path, port, folder, cancel)
        try:
            served = LocalStore(f"http://{address}", str(folder), server.pid)
            registration.write(served)
            yield ServedStore(served.address, served.folder, tuple(made))
            while server.poll() is None and not cancel.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(0.2)
            if not cancel.is_set():
                raise BackendError(f"the server has ended by itself: {_last_message(server)}")
        finally:
            _end(server)


def containers_in(manifests: Sequence[str]) -> list[str]:
    """Return the containers that manifests name.

    Raises:
        ManifestError: one is at fault.
        InputMissing: one is not there.
    """
    if not manifests:
        return []
    from workbench.config import load_config
    from workbench.manifest import load

    found = [
        container.strip("/").partition("/")[0]
        for file in manifests
        for store in load(file, defaults=load_config).spec.data_stores
        for container in (store.training_data, store.training_results)
    ]
    return list(dict.fromkeys(name for name in found if name))


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputMissing(f"{folder} is not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotWrite(f"cannot make {folder}: {error.strerror}") from error


def _free_port(requested: int) -> int:
    for port in (requested,) if requested else (PORT, 0):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    raise TryAgain(f"the port {requested} is taken", hint="omit --port to use a free one")


def _start_on_port(
    rclone: str, requested: int, folder: Path, cancel: Event
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server; return it and its address. A port that was free may be another's when rclone wants it."""
    for _ in range(_PORTS_TRIED):
        address = f"{LOOPBACK}:{_free_port(requested)}"
        server = _start(rclone, address, folder)
        try:
            fault = _wait_until_ready(server, cancel)
        except BaseException:
            _end(server)
            raise
        if not fault:
            return server, address
        _end(server)
        if _TAKEN not in fault:
            raise BackendError(f"the server cannot be started: {fault}")
    raise TryAgain(f"the port of {address} is taken", hint="omit --port to use a free one")


def _start(rclone: str, address: str, folder: Path) -> subprocess.Popen[bytes]:

    from workbench.learner.platform.system import die_with_parent

    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.Popen(
        [rclone, "serve", "s3", "--no-unicode-normalization", "--addr", address, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**kept, "RCLONE_CONFIG": "", "RCLONE_AUTH_KEY": f'"{TRIAL_KEY},{TRIAL_KEY}"'},
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def _wait_until_ready(server: subprocess.Popen[bytes], cancel: Event) -> str:
    """Wait until rclone says that it listens; return what it said instead when it ended.

    That somebody answers at the address proves nothing: it may be the server of another program.
    """
    assert server.stderr is not None
    deadline = time.monotonic() + READY_SECONDS
    said = b""
    while not cancel.is_set() and _LISTENS not in said:
        if select.select([server.stderr], [], [], 0.1)[0]:
            part = os.read(server.stderr.fileno(), 65536)
            if not part:
                server.wait()
                return _last_line(said) or f"exit code {server.returncode}"
            said += part
        if time.monotonic() > deadline:
            raise BackendError(f"the server does not listen within {READY_SECONDS:g} s")
    return ""


def _last_message(server: subprocess.Popen[bytes]) -> str:
    messages = server.stderr.read() if server.stderr else b""
    return _last_line(messages) or f"exit code {server.returncode}"


def _last_line(messages: bytes) -> str:
    lines = messages.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    if server.stderr:
        server.stderr.close()
