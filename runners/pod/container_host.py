"""A container of a pod as a host: frames over an exec into the container."""

from __future__ import annotations

import contextlib
import io
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, Final, cast

from backends.contract.cluster import Cluster, ClusterStream, Document
from backends.contract.host import Host
from backends.rpc.client import FrameClient
from backends.rpc.host import FrameHost
from runners.pod.names import SIDE_CAR
from runners.pod.status import waits
from workbench.errors import FabricError, RunnerError
from workbench.learner.pod import config

CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 3600.0
_STDERR_BYTES: Final = 2000


class PodHost(FrameHost):
    """The agent in a container of a pod; closing it ends only the connection."""

    def __init__(self, stream: ClusterStream, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._stream = stream
        self._output = OutputReader(stream)
        writer = cast(BinaryIO, _Writer(stream))
        super().__init__(FrameClient(cast(BinaryIO, self._output), writer, self._explain))
        try:
            self._client.await_greeting(connect_seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(FabricError, OSError):
            self._stream.close()
        self._client.join(5)

    def _explain(self) -> str:
        lines = self._output.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip().rstrip(".") if lines else ""


def open_host(
    cluster: Cluster, pod: str, *, container: str = SIDE_CAR, connect_seconds: float = CONNECT_SECONDS
) -> PodHost:
    """Connect to the agent in a container of a pod.

    Raises:
        BackendUnreachable: it does not answer.
        Denied: the user may not run commands in pods.
    """
    argv = ["sh", f"{config.GIVEN}/pod.sh", "host"]
    return PodHost(cluster.exec(pod, container, argv, stdin=True), connect_seconds=connect_seconds)


class OutputReader(io.RawIOBase):
    """The stdout of a command in a container as a readable stream; ``stderr`` has the end of its stderr."""

    def __init__(self, stream: ClusterStream) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: deque[memoryview] = deque()
        self.stderr = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for some bytes; 0 at the end."""
        while not self._waiting:
            try:
                found = self._stream.read(_READ_SECONDS)
            except FabricError as error:
                raise OSError(error.message) from error
            if found is None:
                return 0
            output, errors = found
            if errors:
                self.stderr = (self.stderr + errors)[-_STDERR_BYTES:]
            if output:
                self._waiting.append(memoryview(output))
        piece = self._waiting[0]
        count = min(len(buffer), len(piece))
        buffer[:count] = piece[:count]
        if count == len(piece):
            self._waiting.popleft()
        else:
            self._waiting[0] = piece[count:]
        return count


class _Writer:
    """The stdin of a command in a container as a writable stream."""

    def __init__(self, stream: ClusterStream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        try:
            self._stream.write(bytes(data))
        except FabricError as error:
            raise OSError(error.message) from error
        return len(data)


START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.3


@contextmanager
def host_when_running(cluster: Cluster, find: Callable[[], Iterable[Document]], what: str) -> Iterator[Host]:
    """Wait until a pod runs and connect to it as a host; the caller removes the pod.

    Args:
        cluster: the cluster.
        find: returns the pod, nothing while it does not exist.
        what: the pod in messages, e.g. "The pod x, which reads y,".

    Raises:
        RunnerError: it does not start within two minutes, or has ended.
    """
    with closing(open_host(cluster, _running(find, what))) as host:
        yield host


def _running(find: Callable[[], Iterable[Document]], what: str) -> str:
    until, why = time.monotonic() + START_SECONDS, ""
    while time.monotonic() < until:
        for pod in find():
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Running":
                return str(pod["metadata"]["name"])
            if phase in ("Failed", "Succeeded"):
                raise RunnerError(f"{what} has ended: it is {phase.lower()}.")
            why = waits(pod) or why
        time.sleep(_LOOK_SECONDS)
    raise RunnerError(f"{what} does not start{f': it {why}' if why else ''}.")
