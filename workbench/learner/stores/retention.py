"""Applies ``checkpoints:`` to a job whose checkpoints no result store takes: marks them, removes what is not kept."""

from __future__ import annotations

from workbench.learner.platform import system
from workbench.learner.stores.checkpoints import CheckpointStore
from workbench.learner.stores.config import UPLOAD_SECONDS, Stores
from workbench.learner.stores.job_lock import job_lock
from workbench.learner.stores.worker import PeriodicWorker, WorkCancelled, check_not_killed

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.stores.rclone import StopCheck

    Write = Callable[[dict[str, Any]], None]


class CheckpointRetention:
    """The policy of one learner for checkpoints on its host."""

    def __init__(self, folder: str, launch: LaunchDocument, check_stop: StopCheck, write: Write) -> None:
        self._stores = Stores(launch, launch.retention)
        self._check_stop = check_stop
        self._write = write
        self.checkpoints = CheckpointStore(folder, self._stores, check_stop)

    def round(self) -> None:
        """Mark what was reported since the last round, and remove what the policy does not keep."""
        with job_lock(self._stores.job_folder, self._check_stop):
            for record in self.checkpoints.mark():
                self._write(record)
            self.checkpoints.drop(lambda _: None)


class RetentionWorker(PeriodicWorker):
    """A process that applies the policy as long as the command runs."""

    def __init__(self, folder: str, launch: LaunchDocument) -> None:
        super().__init__(folder)
        self._launch = launch

    def rounds(self, check_stop: StopCheck) -> tuple[Callable[[], object], float]:
        """Return what applies the policy, and the seconds between two calls."""
        seconds = Stores(self._launch, self._launch.retention).upload_seconds or UPLOAD_SECONDS
        return CheckpointRetention(self._folder, self._launch, check_stop, self.write_record).round, seconds


def retain_checkpoints(folder: str, launch: LaunchDocument, write: Write) -> None:
    """Apply the policy a last time, to a learner whose command has ended; what fails is a note."""
    retention = CheckpointRetention(folder, launch, lambda: check_not_killed(folder), write)
    try:
        retention.round()
    except WorkCancelled:
        return
    except OSError as error:
        _note(write, "the policy of checkpoints: could not be applied: %s" % (error.strerror or error))
    if note := retention.checkpoints.metric_note():
        _note(write, note)


def _note(write: Write, text: str) -> None:
    write({"time": system.now_us(), "kind": "note", "level": "warning", "text": text})
