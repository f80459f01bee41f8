"""Where ``checkpoint_storage`` of ``init()`` has copies of checkpoints: in a folder, or in a bucket of S3.

A bucket is reached by ``boto3`` of the job's own environment, with the credentials that it finds there. Each checkpoint
is a folder by its id below the prefix, as Determined has it, so that its checkpoints can be restored as well.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import posixpath
import shutil
import sys
from pathlib import Path

# Relative: this package is imported by its last name.
from .._info import SAVED_FILE  # noqa: TID252

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, Union

    Storage = Union["FolderStorage", "S3Storage"]

METADATA_FILE = "metadata.json"
"""Within a checkpoint, where Determined's own tools look for its metadata; a checkpoint without it is not whole."""
FOLDER_TYPES = {"shared_fs": ("host_path", "storage_path"), "directory": ("container_path",)}
"""The storages that are folders, and the parts of their path."""


class FolderStorage:
    """A folder, whoever else uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def folder_of(self, storage_id: str) -> Path | None:
        """Return the folder of a checkpoint; None where it is not here."""
        folder = self._path / storage_id
        return folder if folder.is_dir() else None

    def keep(self, path: Path) -> None:
        """Take a copy of a checkpoint of the job; it is there whole or not at all."""
        self._path.mkdir(parents=True, exist_ok=True)
        if os.path.samefile(str(self._path), str(path.parent)):
            return
        new = self._path / (".%s.new" % path.name)
        shutil.copytree(str(path), str(new))
        os.replace(str(new), str(self._path / path.name))

    def delete(self, storage_id: str) -> None:
        """Remove a checkpoint, if it is here."""
        shutil.rmtree(str(self._path / storage_id), ignore_errors=True)


class S3Storage:
    """A bucket of S3, or of a server that speaks like it.

    Raises:
        ImportError: the job's environment has no ``boto3``.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
    ) -> None:
        try:
            boto3 = importlib.import_module("boto3")
        except ImportError as error:
            raise ImportError(
                "checkpoint_storage of type s3 needs boto3, which is not installed in %s; name it in requirements:, or "
                "an image that has it" % sys.executable
            ) from error
        self._bucket = bucket
        self._prefix = prefix
        with self._translated():
            self._client: Any = boto3.client(
                "s3",
                endpoint_url=endpoint_url,
                aws_access_key_id=access_key,
                aws_secret_access_key=secret_key,
            )

    def __str__(self) -> str:
        return posixpath.join("s3://" + self._bucket, self._prefix)

    def keep(self, path: Path) -> None:
        """Take a copy of a checkpoint of the job. Its metadata comes last: without that it is none."""
        files = sorted(_files(path), key=lambda name: name == METADATA_FILE)
        with self._translated():
            for name in files:
                self._client.upload_file(str(path / name), self._bucket, self._key(path.name, name))

    def names(self, storage_id: str) -> list[str]:
        """Return the paths of a checkpoint's files and folders in it, those of folders with ``/`` at their end.

        Raises:
            FileNotFoundError: there is no such checkpoint, or it is not whole.
            OSError: the bucket does not let us, or does not answer.
        """
        keys = self._keys(storage_id)
        if METADATA_FILE not in keys:
            raise FileNotFoundError("there is no checkpoint %r in %s" % (storage_id, self))
        safe = [key for key in keys if key and ".." not in key.split("/") and not key.startswith("/")]
        above = {key[: at + 1] for key in safe for at, sign in enumerate(key) if sign == "/"}
        return sorted(above.union(safe))

    def fetch(self, storage_id: str, name: str, file: str) -> None:
        """Download a file of a checkpoint.

        Raises:
            OSError: it cannot be read, or written.
        """
        with self._translated():
            self._client.download_file(self._bucket, self._key(storage_id, name), file)

    def delete(self, storage_id: str) -> None:
        """Remove a checkpoint, if it is here: its metadata first, so that it is none at once.

        Raises:
            OSError: the bucket does not let us, or does not answer.
        """
        keys = sorted(self._keys(storage_id), key=lambda key: key != METADATA_FILE)
        with self._translated():
            for key in keys:
                self._client.delete_object(Bucket=self._bucket, Key=self._key(storage_id, key))

    def _keys(self, storage_id: str) -> list[str]:
        """Return the keys of a checkpoint's objects below its folder, whole or not."""
        start = self._key(storage_id, "")
        with self._translated():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=start)
            return [entry["Key"][len(start) :] for page in pages for entry in page.get("Contents") or ()]

    def _key(self, storage_id: str, name: str) -> str:
        return posixpath.join(self._prefix, storage_id, name)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Let what boto3 raises be an ``OSError`` that names the storage."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("boto3", "botocore", "s3transfer"):
                raise
            raise OSError("checkpoint_storage %s: %s" % (self, error)) from error


