"""Takes usage samples of a learner's processes in a thread, so that a driver that hangs stops no output."""

from __future__ import annotations

import os
import threading
import time

from workbench.learner.platform.processes import Tree

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

    from workbench.learner.platform.x_cgroup import ContainerTree


class Sampler:
    """Samples every so many seconds from the time it is made; a byte in the pipe says that one is ready."""

    def __init__(self, tree: Tree | ContainerTree, slots: list[str], every_seconds: float) -> None:
        self._tree = tree
        self._slots = slots
        self._every_seconds = every_seconds
        self._ready: list[dict[str, Any]] = []
        self.pipe, self._tell = os.pipe()
        os.set_blocking(self.pipe, False)
        threading.Thread(target=self._run, daemon=True).start()

    def take(self) -> list[dict[str, Any]]:
        """Return the samples that are ready."""
        try:
            os.read(self.pipe, 4096)
        except BlockingIOError:
            return []
        ready, self._ready = self._ready, []
        return ready

    def _run(self) -> None:
        from workbench.learner.scribe import usage

        usage.sample(self._tree.pids(), self._slots)  # what CPU is used lies between two samples
        due = time.monotonic()
        while True:
            due = max(due + self._every_seconds, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            pids = self._tree.pids()
            if pids:
                self._ready.append(usage.sample(pids, self._slots))
                os.write(self._tell, b"!")
