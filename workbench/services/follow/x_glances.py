"""The waits between two looks at a job that is followed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from workbench.clock import elapsed_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.learner.platform.watch import Watcher


class Glances:
    """Waits between two looks at a job: moments at first, then until a journal grows.

    The kernel takes 15 ms to end a watch (measured), which the end of a short job would wait for.
    """

    SHORT_SECONDS = 2.0
    PAUSE_SECONDS = 0.005
    LONGEST_SECONDS = 0.04
    """How late a state may be seen, which nobody watches."""

    def __init__(self) -> None:
        self._began = elapsed_seconds()
        self._paths: list[str] = []
        self._watcher: Watcher | None = None

    def add(self, path: Path) -> None:
        """Have a file's growth end a wait."""
        self._paths.append(str(path))
        if self._watcher is not None:
            self._watcher.add(str(path))

    def wait(self) -> None:
        """Wait until it is time for another look."""
        if self._watcher is not None:
            self._watcher.wait(self.LONGEST_SECONDS)
        elif elapsed_seconds() - self._began < self.SHORT_SECONDS:
            time.sleep(self.PAUSE_SECONDS)
        else:
            from workbench.learner.platform.watch import Watcher

            self._watcher = Watcher(self._paths)

    def close(self) -> None:
        """Watch no more."""
        if self._watcher is not None:
            self._watcher.close()
