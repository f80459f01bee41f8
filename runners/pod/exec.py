"""An interactive command in a learner's pod, on this process's standard streams."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from backends.contract.cluster import Absent, Cluster, Invalid
from runners.interface import AttemptRef, LearnerRef
from runners.pod.names import LEARNER, ref_of, selector
from runners.shared.attach import raw_terminal
from workbench.errors import FabricError, NotRunning
from workbench.job import learner_name
from workbench.learner.pod import config

_CHUNK_BYTES: Final = 65536
_READ_SECONDS: Final = 3600.0


class PodExec:
    """An interactive command in a pod; making one starts it."""

    def __init__(self, cluster: Cluster, ref: LearnerRef, argv: Sequence[str], *, terminal: bool) -> None:
        self._terminal = terminal
        pod = _pod_of(cluster, ref)
        around = ["sh", f"{config.GIVEN}/pod.sh", "exec"]
        if terminal:
            around = ["env", f"TERM={os.environ.get('TERM', 'xterm')}", *around]
        try:
            self._stream = cluster.exec(pod, LEARNER, [*around, *argv], stdin=True, terminal=terminal)
        except (Absent, Invalid) as error:
            raise NotRunning("The job is not running.", hint="See its state: fabric show JOB") from error

    def wait(self) -> int:
        """Pass input and output on until the command has ended; return its exit code."""
        with raw_terminal(self._terminal), self._resized():
            threading.Thread(target=self._carry_in, daemon=True, name="exec input").start()
            while (found := self._stream.read(_READ_SECONDS)) is not None:
                output, errors = found
                _write(1, output)
                _write(2, errors)
            return self._stream.wait()

    def _carry_in(self) -> None:
        with contextlib.suppress(FabricError, OSError):
            while data := os.read(0, _CHUNK_BYTES):
                self._stream.write(data)
            self._stream.close_input()

    @contextlib.contextmanager
    def _resized(self) -> Iterator[None]:
        """Send the size of the terminal now and after each change."""
        if not self._terminal:
            yield
            return

        def send_size() -> None:
            with contextlib.suppress(FabricError, OSError):
                columns, rows = os.get_terminal_size(0)  # not from COLUMNS and LINES: those do not change
                self._stream.resize(rows, columns)

        def changed(*_: object) -> None:
            # In a thread: the interrupted code may hold the connection's lock.
            threading.Thread(target=send_size, daemon=True, name="exec resize").start()

        before = signal.signal(signal.SIGWINCH, changed)
        send_size()
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


def _pod_of(cluster: Cluster, ref: LearnerRef) -> str:
    """Return the name of a learner's pod.

    Raises:
        NotRunning: the learner has no pod.
    """
    attempt = AttemptRef(ref.home, ref.job_id, ref.attempt, 0)
    for pod in cluster.list("Pod", selector(attempt)).items:
        if ref_of(pod) == ref:
            return str(pod["metadata"]["name"])
    name = learner_name(ref.job_id, ref.attempt, ref.learner)
    raise NotRunning(
        f"The job is not running: there is no pod {name}.", hint="See its state: fabric show JOB"
    )


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
