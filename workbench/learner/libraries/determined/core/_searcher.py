"""The searcher as training code of versions before 0.38 asks it: how far to train, one length after another."""

from __future__ import annotations

import enum
import os
import time

from workbench.learner.determined_jobs import LENGTHS_VARIABLE, PROMOTED_VARIABLE
from workbench.learner.report import should_stop

# Relative: this package is imported by its last name.
from .._info import (  # noqa: TID252
    JOB_VARIABLE,
    list_of,
    read_document,
    results_folder,
    searcher_config,
    write_document,
)
from ._train import VALIDATION

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping

    from . import PreemptContext
    from ._distributed import DistributedContext
    from ._train import TrainContext

DECISION_SECONDS = 5.0
PAUSE_SECONDS = 0.05
COMPLETED_FILE = ".determined-searcher.json"
"""Among a job's results: how far it has been trained and validated, which an attempt after it does not repeat."""


class Unit(enum.Enum):
    """What a length counts."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherMode(enum.Enum):
    """Which processes ask for operations: all of them, in step, or rank 0 alone."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHEIF_ONLY"


class SearcherOperation:
    """A length that a trial is trained to and then validated; it counts from the trial's beginning."""

    def __init__(self, train: TrainContext, length: int, *, is_chief: bool, whole: int) -> None:
        self._train = train
        self._is_chief = is_chief
        self._whole = whole
        self.length = length
        self.completed = False

    def report_progress(self, length: float) -> None:
        """Report how far the training is, in units of the length.

        Raises:
            RuntimeError: a process other than rank 0 reports it, or the operation is completed.
        """
        if not self._is_chief:
            raise RuntimeError("op.report_progress() is for rank 0 alone")
        if self.completed and length != self.length:
            raise RuntimeError("op.report_progress() comes before op.report_completed()")
        self._train.report_progress(min(max(length / max(self._whole, 1), 0.0), 1.0))

    def report_completed(self, searcher_metric: float) -> None:
        """Report the searcher's metric at the end of the length.

        Raises:
            RuntimeError: it was reported before, or a process other than rank 0 reports it.
        """
        if not self._is_chief:
            raise RuntimeError("op.report_completed() is for rank 0 alone")
        if self.completed:
            raise RuntimeError("op.report_completed() was called twice")
        self.completed = True
        config = searcher_config()
        metrics = {
            str(config.get("metric") or "searcher_metric"): searcher_metric,
            _time_metric(config): self.length,
        }
        if not self._train.reported_at(VALIDATION, self.length).issuperset(metrics):
            # In one report, as a search takes no length from another one than that of its metric.
            self._train.report_again(VALIDATION, self.length, metrics)
        document = {"job": os.environ.get(JOB_VARIABLE, ""), "length": self.length}
        results_folder().mkdir(parents=True, exist_ok=True)
        write_document(results_folder() / COMPLETED_FILE, document)


class SearcherContext:
    """The searcher as training code of versions before 0.38 asks it."""

    def __init__(self, distributed: DistributedContext, train: TrainContext, preempt: PreemptContext) -> None:
        self._distributed = distributed
        self._train = train
        self._preempt = preempt

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Yield an operation for each length that is left: of each rung, else one of ``max_length``.

        They end where the search has halted the trial at its rung; promoted, it is given the next one.

        Raises:
            RuntimeError: an operation was not completed, or a process other than rank 0 asks in the mode ``ChiefOnly``.
            ValueError: there is no such mode.
        """
        shares = SearcherMode(searcher_mode) is SearcherMode.WorkersAskChief
        if self._distributed.rank and not shares:
            raise RuntimeError("with SearcherMode.ChiefOnly operations() is for rank 0 alone")
        lengths = _lengths()
        if self._distributed.rank:
            while True:
                length = self._distributed.broadcast(None)
                if length is None:
                    return
                yield self._operation(length, lengths)
        done = _completed()
        for length in (length for length in lengths if length > done):
            if shares:
                self._distributed.broadcast(length)
            operation = self._operation(length, lengths)
            yield operation
            if not operation.completed:
                raise RuntimeError("op.report_completed() has to be called for each operation")
            if length != lengths[-1] and _is_stopped():
                if auto_ack:
                    self._preempt.acknowledge_preemption_signal()
                break
        if shares:
            self._distributed.broadcast(None)

    def acknowledge_out_of_ops(self) -> None:
        """Do nothing: the trial's end says it."""

    def get_configured_units(self) -> Unit | None:
        """Return what the file's ``max_length`` counts; None where it is a number alone."""
        name = unit_of(searcher_config()).upper()
        return Unit(name) if name in Unit.__members__ else None

    def _operation(self, length: int, lengths: list[int]) -> SearcherOperation:
        return SearcherOperation(self._train, length, is_chief=self._distributed.rank == 0, whole=lengths[-1])


def unit_of(searcher: Mapping[str, Any]) -> str:
    """Return what the ``max_length`` of a searcher counts, as the file has it; empty where it is a number alone."""
    length = searcher.get("max_length")
    return str(next(iter(length), "")) if isinstance(length, dict) else ""


def _time_metric(searcher: Mapping[str, Any]) -> str:
    """Return the name under which a length is reported.

    That of the file's ``time_metric``, unless the file has the units of 0.38 besides: they need not be those of the
    lengths.
    """
    name = str(searcher.get("time_metric") or "")
    if searcher.get("max_length") is not None and searcher.get("max_time") is not None:
        return unit_of(searcher) or name or "batches"
    return name or unit_of(searcher) or "batches"


def _is_stopped() -> bool:
    """Return whether the trial is to end at a rung; where it may be promoted, wait a moment for what is decided.

    The search says nothing to a trial that goes on at once. One that trains on and is halted later has lost nothing but
    time.
    """
    # A job that is a copy of a trial has its variables, too.
    is_compared = os.environ.get(PROMOTED_VARIABLE, "") == os.environ.get(JOB_VARIABLE)
    until = time.monotonic() + (DECISION_SECONDS if is_compared else 0)
    while not should_stop() and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
    return should_stop()


def _lengths() -> list[int]:
    """Return all lengths of the trial, at least one."""
    found = [int(each) for each in list_of(LENGTHS_VARIABLE)]
    if found:
        return found
    length = searcher_config().get("max_length")
    if isinstance(length, dict):
        length = next(iter(length.values()), None)
    return [int(length or 1)]


def _completed() -> int:
    """Return the length that an attempt before has completed; 0 for none."""
    document = read_document(results_folder() / COMPLETED_FILE) or {}
    is_own = document.get("job") == os.environ.get(JOB_VARIABLE, "")
    return int(document.get("length") or 0) if is_own else 0