def storage_of(given: Any) -> Storage | None:
    """Return the storage that ``checkpoint_storage`` of ``init()`` names; None where it names none.

    Raises:
        ImportError: it is a bucket, and the job's environment has no ``boto3``.
        NotImplementedError: it is neither a folder nor a bucket of S3.
        TypeError: it is not a text, a path or a dictionary.
        ValueError: it is not a storage.
    """
    if given is None:
        return None
    if isinstance(given, dict):
        return _storage_by_keys(given)
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError("checkpoint_storage must be a string, a dictionary or None, not %r" % (given,))
    text = os.fspath(given)
    scheme, colon, path = text.partition(":")
    if not colon or "/" in scheme:
        return FolderStorage(Path(text))
    is_plain = not ("?" in path or "#" in path or ";" in path)
    if scheme == "s3":
        bucket, _, prefix = path[2:].partition("/")
        if not path.startswith("//") or not bucket or not is_plain:
            raise ValueError("checkpoint_storage %r is not a bucket: write s3://bucket/prefix" % text)
        return S3Storage(bucket, _normal(prefix))
    if scheme != "file":
        raise _not_there(scheme)
    path = path[2:] if path.startswith("//") else path
    if not path.startswith("/") or not is_plain:
        raise ValueError("checkpoint_storage %r is not a path: write file:///folder" % text)
    return FolderStorage(Path(path))


def _storage_by_keys(given: Mapping[str, Any]) -> Storage:
    kind = given.get("type")
    if kind == "s3":
        if not given.get("bucket"):
            raise ValueError("checkpoint_storage of type s3 needs bucket")
        others = {key: given.get(key) or None for key in ("endpoint_url", "access_key", "secret_key")}
        return S3Storage(str(given["bucket"]), _normal(str(given.get("prefix") or "")), **others)
    parts = FOLDER_TYPES.get(str(kind))
    if parts is None:
        raise _not_there(kind)
    if not given.get(parts[0]):
        raise ValueError("checkpoint_storage of type %s needs %s" % (kind, parts[0]))
    return FolderStorage(Path(*[str(given[part]) for part in parts if given.get(part)]))


def _normal(prefix: str) -> str:
    """Return a prefix without slashes at its ends.

    Raises:
        ValueError: it leads out of itself.
    """
    if ".." in prefix.split("/"):
        raise ValueError("the prefix %r of checkpoint_storage must not have .. in it" % prefix)
    found = posixpath.normpath(prefix).strip("/")
    return "" if found == "." else found


def _not_there(kind: Any) -> NotImplementedError:
    return NotImplementedError(
        "checkpoint_storage of type %s is not there in init(); checkpoint_storage: of the experiment's file has it"
        % kind
    )


def _files(folder: Path) -> Iterator[str]:
    """Yield the paths of a checkpoint's files in it, without what is fabric's own."""
    for parent, _, files in os.walk(str(folder), followlinks=True):
        inside = os.path.relpath(parent, str(folder))
        for name in files:
            path = name if inside == os.curdir else inside + "/" + name
            if path != SAVED_FILE:
                yield path
