"""The Core API: reports, checkpoints and the question whether to stop, by Determined's names and with its checks."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import logging
import os
import shutil
import sys
import time
import uuid
from pathlib import Path

from workbench.learner.report import checkpoint as note_checkpoint
from workbench.learner.report import note, report, should_stop
from workbench.learner.report import progress as note_progress

# Relative: this package is imported by its last name, and a second copy would have another InvalidHP.
from .._info import (  # noqa: TID252
    SAVED_FILE,
    ClusterInfo,
    InvalidHP,
    checkpoint_folder,
    get_cluster_info,
    outlive_the_request_to_stop,
)
from ._distributed import DistributedContext, alone, merged_metadata

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping

logger = logging.getLogger("determined.core")

RESULTS_VARIABLE = "RESULT_DIR"
METADATA_FILE = "determined-metadata.json"
"""Among a job's results: what its code keeps by ``set_metadata()``."""
STORAGE_TYPES = {"shared_fs": ("host_path", "storage_path"), "directory": ("container_path",)}
"""The storages that ``init()`` takes, and the parts of their path."""


class PreemptMode(enum.Enum):
    """Which processes look whether to stop: rank 0 for all of them, rank 0 alone, or each by itself."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class DownloadMode(enum.Enum):
    """How processes of one machine share a checkpoint; here it is a folder, and nothing is downloaded."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class TensorboardMode(enum.Enum):
    """Who collects event files; they are found where they are written."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


class EarlyExitReason(enum.Enum):
    """Why a trial ends before its time."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports of metrics and progress."""

    def __init__(self) -> None:
        self._validated: tuple[int, dict[str, Any]] = (-1, {})
        """Step and metrics of the last validation."""

    def validated_at(self, steps_completed: int) -> dict[str, Any]:
        """Return the metrics of the validation after so many steps, if that was the last one."""
        step, metrics = self._validated
        return metrics if step == steps_completed else {}

    def report_training_metrics(
        self, steps_completed: int, metrics: dict[str, Any], batch_metrics: Any = None
    ) -> None:
        """Report metrics of the training; those of single batches are left out."""
        self.report_metrics("training", steps_completed, metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of a validation: a search goes by them.

        Raises:
            ValueError: a metric is None.
        """
        empty = [name for name, value in metrics.items() if value is None]
        if empty:
            raise ValueError("Validation metrics cannot be None; these are: %s" % ", ".join(empty))
        self.report_metrics("validation", steps_completed, metrics)
        self._validated = (steps_completed, dict(metrics))

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics of a group.

        Raises:
            ValueError: the group's name holds a ``.``.
        """
        if "." in group:
            raise ValueError("group name %r must not contain '.'" % group)
        kept = {}
        for name, value in metrics.items():
            if isinstance(value, bytes):
                logger.warning("the metric %r is bytes and is left out", name)
            else:
                kept[name] = value
        report(kept, step=steps_completed, group=group)

    def report_progress(self, progress: float) -> None:
        """Report how far the training is.

        Raises:
            ValueError: it is not from 0 to 1.
        """
        if not 0 <= progress <= 1:
            raise ValueError("Progress should be between 0 and 1, not %r" % progress)
        note_progress(progress)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report why the trial ends before its time."""
        logger.warning("the trial ends early: %s", reason.value)
        if reason is EarlyExitReason.INVALID_HP:
            report({"invalid_hp": 1}, group="searcher")  # its search begins another trial in its stead

    def set_status(self, status: str) -> None:
        """Print what the training does."""
        logger.info("status: %s", status)

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Keep a dictionary with the job, instead of the one before; it is a file of its results.

        Raises:
            ValueError: it is not a dictionary.
        """
        if not isinstance(metadata, dict):
            raise ValueError("metadata must be a dictionary, not %r" % (metadata,))
        path = _metadata_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, metadata)

    def get_metadata(self) -> dict[str, Any] | None:
        """Return the dictionary that the job keeps, of an attempt before too; None where there is none."""
        return _read(_metadata_file())

    def get_experiment_best_validation(self) -> None:
        """Return None: what other trials have reported is not known to a job."""

    def get_tensorboard_path(self) -> Path:
        """Return the folder for event files."""
        return Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or os.environ.get("LOG_DIR") or ".")

    def upload_tensorboard_files(self, selector: Any = None, mangler: Any = None) -> None:
        """Do nothing: event files are found where they are written."""


