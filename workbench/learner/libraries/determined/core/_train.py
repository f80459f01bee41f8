"""Reports of training code: metrics, progress, and what the trial is called by its own code."""

from __future__ import annotations

import collections
import enum
import json
import logging
import math
import os
import sys
from pathlib import Path

from workbench.learner.determined_jobs import BEST_VARIABLE
from workbench.learner.report import progress as note_progress
from workbench.learner.report import report

# Relative: this package is imported by its last name.
from .._info import (  # noqa: TID252
    get_cluster_info,
    read_document,
    results_folder,
    saved_checkpoints,
    searcher_config,
    write_document,
)

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._distributed import DistributedContext

logger = logging.getLogger("determined.core")

METADATA_FILE = "determined-metadata.json"
"""Among a job's results: what its code keeps by ``set_metadata()``."""
VALIDATION = "validation"
STEPS_MAX = 1000
"""For so many steps of a group it is known which metrics they have."""


class TensorboardMode(enum.Enum):
    """Who collects event files: the job's agent where they are written, or the code by an upload, too."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


class EarlyExitReason(enum.Enum):
    """Why a trial ends before its time."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports of metrics and progress."""

    def __init__(
        self, distributed: DistributedContext, tensorboard_mode: TensorboardMode = TensorboardMode.AUTO
    ) -> None:
        self._distributed = distributed
        self._tensorboard_mode = tensorboard_mode
        self._reported: dict[str, collections.OrderedDict[int, frozenset[str]]] = {}
        """The names of the metrics of each step, by their group."""
        self._validated: tuple[int, dict[str, Any]] = (-1, {})
        """Step and metrics of the last validation."""
        self._progress = 0.0
        self._status = ""
        self._best: float | None = None
        self._is_best_read = False
        self._has_left_out_batches = False
        info = get_cluster_info()
        # The wheel's Trainer reads these.
        self._exp_id = info.trial.experiment_id if info else 0
        self._trial_id = info.trial.trial_id if info else 0

    def _get_last_validation(self) -> int | None:
        """Return after how many steps an attempt before validated last; None: it is not known to a job."""
        return None

    def validated_at(self, steps_completed: int) -> dict[str, Any]:
        """Return the metrics of the validation after so many steps, if that was the last one."""
        step, metrics = self._validated
        return metrics if step == steps_completed else {}

    def report_training_metrics(
        self, steps_completed: int, metrics: dict[str, Any], batch_metrics: Any = None
    ) -> None:
        """Report metrics of the training; those of single batches are left out, which is logged once."""
        # Any value may be given: not each has a truth, an array has none.
        is_empty = batch_metrics is None or (isinstance(batch_metrics, (list, tuple)) and not batch_metrics)
        if not is_empty and not self._has_left_out_batches:
            self._has_left_out_batches = True
            # The wheel's Trainer always gives them: its user has no choice.
            level = logging.INFO if "determined.pytorch" in sys.modules else logging.WARNING
            logger.log(level, "batch_metrics of report_training_metrics() are left out: its metrics are kept")
        self.report_metrics("training", steps_completed, metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of a validation: a search goes by them.

        Raises:
            RuntimeError: a metric is None.
            ValueError: one of them was reported for this step before.
        """
        self.report_metrics(VALIDATION, steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of a group; those of one step may come in parts.

        Raises:
            RuntimeError: a metric of a validation is None.
            ValueError: the group's name holds a ``.``, or one of the metrics was reported for this step before.
        """
        if "." in group:
            raise ValueError("group name %r must not contain '.'" % group)
        empty = [name for name, value in metrics.items() if value is None]
        if empty and group == VALIDATION:
            raise RuntimeError("validation metrics cannot be None; these are: %s" % ", ".join(empty))
        left_out = [name for name, value in metrics.items() if isinstance(value, (bytes, bytearray))]
        if left_out:
            logger.warning("these metrics are bytes and are left out: %s", ", ".join(left_out))
        kept = {name: value for name, value in metrics.items() if name not in left_out}
        known = self.reported_at(group, steps_completed)
        overlap = sorted(known.intersection(kept))
        if overlap:
            raise ValueError(
                "group %r has these metrics at step %s already: %s"
                % (group, steps_completed, ", ".join(overlap))
            )
        self._report(group, steps_completed, kept)

    def report_again(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of which the group may have some at this step already: these come later, and together."""
        self._report(group, steps_completed, metrics)

    def _report(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        known = self.reported_at(group, steps_completed)
        steps = self._reported.setdefault(group, collections.OrderedDict())
        steps[steps_completed] = known.union(metrics)
        if len(steps) > STEPS_MAX:
            steps.popitem(last=False)
        report(metrics, step=steps_completed, group=group)
        if group == VALIDATION:
            self._validated = (steps_completed, {**self.validated_at(steps_completed), **metrics})
            self._note_best(metrics)

    def reported_at(self, group: str, steps_completed: int) -> frozenset[str]:
        """Return the names of the metrics that a group has at a step."""
        steps = self._reported.get(group)
        return frozenset() if steps is None else steps.get(steps_completed, frozenset())

    def report_progress(self, progress: float) -> None:
        """Report how far the training is.

        Raises:
            ValueError: it is not from 0 to 1.
        """
        if not 0 <= progress <= 1:
            raise ValueError("Progress should be between 0 and 1, not %r" % progress)
        self._progress = progress
        note_progress(progress, self._status)

    def set_status(self, status: str) -> None:
        """Report what the training does: it is the text of its progress."""
        self._status = status
        note_progress(self._progress, status)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report why the trial ends before its time.

        Raises:
            ValueError: it is not a known reason.
        """
        reason = EarlyExitReason(reason)
        logger.warning("the trial ends early: %s", reason.value)
        if reason is EarlyExitReason.INVALID_HP:
            report({"invalid_hp": 1}, group="searcher")  # its search begins another trial in its stead

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Keep a dictionary with the job, instead of the one before, and return it; it is a file of its results.

        Raises:
            ValueError: it is not a dictionary.
        """
        if not isinstance(metadata, dict):
            raise ValueError("metadata must be a dictionary, not %r" % (metadata,))
        path = results_folder() / METADATA_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_document(path, metadata)
        return metadata

    def get_metadata(self) -> dict[str, Any] | None:
        """Return the dictionary that the job keeps, of an attempt before too; None where there is none."""
        return read_document(results_folder() / METADATA_FILE)

    def get_experiment_best_validation(self) -> float | None:
        """Return the best of the searcher's metric in all trials of the search; None before the first validation.

        Of the other trials it is what they had validated when this attempt was launched.
        """
        return _better(self.best_of_trial(), _best_at_launch())

    def best_of_trial(self) -> float | None:
        """Return the best of the searcher's metric that this trial has validated by itself; None before the first."""
        if self._best is None and not self._is_best_read:
            self._is_best_read = True
            info = get_cluster_info()
            for document in saved_checkpoints().values():
                best = document.get("best")
                # Those of a trial that it began with are another experiment's.
                if info and isinstance(best, dict) and best.get("job") == info.task_id:
                    self._best = _better(self._best, best.get("value"))
        return self._best

    def get_tensorboard_path(self) -> Path:
        """Return the folder for event files."""
        path = Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or os.environ.get("LOG_DIR") or ".")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda path: True,
        mangler: Callable[[Path, int], Path] = lambda path, rank: path,
    ) -> None:
        """Do nothing: event files are read where they are written, and kept with the job's log.

        Raises:
            RuntimeError: the mode is not ``MANUAL``.
        """
        if self._tensorboard_mode is not TensorboardMode.MANUAL:
            raise RuntimeError("upload_tensorboard_files() is for TensorboardMode.MANUAL alone")

    def _note_best(self, metrics: dict[str, Any]) -> None:
        value = metrics.get(str(searcher_config().get("metric")))
        try:
            number = None if value is None else float(value)
        except (TypeError, ValueError):
            return
        self._best = _better(self.best_of_trial(), number)


def _better(first: Any, second: Any) -> float | None:
    """Return the better of two values of the searcher's metric, either of which may not be there, or no number."""
    values = [
        float(each) for each in (first, second) if isinstance(each, (int, float)) and math.isfinite(each)
    ]
    if not values:
        return None
    return min(values) if searcher_config().get("smaller_is_better", True) else max(values)


def _best_at_launch() -> Any:
    """Return the best that trials of the search had when this attempt was launched; None where none had one."""
    try:
        return json.loads(os.environ.get(BEST_VARIABLE) or "null")
    except ValueError:
        return None
