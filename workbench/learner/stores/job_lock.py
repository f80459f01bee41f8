"""One process of a job at a time moves or removes its results and checkpoints."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Iterator

    from workbench.learner.stores.rclone import StopCheck

_POLL_SECONDS = 0.2


@contextlib.contextmanager
def job_lock(job_folder: str, check_stop: StopCheck) -> Iterator[None]:
    """Hold the job's lock on this host; learners and attempts share it."""
    lock = os.open(os.path.join(job_folder, "storing.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                check_stop()
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(lock)