class CheckpointContext:
    """Checkpoints: a folder each in ``CHECKPOINT_DIR``, by an id."""

    def __init__(
        self, distributed: DistributedContext, train: TrainContext, storage: Path | None = None
    ) -> None:
        self._distributed = distributed
        self._train = train
        self._storage = storage
        """A folder that takes a copy of each checkpoint, whoever else uses it."""

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Callable[[str], bool] | None = None,
    ) -> str:
        """Copy a folder into a new checkpoint and return its id.

        With ``shard`` all processes call it, each with its part or None.

        Raises:
            ValueError: the metadata has no ``steps_completed``, there is no folder, or processes contradict each other.
            RuntimeError: a process other than rank 0 uploads what is not sharded.
        """
        if shard and self._distributed.size > 1:
            return self._upload_shards(ckpt_dir, metadata, selector)
        if ckpt_dir is None:
            raise ValueError("ckpt_dir is None, which only other shards of a sharded checkpoint may give")
        with self.store_path(metadata, shard=shard) as (path, name):
            _copy(os.fspath(ckpt_dir), str(path), selector)
        return name

    def _upload_shards(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None,
        selector: Callable[[str], bool] | None,
    ) -> str:
        source = None if ckpt_dir is None else os.fspath(ckpt_dir)
        digests = {} if source is None else _digests(source, selector)
        with self.store_path(metadata, shard=True) as (path, name):
            owners: dict[str, tuple[int, str]] = {}
            conflicts = set()
            for rank, found in enumerate(self._distributed.allgather(digests)):
                for inside, digest in found.items():
                    if owners.setdefault(inside, (rank, digest))[1] != digest:
                        conflicts.add(inside)
            if conflicts:
                raise ValueError(
                    "the processes give different files of one name: %s" % ", ".join(sorted(conflicts))
                )
            mine = {inside for inside, (rank, _) in owners.items() if rank == self._distributed.rank}
            if source is not None:
                _copy(source, str(path), mine.__contains__)
        return name

    @contextlib.contextmanager
    def store_path(
        self, metadata: dict[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """Yield a folder and the id of the checkpoint that it becomes when the block ends without an error.

        With ``shard`` all processes call it and write into one folder; their metadata is merged.

        Raises:
            ValueError: the metadata has no ``steps_completed``, or processes give different ones.
            RuntimeError: a process other than rank 0 stores what is not sharded, or another one of a shard failed.
        """
        distributed = self._distributed if shard else alone()
        if not shard and self._distributed.rank:
            raise RuntimeError(
                "rank %d cannot store a checkpoint with shard=False; rank 0 does, or all with shard=True"
                % self._distributed.rank
            )
        if distributed.rank == 0:
            _steps_of(metadata)
        name = str(distributed.broadcast(str(uuid.uuid4())))
        path = Path(checkpoint_folder()) / name
        path.mkdir(parents=True, exist_ok=True)
        try:
            yield path, name
        except BaseException:
            with contextlib.suppress(ConnectionError):
                distributed.allgather(None)
            shutil.rmtree(str(path), ignore_errors=True)
            raise
        parts = distributed.allgather(dict(metadata or {}))
        if None in parts:
            failed = ", ".join(str(rank) for rank, part in enumerate(parts) if part is None)
            raise RuntimeError("the checkpoint is not kept: it failed in rank %s" % failed)
        try:
            merged = merged_metadata(parts)
        except ValueError:
            shutil.rmtree(str(path), ignore_errors=True)
            raise
        if distributed.rank == 0:
            _keep(path, merged, self._train.validated_at(_steps_of(merged)))
            self._copy_to_storage(path)
        distributed.broadcast(None)

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Callable[[str], bool] | None = None,
    ) -> Iterator[Path]:
        """Yield the folder of a checkpoint.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        yield self._folder_of(storage_id)

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Callable[[str], bool] | None = None,
    ) -> None:
        """Copy a checkpoint into a folder.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        shares = download_mode is DownloadMode.LocalWorkersShareDownload
        distributed = self._distributed if shares else alone()
        if distributed.local_rank == 0:
            _copy(str(self._folder_of(storage_id)), os.fspath(ckpt_dir), selector)
        distributed.broadcast_local(None)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata of a checkpoint.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        saved = _read(self._folder_of(storage_id) / SAVED_FILE) or {}
        return dict(saved.get("metadata") or {})

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        shutil.rmtree(str(self._folder_of(storage_id)))
        if self._storage is not None:
            shutil.rmtree(str(self._storage / storage_id), ignore_errors=True)

    def _copy_to_storage(self, path: Path) -> None:
        """Copy a checkpoint of the job to the storage that the code names; it is there whole or not at all."""
        if self._storage is None:
            return
        self._storage.mkdir(parents=True, exist_ok=True)
        if os.path.samefile(str(self._storage), str(path.parent)):
            return
        new = self._storage / (".%s.new" % path.name)
        shutil.copytree(str(path), str(new))
        os.replace(str(new), str(self._storage / path.name))

    def _folder_of(self, storage_id: str) -> Path:
        """Return the folder of a checkpoint: the job's own, else the one in the storage."""
        folders = [Path(checkpoint_folder())] + ([self._storage] if self._storage is not None else [])
        for folder in folders if storage_id and os.sep not in storage_id else ():
            if (folder / storage_id).is_dir():
                return folder / storage_id
        raise FileNotFoundError(
            "there is no checkpoint %r in %s" % (storage_id, " or ".join(str(each) for each in folders))
        )


class PreemptContext:
    """The question whether the job was asked to stop."""

    def __init__(self, distributed: DistributedContext, mode: PreemptMode) -> None:
        self._distributed = distributed
        self._mode = mode

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether to save a checkpoint and end: the job is halted, or its search stops the trial.

        All processes ask, and are given the same answer, unless the mode is another.

        Raises:
            RuntimeError: a process other than rank 0 asks though the mode is ``ChiefOnly``.
        """
        if self._mode is PreemptMode.ChiefOnly and self._distributed.rank:
            raise RuntimeError("with PreemptMode.ChiefOnly should_preempt() is for rank 0 alone")
        if self._mode is PreemptMode.WorkersAskChief:
            return bool(self._distributed.broadcast(self._distributed.rank == 0 and should_stop()))
        return should_stop()

    def acknowledge_preemption_signal(self) -> None:
        """Do nothing: a job that was asked to stop and ends is halted."""


class SearcherOperation:
    """The one length that a trial of a file with ``max_length`` is trained for."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.completed = False

    def report_progress(self, length: float) -> None:
        """Report how far the training is, in units of the length."""
        note_progress(min(max(length / max(self.length, 1), 0.0), 1.0))

    def report_completed(self, searcher_metric: float) -> None:
        """Report the searcher's metric at the end of the length.

        Raises:
            RuntimeError: it was reported before.
        """
        if self.completed:
            raise RuntimeError("report_completed was called twice")
        self.completed = True
        info = get_cluster_info()
        name = _searcher(info).get("metric") or "searcher_metric"
        report({str(name): searcher_metric, "batches": self.length}, step=self.length, group="validation")


class SearcherContext:
    """The searcher as training code of versions before 0.38 asks it."""

    def operations(self, searcher_mode: Any = None, auto_ack: bool = True) -> Iterator[SearcherOperation]:
        """Yield one operation with the file's ``max_length``, or of length 1 without one."""
        length = _searcher(get_cluster_info()).get("max_length")
        if isinstance(length, dict):
            length = next(iter(length.values()), None)
        yield SearcherOperation(int(length or 1))


class ProfilerContext:
    """Usage of CPU, memory, network and GPU, which the job's agent always records."""

    def on(self, sampling_interval: int = 1, samples_per_report: int = 10) -> None:
        """Do nothing: it is on."""

    def off(self) -> None:
        """Do nothing: it stays on."""


class CoreContext:
    """All parts of the Core API; a context manager."""

    def __init__(
        self,
        distributed: DistributedContext | None = None,
        preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
        storage: Path | None = None,
    ) -> None:
        self.distributed = distributed or alone()
        self.train = TrainContext()
        self.checkpoint = CheckpointContext(self.distributed, self.train, storage)
        self.preempt = PreemptContext(self.distributed, preempt_mode)
        self.searcher = SearcherContext()
        self.profiler = ProfilerContext()
        self.info: ClusterInfo | None = get_cluster_info()

    def alert(self, title: str = "", description: str = "", level: str = "info") -> None:
        """Keep a message with the job, as a note that ``fabric show`` has, and print it: nobody is called."""
        name = str(getattr(level, "value", level)).lower()
        text = ": ".join(part for part in (title, description) if part)
        known = {"warn": "warning", "warning": "warning", "error": "error", "critical": "error"}
        note("alert: %s" % text, known.get(name, "info"))
        logger.warning("alert (%s): %s", name, text)

    def __enter__(self) -> CoreContext:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self.distributed.close()
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

    A ``checkpoint_storage`` that is a folder takes a copy of each checkpoint, and those in it can be restored.

    Raises:
        NotImplementedError: the checkpoint storage is not a folder.
        ValueError: it is not a storage, or the job has several slots and it is not said which process this is.
    """
    storage = _storage_of(checkpoint_storage)
    info = get_cluster_info()
    if distributed is None and info is not None and len(info.slot_ids) > 1:
        raise ValueError(
            "the job has %d slots: init() needs distributed=, the DistributedContext of this process"
            % len(info.slot_ids)
        )
    outlive_the_request_to_stop()
    return CoreContext(distributed, preempt_mode, storage)


def _searcher(info: ClusterInfo | None) -> Mapping[str, Any]:
    found = info.trial._config.get("searcher") if info else None
    return found if isinstance(found, dict) else {}


def _steps_of(metadata: Mapping[str, Any] | None) -> int:
    steps = (metadata or {}).get("steps_completed")
    if steps is None:
        raise ValueError("metadata must contain a 'steps_completed' item indicating how far training is")
    return int(steps)


def _storage_of(given: Any) -> Path | None:
    """Return the folder that ``checkpoint_storage`` of ``init()`` names; None where it names none.

    Raises:
        NotImplementedError: it is not a folder.
        ValueError: it is not a storage.
    """
    if given is None:
        return None
    if isinstance(given, dict):
        parts = STORAGE_TYPES.get(str(given.get("type")))
        if parts is None:
            raise _not_a_folder(given.get("type"))
        if not given.get(parts[0]):
            raise ValueError("checkpoint_storage of type %s needs %s" % (given["type"], parts[0]))
        return Path(*[str(given[part]) for part in parts if given.get(part)])
    text = os.fspath(given)
    scheme, colon, path = text.partition(":")
    if not colon or "/" in scheme:
        return Path(text)
    if scheme != "file":
        raise _not_a_folder(scheme)
    path = path[2:] if path.startswith("//") else path
    if not path.startswith("/") or "?" in path or "#" in path or ";" in path:
        raise ValueError("checkpoint_storage %r is not a path: write file:///folder" % text)
    return Path(path)


def _not_a_folder(kind: Any) -> NotImplementedError:
    return NotImplementedError(
        "checkpoint_storage of type %s is not there in init(); checkpoint_storage: of the experiment's file has it"
        % kind
    )


def _metadata_file() -> Path:
    return Path(os.environ.get(RESULTS_VARIABLE) or ".") / METADATA_FILE


def _read(path: Path) -> dict[str, Any] | None:
    """Return a document that :func:`_write` wrote; None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _copy(source: str, target: str, selector: Callable[[str], bool] | None) -> None:
    for parent, _, names in os.walk(source):
        for name in names:
            inside = os.path.relpath(os.path.join(parent, name), source)
            if inside != SAVED_FILE and (selector is None or selector(inside)):
                os.makedirs(os.path.dirname(os.path.join(target, inside)) or target, exist_ok=True)
                shutil.copy2(os.path.join(parent, name), os.path.join(target, inside))


def _digests(source: str, selector: Callable[[str], bool] | None) -> dict[str, str]:
    """Return the digest of each file below a folder, by its path in it."""
    found = {}
    for parent, _, names in os.walk(source):
        for name in names:
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, source)
            if inside != SAVED_FILE and (selector is None or selector(inside)):
                digest = hashlib.sha256()
                with open(path, "rb") as file:
                    for part in iter(lambda: file.read(1 << 20), b""):
                        digest.update(part)
                found[inside] = digest.hexdigest()
    return found


def _keep(path: Path, metadata: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """Note that a checkpoint is whole, and report it with the metrics that say how good it is."""
    _write(path / SAVED_FILE, {"saved": time.time(), "metadata": metadata})
    known = {
        str(key): value
        for key, value in metadata.items()
        if key not in ("path", "step", "metrics", "steps_completed")
    }
    note_checkpoint(path, _steps_of(metadata), metrics, **known)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(document, default=str), encoding="utf-8")
    os.replace(str(new), str(path))
