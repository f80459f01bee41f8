"""What training code is told of its job, by Determined's names."""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import threading
from pathlib import Path

from workbench.learner import determined_jobs
from workbench.learner.determined_jobs import (
    CONFIG_VARIABLE,
    DATA_SECRETS_VARIABLE,
    HPARAMS_VARIABLE,
    SLOTS_VARIABLE,
    json_object,
    trial_number,
)
from workbench.learner.determined_jobs import SAVED_FILE as SAVED_FILE
from workbench.learner.report import hparams, should_stop, wait_for_look

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

logger = logging.getLogger("determined.core")

CHECKPOINTS_VARIABLE = "CHECKPOINT_DIR"
JOB_VARIABLE = "TRAINING_ID"


DEFAULTS: dict[str, Any] = {
    "checkpoint_policy": "best",
    "data": {},
    "debug": False,
    "hyperparameters": {},
    "labels": [],
    "max_restarts": 5,
    "min_checkpoint_period": {"batches": 0},
    "min_validation_period": {"batches": 0},
    "optimizations": {
        "aggregation_frequency": 1,
        "auto_tune_tensor_fusion": False,
        "average_aggregated_gradients": True,
        "average_training_metrics": True,
        "gradient_compression": False,
        "mixed_precision": "O0",
        "tensor_fusion_cycle_time": 1,
        "tensor_fusion_threshold": 64,
    },
    "perform_initial_validation": False,
    "profiling": {"begin_on_batch": 0, "enabled": False, "end_after_batch": None, "sync_timings": True},
    "records_per_epoch": 0,
    "resources": {"slots_per_trial": 1},
    "scheduling_unit": 100,
    "searcher": {"smaller_is_better": True},
}
"""What a file leaves out and code may read: Determined gives it a whole configuration (its schemas, ``expconf/v0``)."""


class InvalidHP(Exception):
    """Raised by training code whose hyperparameters make no sense."""


class TrialInfo:
    """The trial that this process belongs to."""

    def __init__(self, job: str, hparams: dict[str, Any], config: dict[str, Any]) -> None:
        self.trial_id = _number("DET_TRIAL_ID", trial_number(job))
        self.experiment_id = _number("DET_EXPERIMENT_ID", self.trial_id)
        self.trial_seed = _number("DET_TRIAL_SEED", _number("FABRIC_SEED", 0))
        self.hparams = hparams
        self._config = _completed(config, DEFAULTS)
        self._steps_completed = _number("DET_STEPS_COMPLETED", 0)
        self._trial_run_id = _number("DET_TRIAL_RUN_ID", 1)
        self._debug = bool(config.get("debug"))
        self._inter_node_network_interface = None


class ClusterInfo:
    """The job that this process belongs to; its variables ``DET_...`` go before what others tell."""

    def __init__(self, job: str) -> None:
        get = os.environ.get
        config = json_object(get(CONFIG_VARIABLE))
        gpus = get("CUDA_VISIBLE_DEVICES", "")
        self.master_url = ""
        self.master_cert_name = self.master_cert_file = None
        self.cluster_id = get("DET_CLUSTER_ID", "")
        self.session_token = ""
        self.agent_id = get("DET_AGENT_ID") or os.uname().nodename
        self.task_id = get("DET_TASK_ID") or job
        self.allocation_id = get("DET_ALLOCATION_ID") or job
        self.task_type = get("DET_TASK_TYPE") or "TRIAL"
        self.gpu_uuids = [part for part in gpus.split(",") if part]
        self.slot_ids = list_of(SLOTS_VARIABLE) or list(range(len(self.gpu_uuids)))
        self.container_addrs = _addresses(max(_number("NUM_LEARNERS", 1), 1))
        self.container_rank = _number("NODE_RANK", 0)
        self.container_slot_counts = [max(len(self.slot_ids), 1)] * len(self.container_addrs)
        self.user_data = _with_secrets(config.get("data") or {})
        self.trial = TrialInfo(job, {**json_object(get(HPARAMS_VARIABLE)), **hparams()}, config)
        self._trial_info = self.trial  # Determined's own examples read it by this name
        self._latest_checkpoint = _latest_at_start()

    @property
    def has_several(self) -> bool:
        """Whether the trial has several processes: a slot each, or several learners."""
        return len(self.slot_ids) > 1 or len(self.container_addrs) > 1

    @property
    def latest_checkpoint(self) -> str | None:
        """The id of the checkpoint that had been saved last when the command started; None where there was none."""
        return self._latest_checkpoint


def _with_secrets(data: Any) -> Any:
    """Return the experiment's own data with its secrets.

    They are not in its configuration: the wheel's ``Trainer`` keeps that in checkpoints.
    """
    given = os.environ.get(DATA_SECRETS_VARIABLE)
    if not given:
        return data
    try:
        return {**data, "secrets": json.loads(given)}
    except ValueError:
        logger.warning("%s is not JSON: there is no user_data['secrets']", DATA_SECRETS_VARIABLE)
        return data


