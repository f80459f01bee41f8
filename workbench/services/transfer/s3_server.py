"""Runs rclone's S3 server over a folder until it is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.data.stores.local_server import ALIAS, NAME, TRIAL_KEY, Served, make_containers, serving
from workbench.data.stores.rclone import find_rclone
from workbench.errors import BackendError, CannotWrite, InputMissing, TryAgain
from workbench.paths import Home
from workbench.terminal.console import narrate

LOOPBACK = "127.0.0.1"
PORT = 9023
"""What is tried first, so that a job finds the store where it was when it is started again."""

READY_SECONDS = 30.0
END_SECONDS = 5.0


def serve_store(home: Home, folder: Path, port: int, manifests: Sequence[str], *, json: bool) -> int:
    """Serve a folder until ctrl-c or SIGTERM; return the exit code.

    Raises:
        InputMissing: there is no rclone, no such folder, or no such manifest.
        TryAgain: the port is taken, or a store is served already.
        BackendError: rclone ended by itself.
    """
    rclone = find_rclone()
    containers = containers_of(manifests)
    _make(folder)
    with serving(home) as registration, _until_told() as told:
        made = make_containers(folder, containers)
        address = f"{LOOPBACK}:{_free_port(port)}"
        server = _start(rclone.path, address, folder)
        try:
            _wait_until_ready(server, address, told)
            served = Served(f"http://{address}", str(folder), server.pid)
            registration.write(served)
            _tell(served, containers, made, json=json)
            while server.poll() is None and not told:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(0.2)
            if not told:
                raise BackendError(f"the server has ended by itself: {_words(server)}")
        finally:
            _end(server)
    if not json:
        narrate("the store is served no more; its files are still there")
    return 0


def containers_of(manifests: Sequence[str]) -> list[str]:
    """Return the containers that manifests name.

    Raises:
        ManifestError: one is at fault.
        InputMissing: one is not there.
    """
    if not manifests:
        return []
    from workbench.manifest import load

    found = [
        container.strip("/").partition("/")[0]
        for file in manifests
        for store in load(file).spec.data_stores
        for container in (store.training_data, store.training_results)
    ]
    return list(dict.fromkeys(name for name in found if name))


def _make(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputMissing(f"{folder} is no folder")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotWrite(f"cannot make {folder}: {error.strerror}") from error


def _free_port(wanted: int) -> int:
    for port in (wanted,) if wanted else (PORT, 0):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    raise TryAgain(f"the port {wanted} is taken", hint="leave --port out, and a free one is found")


def _start(rclone: str, address: str, folder: Path) -> subprocess.Popen[bytes]:

    from workbench.learner.platform.system import die_with_parent

    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.Popen(
        [rclone, "serve", "s3", "--addr", address, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**kept, "RCLONE_CONFIG": "", "RCLONE_AUTH_KEY": f'"{TRIAL_KEY},{TRIAL_KEY}"'},
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def _wait_until_ready(server: subprocess.Popen[bytes], address: str, told: Sequence[int]) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + READY_SECONDS
    while not told:
        if server.poll() is not None:
            raise BackendError(f"the server cannot be started: {_words(server)}")
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        if time.monotonic() > deadline:
            raise BackendError(f"the server does not answer at {address} within {READY_SECONDS:g} s")
        time.sleep(0.02)


def _words(server: subprocess.Popen[bytes]) -> str:
    said = server.stderr.read().decode(errors="replace") if server.stderr else ""
    return said.strip().splitlines()[-1] if said.strip() else f"exit code {server.returncode}"


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


@contextlib.contextmanager
def _until_told() -> Iterator[list[int]]:
    """Give a list that is not empty any more once a signal has asked for the end."""
    told: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda got, _: told.append(got)) for number in numbers}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(served: Served, containers: Sequence[str], made: Sequence[str], *, json: bool) -> None:
    if json:
        from workbench.terminal.json_output import print_event

        print_event(
            "serving",
            {
                "address": served.address,
                "folder": served.folder,
                "alias": ALIAS,
                "name": NAME,
                "user_name": TRIAL_KEY,
                "password": TRIAL_KEY,
                "containers": list(containers),
                "made": list(made),
            },
        )
        return
    print(served.address)
    sys.stdout.flush()
    narrate(f"serves {served.folder} to user {TRIAL_KEY} with password {TRIAL_KEY}, on this machine alone")
    if made:
        narrate(f"made the containers {', '.join(made)}")
    narrate(f"it stands for {ALIAS}; elsewhere name it {NAME}:CONTAINER")
    narrate(f"`fabric data put FOLDER {NAME}:CONTAINER` brings data in; ctrl-c ends it")
