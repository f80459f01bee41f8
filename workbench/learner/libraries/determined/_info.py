"""What training code is told of its job, by Determined's names."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading

from workbench.learner.report import hparams, should_stop

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

logger = logging.getLogger("determined.core")

CHECKPOINTS_VARIABLE = "CHECKPOINT_DIR"
HPARAMS_VARIABLE = "DET_HPARAMS"
CONFIG_VARIABLE = "DET_EXPERIMENT_CONFIG"
JOB_VARIABLE = "TRAINING_ID"
SLOTS_VARIABLE = "DET_SLOT_IDS"
"""The numbers of a job's slots as JSON, where they are processes on the CPU."""
SAVED_FILE = ".determined.json"
"""Within a checkpoint: its metadata, and when it was saved."""


class InvalidHP(Exception):
    """Raised by training code whose hyperparameters make no sense."""


class TrialInfo:
    """The trial that this process belongs to."""

    def __init__(self, trial_id: int, hparams: dict[str, Any], config: dict[str, Any]) -> None:
        self.trial_id = trial_id
        self.experiment_id = trial_id
        self.trial_seed = int(os.environ.get("FABRIC_SEED") or 0)
        self.hparams = hparams
        self._config = config


class ClusterInfo:
    """The job that this process belongs to."""

    def __init__(self, job: str) -> None:
        config = _json_of(CONFIG_VARIABLE)
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self.master_url = ""
        self.cluster_id = ""
        self.session_token = ""
        self.agent_id = os.uname().nodename
        self.task_id = self.allocation_id = job
        self.task_type = "TRIAL"
        self.gpu_uuids = [part for part in gpus.split(",") if part]
        self.slot_ids = list(range(len(self.gpu_uuids))) or _list_of(SLOTS_VARIABLE)
        self.container_addrs = [os.environ.get("MASTER_ADDR", "127.0.0.1")]
        self.container_rank = int(os.environ.get("NODE_RANK") or 0)
        self.container_slot_counts = [max(len(self.slot_ids), 1)]
        self.user_data = config.get("data") or {}
        self.trial = TrialInfo(_number_of(job), {**_json_of(HPARAMS_VARIABLE), **hparams()}, config)
        self._trial_info = self.trial  # Determined's own examples read it by this name

    @property
    def latest_checkpoint(self) -> str | None:
        """The id of the checkpoint that was saved last; None where there is none."""
        return latest_checkpoint()


def get_cluster_info() -> ClusterInfo | None:
    """Return what is known of the job; None outside of one."""
    job = os.environ.get(JOB_VARIABLE)
    if not job:
        return None
    info = ClusterInfo(job)
    if len(info.slot_ids) > 1:
        # It may be a launcher of the code's own: were it ended by a stop, so would be its processes before they look.
        outlive_the_request_to_stop()
    return info


def outlive_the_request_to_stop() -> None:
    """Have SIGTERM wait for the next ``should_preempt()``: code that looks ends by itself, at a checkpoint.

    The agent kills what has not ended when the grace period does. A handler of the code's own is kept.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and os.environ.get(JOB_VARIABLE) and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: Any) -> None:
    if should_stop():
        logger.info("asked to stop: the next should_preempt() is True")
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def checkpoint_folder() -> str:
    """Return the folder in which each checkpoint has a folder of its own."""
    return os.environ.get(CHECKPOINTS_VARIABLE) or os.path.join(os.getcwd(), "checkpoints")


def saved_checkpoints() -> dict[str, dict[str, Any]]:
    """Return what was written of each checkpoint when it was whole: ``saved``, ``metadata`` and ``best``, by its id."""
    found = {}
    folder = checkpoint_folder()
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        document = read_document(os.path.join(folder, name, SAVED_FILE)) or {}
        is_whole = isinstance(document.get("saved"), (int, float)) and isinstance(
            document.get("metadata"), dict
        )
        if is_whole:  # else it was never finished, or is somebody else's
            found[name] = document
    return found


def latest_checkpoint() -> str | None:
    """Return the id of the checkpoint that was saved last; None where there is none."""
    saved = [(document["saved"], name) for name, document in saved_checkpoints().items()]
    return max(saved)[1] if saved else None


def searcher_config() -> dict[str, Any]:
    """Return ``searcher:`` of the experiment's file; empty outside of one."""
    found = _json_of(CONFIG_VARIABLE).get("searcher") if os.environ.get(JOB_VARIABLE) else None
    return found if isinstance(found, dict) else {}


def read_document(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return a document that :func:`write_document` wrote; None where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_document(
    path: str | os.PathLike[str], document: Mapping[str, Any], *, indent: int | None = None
) -> None:
    """Write a document as JSON; it is there whole or not at all."""
    new = os.fspath(path) + ".new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(document, file, default=str, indent=indent)
    os.replace(new, path)


def _json_of(variable: str) -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(variable) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _list_of(variable: str) -> list[Any]:
    try:
        found = json.loads(os.environ.get(variable) or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _number_of(job: str) -> int:
    """Return a whole number that is a job's own; Determined's ids are numbers, and code keeps them as such."""
    last = job.rpartition("-")[2]
    try:
        return int(last, 36)
    except ValueError:
        return int.from_bytes(last.encode()[-6:], "big")
