"""The container engine of this machine, with the tests' images, and one that answers as a test wants it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType

import pytest

from backends.contract.host import Host
from runners.conformance.harness import LaunchedAttempt
from runners.container.limits import FILE
from tests.support.images import ensure_images, why_not
from workbench.paths import Home

MakeJob = Callable[..., LaunchedAttempt]

_limits: dict[str, str] = {}


@cache
def own_home() -> str:
    """Return this worker's home: what engines build is named by its beginning, and must not be another worker's, too.

    It is drawn when a test asks: what a module draws as it is imported all workers have in common.
    """
    return str(uuid.uuid4())


def containers_of(job_id: str, *options: str) -> list[str]:
    """Return the names of a job's containers, of those too that do not run."""
    label = ["--filter", f"label=fabric.job={job_id}"]
    argv = ["docker", "ps", "-a", "--format", "{{.Names}}", *label, *options]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


def tell_limits(host: Host, home_uuid: str) -> None:
    """Write to the home on a host what is known of the engine's limits."""
    if known := _limits.get(FILE):
        host.call("write_files", files={f"{host.folder(home_uuid)}/{FILE}": known})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, home: Home) -> Iterator[None]:
    """Make sure that an engine answers and has the images, or skip.

    Which limits it raises is found out once for all tests of a process: in a new home that takes three starts.
    """
    monkeypatch.delenv("DOCKER_HOST")
    if reason := why_not():
        pytest.skip(reason)
    ensure_images()
    limits = home.path / FILE
    if known := _limits.get(FILE):
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        limits.write_text(known)
    yield
    if limits.exists():
        _limits.setdefault(FILE, limits.read_text())


@contextmanager
def engine_that_answers(
    answer: bytes | None, others: Mapping[bytes, bytes | list[bytes]] = MappingProxyType({})
) -> Iterator[str]:
    """Serve one answer at a socket, or none: connections stay open; requests that name ``others`` get those.

    Of a list each request takes the first answer, and all later ones the last.
    """
    with tempfile.TemporaryDirectory(prefix="fab-") as folder, socket.socket(socket.AF_UNIX) as server:
        path = f"{folder}/engine.sock"
        server.bind(path)
        server.listen()
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    stream, _ = server.accept()
                except OSError:
                    return
                kept.append(stream)
                if answer is not None:
                    request = stream.recv(65536).partition(b"\r\n")[0]
                    named = next((other for name, other in others.items() if name in request), answer)
                    if isinstance(named, list):
                        named = named.pop(0) if len(named) > 1 else named[0]
                    # Who asked may wait for a twentieth of a second only.
                    with contextlib.suppress(BrokenPipeError):
                        stream.sendall(named)
                    stream.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for stream in kept:
                stream.close()