def _addresses(learners: int) -> list[str]:
    """Return the addresses of all learners, in their order: their names, where they have some for one another."""
    first, prefix = os.environ.get("MASTER_ADDR") or "127.0.0.1", os.environ.get("LEARNER_NAME_PREFIX", "")
    if learners > 1 and first == "%s-0.%s" % (prefix, prefix):
        return ["%s-%d.%s" % (prefix, number, prefix) for number in range(learners)]
    return [first] * learners


_first_look: list[str | None] = []
"""Which checkpoint was the last one when this process asked first, where its command does not say."""


def _latest_at_start() -> str | None:
    """Return the checkpoint with which an attempt begins: it stays the same while that saves others."""
    if "DET_STEPS_COMPLETED" in os.environ:
        return os.environ.get("DET_LATEST_CHECKPOINT")
    if not _first_look:
        _first_look.append(determined_jobs.latest_of(saved_checkpoints()))
    return _first_look[0]


def get_cluster_info() -> ClusterInfo | None:
    """Return what is known of the job; None outside of one."""
    job = os.environ.get(JOB_VARIABLE)
    if not job:
        return None
    info = ClusterInfo(job)
    if info.has_several:
        # It may be a launcher of the code's own: were it ended by a stop, so would be its processes before they look.
        outlive_the_request_to_stop()
    return info


_outliving = 0
"""The process that outlives a request to stop; what it forks has another id and inherits the handler."""
_was_asked = False
"""Whether SIGTERM has come for a request to stop; a forked process has what its parent had then."""


def outlive_the_request_to_stop() -> None:
    """Have SIGTERM wait for the next ``should_preempt()``: code that looks ends by itself, at a checkpoint.

    The agent sends the signal to nothing of the job until the grace period is nearly over, and kills what has not ended
    then. A handler of the code's own is kept, and gets the signal at once.
    """
    global _outliving
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    if is_main and os.environ.get(JOB_VARIABLE) and before in (signal.SIG_DFL, _on_sigterm):
        if before is not _on_sigterm:
            signal.signal(signal.SIGTERM, _on_sigterm)
            wait_for_look(_on_sigterm)
            atexit.register(_outlive_it_to_the_end)
        _outliving = os.getpid()
    should_stop()  # from now on it counts as code that looks


def _outlive_it_to_the_end() -> None:
    """Ignore a request to stop that comes while Python ends: it gives its own handlers up before."""
    is_own = os.getpid() == _outliving and signal.getsignal(signal.SIGTERM) is _on_sigterm
    if is_own and should_stop():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # The request may have come after the last look; an acknowledgement before it still counts.
        determined_jobs.answer_stop(determined_jobs.SEEN)


def _on_sigterm(number: int, frame: Any) -> None:
    global _was_asked
    is_first, _was_asked = not _was_asked, True
    is_own = os.getpid() == _outliving
    if should_stop() and (is_own or is_first):
        if is_own:
            # Code that goes on to its end without another look is complete.
            determined_jobs.answer_stop(determined_jobs.SEEN)
            logger.info("asked to stop: the next should_preempt() is True")
        else:
            # The agent asks each process once: the next one comes of a parent that ends its child and waits for it.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def checkpoint_folder() -> str:
    """Return the folder in which each checkpoint has a folder of its own."""
    return os.environ.get(CHECKPOINTS_VARIABLE) or os.path.join(os.getcwd(), "checkpoints")


def results_folder() -> Path:
    """Return the folder of the job's results."""
    return Path(os.environ.get("RESULT_DIR") or ".")


def saved_checkpoints() -> dict[str, dict[str, Any]]:
    """Return what was written of each checkpoint of the job when it was whole, by its id."""
    return determined_jobs.saved_checkpoints(checkpoint_folder())


def _completed(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with what is missing in it, or null, as a default."""
    completed = {**defaults, **{name: value for name, value in config.items() if value is not None}}
    for name, default in defaults.items():
        if isinstance(default, dict) and default and isinstance(completed[name], dict):
            is_length = name in ("min_checkpoint_period", "min_validation_period")
            completed[name] = dict(completed[name]) if is_length else _completed(completed[name], default)
    return completed


def searcher_config() -> dict[str, Any]:
    """Return ``searcher:`` of the experiment's file; empty outside of one."""
    found = (
        json_object(os.environ.get(CONFIG_VARIABLE)).get("searcher") if os.environ.get(JOB_VARIABLE) else None
    )
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


def list_of(variable: str) -> list[Any]:
    """Return a variable that holds a list as JSON; an empty one where it does not."""
    try:
        found = json.loads(os.environ.get(variable) or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _number(variable: str, default: int) -> int:
    try:
        return int(os.environ.get(variable) or default)
    except ValueError:
        return default
