"""The Core API: reports, checkpoints and the question whether to stop, by Determined's names and with its checks."""

from __future__ import annotations

import enum
import logging
import os
import signal
import sys
import threading
import traceback

from workbench.learner.determined_jobs import ACKNOWLEDGED, SEEN, answer_stop
from workbench.learner.report import note, should_stop

# Relative: this package is imported by its last name, and a second copy would have another InvalidHP.
from .._absent import NO_MASTER  # noqa: TID252
from .._info import (  # noqa: TID252
    ClusterInfo,
    InvalidHP,
    get_cluster_info,
    outlive_the_request_to_stop,
)
from .._unmanaged import is_unmanaged  # noqa: TID252
from ._checkpoint import CheckpointContext, DownloadMode
from ._distributed import DistributedContext, DummyDistributedContext, alone
from ._searcher import SearcherContext, SearcherMode, SearcherOperation, Unit, unit_of
from ._storage import storage_of
from ._train import EarlyExitReason, TensorboardMode, TrainContext

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any

    from ._storage import Storage

__all__ = [
    "CheckpointContext",
    "Context",
    "CoreContext",
    "DistributedContext",
    "DownloadMode",
    "DummyDistributedContext",
    "DummyPreemptContext",
    "EarlyExitReason",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
]

logger = logging.getLogger("determined.core")

SAMPLING_SECONDS_MIN = 0.1


class PreemptMode(enum.Enum):
    """Which processes look whether to stop: rank 0 for all of them, rank 0 alone, or each by itself."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext:
    """The question whether the job was asked to stop."""

    def __init__(self, distributed: DistributedContext, mode: PreemptMode) -> None:
        self._distributed = distributed
        self._mode = mode
        self._answer = ""
        """What the agent knows of this process."""
        self._was_found = False
        """Whether rank 0 has said that there is a stop."""

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether to save a checkpoint and end: the job is halted, or its search stops the trial.

        All processes ask, and are given the same answer, unless the mode is another. Without an acknowledgement a job
        that ends with exit code 0 is complete, and does not go on later.

        Args:
            auto_ack: acknowledge a stop at once.

        Raises:
            RuntimeError: a process other than rank 0 asks though the mode is ``ChiefOnly``.
        """
        if self._mode is PreemptMode.ChiefOnly and self._distributed.rank:
            raise RuntimeError("with PreemptMode.ChiefOnly should_preempt() is for rank 0 alone")
        is_asked = self._distributed.rank == 0 or self._mode is PreemptMode.WorkersAskMaster
        found = is_asked and should_stop()
        if found and auto_ack:
            self.acknowledge_preemption_signal()
        elif found and not self._answer:
            self._tell(SEEN)
        if self._mode is PreemptMode.WorkersAskChief:
            found = bool(self._distributed.broadcast(found))
            self._was_found = self._was_found or found
            if found and auto_ack and self._distributed.cross_rank:
                self.acknowledge_preemption_signal()
        return found

    def acknowledge_preemption_signal(self) -> None:
        """Acknowledge a stop: the job ends because of it, is halted, and is to go on later."""
        # Another machine's agent is asked at another moment than that of rank 0.
        is_asked = should_stop() or (self._was_found and self._distributed.cross_rank > 0)
        if is_asked and self._answer != ACKNOWLEDGED:
            self._tell(ACKNOWLEDGED)

    def _tell(self, answer: str) -> None:
        self._answer = answer
        answer_stop(answer)


