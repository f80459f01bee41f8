"""Checkpoints of training code: a folder each in ``CHECKPOINT_DIR``, by an id."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path

from workbench.learner.report import checkpoint as note_checkpoint

# Relative: this package is imported by its last name.
from .._info import (  # noqa: TID252
    JOB_VARIABLE,
    SAVED_FILE,
    checkpoint_folder,
    read_document,
    write_document,
)
from ._agreement import act_first, act_together, fail_together
from ._distributed import alone, merged_metadata
from ._shards import collect_parts, folder_for_parts, remove_parts, walk
from ._storage import METADATA_FILE, FolderStorage

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Mapping

    from ._distributed import DistributedContext
    from ._storage import S3Storage, Storage
    from ._train import TrainContext

    Selector = Callable[[str], bool]

logger = logging.getLogger("determined.core")

READ_BYTES = 1 << 20
_STORE_FAILURE = "the checkpoint is not kept: it failed in"
_END_FAILURE = "the checkpoint failed at its end in rank 0:"
_UPLOAD_FAILURE = "nothing is uploaded: it failed in"
_DOWNLOAD_FAILURE = "the checkpoint is not downloaded: it failed in"
_RESTORE_FAILURE = "the checkpoint is not restored: it failed in"
_LOCAL = "local rank %d of this machine"


class DownloadMode(enum.Enum):
    """How processes of one machine share a checkpoint: one copies it for all, or each for itself."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """Checkpoints: a folder each in ``CHECKPOINT_DIR``, by an id."""

    def __init__(
        self, distributed: DistributedContext, train: TrainContext, storage: Storage | None = None
    ) -> None:
        self._distributed = distributed
        self._train = train
        self._storage = storage
        """Takes a copy of each checkpoint, whoever else uses it."""

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Copy a folder into a new checkpoint and return its id.

        With ``shard`` all processes call it, each with its part or None.

        Raises:
            ValueError: the metadata has no ``steps_completed``.
            RuntimeError: there is no folder, processes contradict each other, or a process other than rank 0 uploads
                what is not sharded.
        """
        if shard:
            return self._upload_shards(ckpt_dir, metadata, selector)
        self._refuse_others("upload")
        if ckpt_dir is None:
            raise RuntimeError("ckpt_dir is None, which only other shards of a sharded checkpoint may give")
        with self.store_path(metadata) as (path, name):
            source = os.fspath(ckpt_dir)
            _copy(source, str(path), _entries(source, selector, without=METADATA_FILE))
        return name

    def _upload_shards(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None,
        selector: Selector | None,
    ) -> str:
        names = self._own_entries(ckpt_dir, selector)
        with self.store_path(metadata, shard=True) as (path, storage_id):
            if ckpt_dir is not None:
                _copy(os.fspath(ckpt_dir), str(path), names)
        return storage_id

    def _own_entries(self, ckpt_dir: str | os.PathLike[str] | None, selector: Selector | None) -> list[str]:
        """Return which entries of its folder this process uploads: of those that several give the first one does.

        Raises:
            RuntimeError: no process gives a folder, they contradict one another, or another one failed.
        """
        distributed, rank = self._distributed, self._distributed.rank

        def identity() -> tuple[int, int, int] | None:
            if ckpt_dir is None:
                if selector is not None:
                    raise RuntimeError("a selector needs ckpt_dir, which is None")
                return None
            found = os.stat(os.fspath(ckpt_dir))
            return distributed.cross_rank, found.st_dev, found.st_ino

        folders = act_together(distributed.allgather, identity, _UPLOAD_FAILURE)
        if not any(folders):
            raise RuntimeError("ckpt_dir is None in all processes; one has to give a folder")
        source = "" if ckpt_dir is None else os.fspath(ckpt_dir)

        def chosen() -> list[str]:
            # Of those that give the same folder whole, the first one is enough.
            if not source or (selector is None and folders.index(folders[rank]) != rank):
                return []
            return _entries(source, selector, without=METADATA_FILE)

        names: list[list[str]] = act_together(distributed.allgather, chosen, _UPLOAD_FAILURE)
        owners: dict[str, list[int]] = {}
        for each, given in enumerate(names):
            for name in given:
                owners.setdefault(name.rstrip("/"), []).append(each)
        shared = {name for name, ranks in owners.items() if len(ranks) > 1}

        def shared_digests() -> dict[str, str]:
            mine = shared.intersection(name.rstrip("/") for name in names[rank])
            return {name: _digest(source, name) for name in mine}

        digests = act_together(distributed.allgather, shared_digests, _UPLOAD_FAILURE)
        conflicts = [
            "%s (of ranks %s)" % (name, ", ".join(map(str, owners[name])))
            for name in sorted(shared)
            if len({digests[each][name] for each in owners[name]}) > 1
        ]
        if conflicts:
            raise RuntimeError("the processes give different files of one name: %s" % ", ".join(conflicts))
        return [name for name in names[rank] if owners[name.rstrip("/")][0] == rank]

    @contextlib.contextmanager
    def store_path(
        self, metadata: dict[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """Yield a folder and the id of the checkpoint that it becomes when the block ends without an error.

        With ``shard`` all processes call it and write into one folder; their metadata is merged. Machines that do not
        share that folder write into one of their own, and send their parts to rank 0 when the block ends.

        Raises:
            OSError: the folder cannot be made, and all processes of a shard have this error; or rank 0 cannot keep it.
            ValueError: the metadata has no ``steps_completed`` when the block ends.
            RuntimeError: a process other than rank 0 stores what is not sharded, processes give different metadata or
                files, or another one of a shard failed.
        """
        distributed = self._distributed if shard else alone()
        if not shard:
            self._refuse_others("store")
            if metadata is None:
                raise _without_steps()
        name, error = str(uuid.uuid4()), None
        if distributed.rank == 0:
            try:
                (Path(checkpoint_folder()) / name).mkdir(parents=True, exist_ok=True)
            except OSError as caught:
                error = caught
        name, error = distributed.broadcast((name, error))
        if error is not None:
            raise error
        path, parts = Path(checkpoint_folder()) / name, None
        try:
            try:
                parts = folder_for_parts(distributed, path)
                yield parts or path, name
            except BaseException as failure:
                fail_together(distributed.allgather, failure)
                raise
            merged = self._merged(distributed, metadata)
            if distributed.cross_size > 1:
                collect_parts(distributed, path, parts)
        except BaseException as failure:
            # Rank 0 may keep it where another one is interrupted by now; where rank 0 is gone, nobody keeps it. On its
            # own machine that is certain: from another one the connection may be what is gone.
            if distributed.rank == 0 or (
                isinstance(failure, ConnectionError) and distributed.cross_rank == 0
            ):
                shutil.rmtree(str(path), ignore_errors=True)
            raise
        finally:
            remove_parts(distributed, parts)
        act_first(
            distributed.broadcast, distributed.rank == 0, lambda: self._finish(path, merged), _END_FAILURE
        )

    def _finish(self, path: Path, metadata: dict[str, Any]) -> None:
        """Keep a checkpoint that has all its files, and take the storage's copy of it."""
        try:
            self._keep(path, metadata)
        except BaseException:
            shutil.rmtree(str(path), ignore_errors=True)
            raise
        if self._storage is not None:
            self._storage.keep(path)

    def _merged(self, distributed: DistributedContext, metadata: dict[str, Any] | None) -> dict[str, Any]:
        """Return the metadata of a checkpoint once all processes have written their parts of it.

        Raises:
            RuntimeError: another process failed, or they contradict one another.
            ValueError: none of them says how far training is.
        """
        given: list[Mapping[str, Any]]
        if distributed.size == 1:
            given = [dict(metadata or {})]
        else:
            given = act_together(distributed.allgather, lambda: dict(metadata or {}), _STORE_FAILURE)
        merged = merged_metadata(given)
        if merged.get("steps_completed") is None:
            raise _without_steps()
        return merged

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> Iterator[Path]:
        """Yield the folder of a checkpoint, which has all its files, whatever a selector says.

        One that is in a bucket alone is downloaded, and removed when the block ends. Processes that share a download
        call it together.

        Raises:
            FileNotFoundError: there is no such checkpoint.
            OSError: it cannot be downloaded.
            RuntimeError: another process that shares it failed.
            ValueError: there is no such mode.
        """
        distributed = self._sharing(download_mode)
        if selector is not None:
            logger.warning("restore_path() has all files of the checkpoint; the selector is for download()")

        def found() -> tuple[Path | None, list[str]]:
            DownloadMode(download_mode)
            folder = self._folder_of(storage_id)
            # Each asks the bucket, so that each has the error of a checkpoint that is not there.
            return folder, [] if folder is not None else self._bucket(storage_id).names(storage_id)

        each = act_together(distributed.allgather_local, found, _RESTORE_FAILURE, _LOCAL)
        if all(folder is not None for folder, _ in each):
            yield each[distributed.local_rank][0]
            return
        names = sorted({name for _, part in each for name in part})
        with self._brought(storage_id, names, distributed) as brought:
            yield brought

    @contextlib.contextmanager
    def _brought(self, storage_id: str, names: list[str], distributed: DistributedContext) -> Iterator[Path]:
        """Yield a folder of this machine into which a checkpoint was downloaded, by one process for all."""
        brought = ""

        def bring() -> None:
            nonlocal brought
            brought = tempfile.mkdtemp(prefix="checkpoint-")
            self._fetch(storage_id, brought, names)

        try:
            failure = "%s %s:" % (_RESTORE_FAILURE, _LOCAL % 0)
            act_first(distributed.broadcast_local, distributed.local_rank == 0, bring, failure)
            path = distributed.broadcast_local(brought)
            try:
                yield Path(path)
            finally:
                with contextlib.suppress(ConnectionError):
                    distributed.allgather_local(None)  # all have read it
        finally:
            if brought:
                shutil.rmtree(brought, ignore_errors=True)

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copy a checkpoint into a folder.

        Processes that share a download call it together, and have what any of their selectors chooses.

        Raises:
            FileNotFoundError: there is no such checkpoint.
            RuntimeError: another process that shares it failed.
            ValueError: there is no such mode.
        """
        distributed = self._sharing(download_mode)
        folder: Path | None = None

        def chosen() -> list[str]:
            nonlocal folder
            DownloadMode(download_mode)
            os.fspath(ckpt_dir)  # each needs one, as with Determined, though one process writes
            folder = self._folder_of(storage_id)
            if folder is not None:
                return _entries(str(folder), selector)
            names = self._bucket(storage_id).names(storage_id)
            return [name for name in names if selector is None or selector(name)]

        def bring() -> None:
            if folder is None:
                self._fetch(storage_id, os.fspath(ckpt_dir), names)
            else:
                _copy(str(folder), os.fspath(ckpt_dir), names)

        each = act_together(distributed.allgather_local, chosen, _DOWNLOAD_FAILURE, _LOCAL)
        names = sorted({name for part in each for name in part})
        failure = "%s %s:" % (_DOWNLOAD_FAILURE, _LOCAL % 0)
        act_first(distributed.broadcast_local, distributed.local_rank == 0, bring, failure)

    def _sharing(self, download_mode: DownloadMode) -> DistributedContext:
        """Return the processes that share a download; they do where the mode is none, and refuse it together."""
        with contextlib.suppress(ValueError):
            if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
                return alone()
        return self._distributed

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return the metadata of a checkpoint.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        folder = self._folder_of(storage_id)
        if folder is not None:
            saved = read_document(folder / SAVED_FILE) or {}
            return dict(saved.get("metadata") or read_document(folder / METADATA_FILE) or {})
        bucket = self._bucket(storage_id)
        bucket.names(storage_id)
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as brought:
            self._fetch(storage_id, brought, [METADATA_FILE])
            return dict(read_document(Path(brought) / METADATA_FILE) or {})

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        folder = self._folder_of(storage_id)
        if folder is None:
            self._bucket(storage_id).names(storage_id)
        else:
            shutil.rmtree(str(folder))
        if self._storage is not None:
            self._storage.delete(storage_id)

    def _refuse_others(self, act: str) -> None:
        if self._distributed.rank:
            raise RuntimeError(
                "rank %d cannot %s a checkpoint with shard=False; rank 0 does, or all with shard=True"
                % (self._distributed.rank, act)
            )

    def _keep(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Note that a checkpoint is whole, and report it with the metrics that say how good it is."""
        write_document(path / METADATA_FILE, metadata, indent=2)
        best = {
            "job": os.environ.get(JOB_VARIABLE, ""),
            "value": self._train.best_of_trial(),
        }
        write_document(path / SAVED_FILE, {"saved": time.time(), "metadata": metadata, "best": best})
        known = {
            str(key): value
            for key, value in metadata.items()
            if key not in ("path", "step", "metrics", "steps_completed")
        }
        steps = int(metadata["steps_completed"])
        note_checkpoint(path, steps, self._train.validated_at(steps), **known)

    def _folder_of(self, storage_id: str) -> Path | None:
        """Return the folder of a checkpoint: the job's own, else the one in the storage; None where that is a bucket.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        if not storage_id or os.sep in storage_id or storage_id in (os.curdir, os.pardir):
            raise self._missing(storage_id)
        own = Path(checkpoint_folder()) / storage_id
        if own.is_dir():
            return own
        if self._storage is None:
            raise self._missing(storage_id)
        if not isinstance(self._storage, FolderStorage):
            return None
        folder = self._storage.folder_of(storage_id)
        if folder is None:
            raise self._missing(storage_id)
        return folder

    def _bucket(self, storage_id: str) -> S3Storage:
        """Return the bucket that may have a checkpoint, which is not here."""
        if self._storage is None or isinstance(self._storage, FolderStorage):
            raise self._missing(storage_id)
        return self._storage

    def _fetch(self, storage_id: str, folder: str, names: Iterable[str]) -> None:
        """Download entries of a checkpoint from the bucket, with the folders above them."""
        bucket = self._bucket(storage_id)
        os.makedirs(folder, exist_ok=True)
        for name in names:
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if not name.endswith("/"):
                bucket.fetch(storage_id, name, path)

    def _missing(self, storage_id: str) -> FileNotFoundError:
        where = [checkpoint_folder(), *([] if self._storage is None else [str(self._storage)])]
        text = "there is no checkpoint %r in %s" % (storage_id, " or ".join(where))
        if self._distributed.cross_rank and storage_id:
            text += (
                ": checkpoints are saved with the first learner, which this one shares a folder with on the same host,"
                " or in a cluster on a ReadWriteMany claim; else it has those of the attempts before"
            )
        return FileNotFoundError(text)


def _without_steps() -> ValueError:
    return ValueError("metadata must contain a 'steps_completed' item indicating how far training is")


def _entries(source: str, selector: Selector | None, *, without: str = "") -> list[str]:
    """Return what a selector chooses of a folder, by the paths in it; those of folders end with ``/``.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not os.path.isdir(source):
        raise FileNotFoundError("there is no folder %s" % source)
    found = []
    for parent, folders, files in walk(source):
        inside = os.path.relpath(parent, source)
        before = "" if inside == os.curdir else inside + "/"
        found += [before + name + "/" for name in folders]
        found += [before + name for name in files if before + name not in (SAVED_FILE, without)]
    return sorted(name for name in found if selector is None or selector(name))


def _copy(source: str, target: str, names: Iterable[str]) -> None:
    """Copy entries of a folder, with the folders above them."""
    os.makedirs(target, exist_ok=True)
    for name in names:
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not name.endswith("/"):
            shutil.copy2(os.path.join(source, name), path)


def _digest(source: str, name: str) -> str:
    """Return a digest of a file's content, ``/`` for a folder."""
    path = os.path.join(source, name)
    if os.path.isdir(path):
        return "/"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(READ_BYTES), b""):
            digest.update(part)
    return digest.hexdigest()
