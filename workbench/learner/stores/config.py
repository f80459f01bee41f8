"""What a learner knows of its data stores: the ``stores`` of its launch document as values, and their credentials.

The document::

    {"rclone": "/usr/bin/rclone", "cache": ".../data", "cache_bytes": n, "upload_seconds": 30, "patience_seconds": 600,
     "fetch": [{"id": ..., "remote": ..., "path": "bucket/sub", "address": "http://...", "key": ..., "etags": true,
                "container": "bucket", "mode": "copy|mount", "variables": ["DATA_DIR"], "link": null}],
     "from": {"name": "step-3", "path": "bucket/..." or "local": "/..."} or null,     # what it begins with
     "results": {"id", "remote", "address", "path": "bucket/training-...", "bound": false} or null,
     "result_dir": ..., "checkpoint_dir": ..., "checkpoints": "bucket/training-.../_checkpoints",
     "keep": {"last": 0, "best": 0, "metric": "", "smaller": true},
     "inside": {"/mnt/checkpoints": ".../checkpoints"},     # a container's paths, as this side has them
     "uploads_elsewhere": false,                            # a pod's side-car stores what is new meanwhile
     "compares": false,                                     # other learners see and store the same results
     "restores": false,                                     # other hosts store results of the job, too
     "about": {...}}                                        # what a checkpoint says of its job

``link`` is a path that is to lead to the data (containers, which bind it), ``into`` one that it is moved to (pods,
which share it with nobody); without either the variables are set.
Credentials are in the file of secrets alone, under the name :data:`REMOTES`, which can be no variable's.
"""

from __future__ import annotations

import json
import os

from workbench.learner.journal.launch_document import given_seconds

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

    from workbench.learner.journal.launch_document import LaunchDocument

REMOTES = "fabric.stores"
PATIENCE_SECONDS = 600.0
UPLOAD_SECONDS = 30.0


class Stores:
    """The data stores of one learner.

    Args:
        launch: its launch document.
        document: read instead of the launch document's ``stores``: its ``retention``, which has some of the same keys.
    """

    def __init__(self, launch: LaunchDocument, document: dict[str, Any] | None = None) -> None:
        document = document or launch.stores or {}
        self.launch = launch
        self.rclone = str(document.get("rclone") or "rclone")
        self.cache = str(document.get("cache") or "")
        self.cache_bytes = int(document.get("cache_bytes") or 0)
        self.upload_seconds = given_seconds(document.get("upload_seconds"), UPLOAD_SECONDS)
        self.patience_seconds = given_seconds(document.get("patience_seconds"), PATIENCE_SECONDS)
        self.uploads_while_running = not document.get("uploads_elsewhere")
        """Whether the guard has it stored what is new while the command runs; else somebody else does."""
        self.compares = bool(document.get("compares"))
        """Whether other jobs write to the same files, so that the store has to be listed each time."""
        self.restores = bool(document.get("restores"))
        """Whether other hosts store results of the same job, so that each attempt gets theirs from the store."""
        self.fetch: list[dict[str, Any]] = list(document.get("fetch") or ())
        self.origin: dict[str, Any] = dict(document.get("from") or {})
        self.results: dict[str, Any] | None = document.get("results")
        self.result_dir = str(document.get("result_dir") or "")
        self.checkpoint_dir = str(document.get("checkpoint_dir") or "")
        self.checkpoints = str(document.get("checkpoints") or "")
        self.keep: dict[str, Any] = dict(document.get("keep") or {})
        self.inside: dict[str, str] = dict(document.get("inside") or {})
        self.about: dict[str, Any] = dict(document.get("about") or {})

    @property
    def job_folder(self) -> str:
        """The folder of the job on the host, which its learners and attempts share."""
        return os.path.dirname(self.launch.attempt_dir)

    @property
    def learner_path(self) -> str:
        """Where output and records of this learner go, below the job's results."""
        name = "learner-%d" % self.launch.learner
        return name if self.launch.attempt == 1 else "%s/attempt-%d" % (name, self.launch.attempt)


def remotes_of(values: Mapping[str, str]) -> dict[str, Any]:
    """Return rclone's configuration of stores, by remote, from the values of a file of secrets."""
    try:
        document = json.loads(values.get(REMOTES) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def credentials_of(values: Mapping[str, str]) -> list[str]:
    """Return the values of credentials, which are to be struck out of what a learner prints."""
    return [
        str(remote["config"][option])
        for remote in remotes_of(values).values()
        for option in remote.get("secret") or ()
        if option in remote.get("config", {})
    ]