class DummyPreemptContext(PreemptContext):
    """What code passes on where it is never to stop."""

    def __init__(
        self, dist: DistributedContext, preempt_mode: PreemptMode = PreemptMode.WorkersAskChief
    ) -> None:
        super().__init__(dist, PreemptMode(preempt_mode))

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return that there is no reason to stop."""
        return False

    def acknowledge_preemption_signal(self) -> None:
        """Do nothing: there is no stop."""


# By these names the wheel's Trainer asks for the length of a file of 0.37 and before.


def _parse_searcher_max_length(experiment_config: dict[str, Any]) -> int | None:
    """Return the number in ``searcher.max_length``; None where there is none."""
    length = (experiment_config.get("searcher") or {}).get("max_length")
    if isinstance(length, dict):
        length = next(iter(length.values()), None)
    return None if length is None else int(length)


def _parse_searcher_units(experiment_config: dict[str, Any]) -> Unit | None:
    """Return what ``searcher.max_length`` counts; None where it does not say so."""
    searcher = experiment_config.get("searcher") or {}
    return Unit.__members__.get((str(searcher.get("unit") or "") or unit_of(searcher)).upper())


class ProfilerContext:
    """Usage of CPU, memory, network and GPU, which the job's agent always records."""

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Check what is given, and do nothing else: usage is recorded already.

        Raises:
            ValueError: the interval is shorter than a tenth of a second, or the samples are not a whole number from 1.
        """
        if sampling_interval < SAMPLING_SECONDS_MIN:
            raise ValueError("sampling_interval must be at least 0.1 seconds, not %r" % sampling_interval)
        if not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError("samples_per_report must be a whole number from 1, not %r" % samples_per_report)

    def off(self) -> None:
        """Do nothing: it stays on."""


def __getattr__(name: str) -> Any:
    if name.startswith("Dummy"):
        raise AttributeError(
            "determined.core.%s is not a part of fabric's package determined: what init() returns works outside of a"
            " job, too" % name
        )
    raise AttributeError("module 'determined.core' has no attribute %r" % name)


class CoreContext:
    """All parts of the Core API; a context manager."""

    def __init__(
        self,
        distributed: DistributedContext | None = None,
        preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
        storage: Storage | None = None,
        tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    ) -> None:
        self.distributed = distributed or alone()
        self.train = TrainContext(self.distributed, tensorboard_mode)
        self.checkpoint = CheckpointContext(self.distributed, self.train, storage)
        self.preempt = PreemptContext(self.distributed, preempt_mode)
        self.searcher = SearcherContext(self.distributed, self.train, self.preempt)
        self.profiler = ProfilerContext()
        self.info: ClusterInfo | None = get_cluster_info()

    def __getattr__(self, name: str) -> Any:
        if name == "experimental":
            raise AttributeError(
                "core_context.experimental reports to a master which checkpoint or model a task uses: %s"
                % NO_MASTER
            )
        raise AttributeError("%r object has no attribute %r" % (type(self).__name__, name))

    def alert(self, title: str = "", description: str = "", level: str = "info") -> None:
        """Keep a message with the job, as a note that ``fabric show`` has, and print it: nobody is called."""
        name = str(getattr(level, "value", level)).lower()
        text = ": ".join(part for part in (title, description) if part)
        known = {"warn": "warning", "warning": "warning", "error": "error", "critical": "error"}
        note("alert: %s" % text, known.get(name, "info"))
        logger.warning("alert (%s): %s", name, text)

    def start(self) -> None:
        """Do nothing: each part works as soon as it is made."""

    def close(self, *error: object) -> None:
        """Leave the other processes of the trial."""
        self.distributed.close()

    def __enter__(self) -> CoreContext:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self.close()
        if isinstance(error, InvalidHP):
            logger.error("the hyperparameters are invalid: %s", error)
            self.train.report_early_exit(EarlyExitReason.INVALID_HP)
            sys.exit(0)


Context = CoreContext
"""As training code names it in its annotations."""


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: Any = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> CoreContext:
    """Return the context of this process; ``with det.core.init() as context:`` is how it is used.

    A ``checkpoint_storage`` takes a copy of each checkpoint, and those in it can be restored: a folder, or a bucket of
    S3 (``s3://bucket/prefix``, or a dictionary with the type ``s3``) by the job's own ``boto3``.

    SIGUSR1 prints what the process does from here on.

    Raises:
        ImportError: it is a bucket, and the job's environment has no ``boto3``.
        NotImplementedError: the checkpoint storage is neither a folder nor a bucket of S3.
        TypeError: the checkpoint storage is neither a text nor a dictionary.
        ValueError: it is not a storage, there is no such mode, or the job has several slots or learners and it is not
            said which process this is.
    """
    preempt_mode, tensorboard_mode = PreemptMode(preempt_mode), TensorboardMode(tensorboard_mode)
    storage = storage_of(checkpoint_storage)
    info = get_cluster_info()
    if distributed is None and info is not None and info.has_several and not _is_alone(info):
        raise ValueError(
            "the job has %s: init() needs distributed=, the DistributedContext of this process"
            % _size_of(info)
        )
    outlive_the_request_to_stop()
    _print_stack_at_sigusr1()
    return CoreContext(distributed, preempt_mode, storage, tensorboard_mode)


def _is_alone(info: ClusterInfo) -> bool:
    """Return whether a process that says nothing is all of the trial: no launcher has started it, no file gives slots.

    Launchers set ``WORLD_SIZE`` to the number of processes that they start; a job's is that of its learners.
    """
    is_launched = os.environ.get("WORLD_SIZE", "1") != "1"
    return len(info.container_addrs) == 1 and is_unmanaged() and not is_launched


def _size_of(info: ClusterInfo) -> str:
    learners, slots = len(info.container_addrs), len(info.slot_ids)
    if learners == 1:
        return "%d slots" % slots
    return "%d learners%s" % (learners, " with %d slots each" % slots if slots > 1 else "")


def _dummy_init(*, checkpoint_storage: Any = None, **_: Any) -> CoreContext:
    """Return the context of a process that only loads a checkpoint, as parts of the wheel ask for it."""
    return CoreContext(storage=storage_of(checkpoint_storage))


_sigusr1_before: Any = None
"""The handler that SIGUSR1 had before ours."""


def _print_stack_at_sigusr1() -> None:
    global _sigusr1_before
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGUSR1) is not _on_sigusr1:
        _sigusr1_before = signal.signal(signal.SIGUSR1, _on_sigusr1)


def _on_sigusr1(number: int, frame: Any) -> None:
    traceback.print_stack(frame, file=sys.stderr)
    if callable(_sigusr1_before):
        _sigusr1_before(number, frame)
