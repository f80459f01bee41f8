"""Uploads a learner's results: by a process while the command runs, by the guard (or its successor) at the end."""

from __future__ import annotations

import json
import os
import sys

from workbench.learner.journal import launch_document as launches
from workbench.learner.journal import reasons, state
from workbench.learner.stores import sources
from workbench.learner.stores.config import Stores, remotes_of
from workbench.learner.stores.errors import TransferError
from workbench.learner.stores.progress import ProgressReporter
from workbench.learner.stores.rclone import RcloneClient
from workbench.learner.stores.upload import ResultUpload, write_summary
from workbench.learner.stores.worker import PeriodicWorker, WorkCancelled, check_not_killed

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.stores.rclone import StopCheck

    Write = Callable[[dict[str, Any]], None]

AGAIN_PATIENCE_SECONDS = 15.0
"""How long a store that does not answer is tried again where somebody has asked for it."""


class UploadWorker(PeriodicWorker):
    """A process that uploads new results every ``upload_seconds``, as long as the command runs."""

    def __init__(self, folder: str, launch: LaunchDocument, secrets: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._stores = Stores(launch)
        self._secrets = secrets
        self.is_needed = self._stores.results is not None and self._stores.upload_seconds > 0

    @property
    def is_own(self) -> bool:
        """Whether the guard runs it; else a pod's side-car does."""
        return self._stores.uploads_while_running

    def rounds(self, check_stop: StopCheck) -> tuple[Callable[[], object], float]:
        """Return what uploads the new results, and the seconds between two calls."""
        stores = self._stores
        silent = ProgressReporter(lambda _: None, lambda _: None)
        rclone = RcloneClient(stores.rclone, remotes_of(self._secrets))
        upload = ResultUpload(self._folder, stores, rclone, silent, check_stop, self.write_record)
        return lambda: upload.round(final=False), stores.upload_seconds


def upload_all(
    folder: str,
    launch: LaunchDocument,
    secrets: Mapping[str, str],
    file: state.StateFile,
    write: Write,
    reach_folder: Callable[[], str],
) -> dict[str, Any] | None:
    """Upload all results of a learner whose command has ended; return the reason (for the state) if that failed.

    The state's phase becomes ``storing``; the caller records the end.

    Args:
        folder: the learner's folder.
        launch: its launch document.
        secrets: its secrets.
        file: its state.
        write: takes records.
        reach_folder: returns the folder to write into: another agent may have the one at the path after hours.
    """
    stores = Stores(launch)
    if stores.results is None:
        return None
    document = file.document
    file.update(phase="storing")
    progress = ProgressReporter(write, lambda text: _show_activity(file, text))
    rclone = RcloneClient(stores.rclone, remotes_of(secrets))
    upload = ResultUpload(folder, stores, rclone, progress, lambda: check_not_killed(folder), write)
    failure: TransferError | None
    try:
        _write_attempt(reach_folder(), stores, document)
        if stores.results["remote"] not in remotes_of(secrets):
            raise TransferError("the store's credentials are no longer on the backend", "S303")
        failure = upload.last()
    except TransferError as error:
        failure = error
    except WorkCancelled:
        failure = TransferError("", "S303")  # whoever killed it knows why
    except OSError as error:
        failure = TransferError("the results could not be stored: %s" % (error.strerror or error), "S303")
    if note := upload.checkpoints.metric_note():
        progress.note(note)
    progress.end()
    summary = upload.summary(failure)
    write_summary(reach_folder(), summary)
    file.update(doing="")
    if failure is None:
        return None
    if failure.text:
        progress.note("results were not stored: %s" % failure.text, "error")
    return _reason_of(document, failure, summary)


def _reason_of(
    document: Mapping[str, Any], failure: TransferError, summary: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the reason of a learner whose results are not stored; how its command ended goes before it."""
    why = document.get("reason")
    text = reasons.unstored(summary["missing_files"])
    unstored = "%s: %s" % (text, failure.text) if failure.text else text
    if why is not None and why.get("code"):
        return {**why, "text": "%s; %s" % (why["text"], unstored)}
    once = "; once that is mended" if failure.text else ""
    hint = "they are still on the backend%s: fabric store retry %s" % (once, document.get("job"))
    before = "%s; " % why["text"] if why is not None and why.get("text") else ""
    return {"text": before + unstored, "code": "S303", "hint": hint}


def _show_activity(file: state.StateFile, text: str) -> None:
    file.update(doing=text)


def _write_attempt(folder: str, stores: Stores, document: Mapping[str, Any]) -> None:
    names = ("exit_code", "signal", "started_us", "ended_us", "stopped", "reason")
    attempt = sources.document_of(stores, **{name: document.get(name) for name in names})
    path = os.path.join(folder, "attempt.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(attempt, file)
    os.rename(path + ".new", path)


def retry_upload(folder: str) -> int:
    """Upload what an ended learner could not; print the summary as JSON; return the exit code (0: all stored)."""
    launch = launches.read(folder)
    file = state.StateFile(folder, state.read_patiently(folder))
    stores = Stores(launch)
    if stores.results is None:
        sys.stdout.write(json.dumps({"format": 1, "files": 0, "missing_files": 0, "reason": None}) + "\n")
        return 0
    # Somebody waits for the answer, and can ask again.
    stores.patience_seconds = min(stores.patience_seconds, AGAIN_PATIENCE_SECONDS)
    rclone = RcloneClient(stores.rclone, remotes_of(launch.secret_values()))
    progress = ProgressReporter(lambda _: None, lambda _: None)
    upload = ResultUpload(folder, stores, rclone, progress, lambda: None)
    try:
        _write_attempt(folder, stores, file.document)
        failure = upload.last()
    except OSError as error:
        failure = TransferError("the results could not be stored: %s" % (error.strerror or error), "S303")
    summary = upload.summary(failure)
    write_summary(folder, summary)
    if failure is None:
        _clear_unstored_reason(file)
    sys.stdout.write(json.dumps(summary) + "\n")
    return 0 if failure is None else 1


def _clear_unstored_reason(file: state.StateFile) -> None:
    """Remove from a learner's recorded reason that its results were not stored: now they are."""
    why = file.document.get("reason")
    if not why or (text := reasons.without_unstored(str(why.get("text")))) == why.get("text"):
        return
    if why.get("code") == "S303":
        why = reasons.reason(text)
    file.update(reason={**why, "text": text} if text else None)
    file.clear()
