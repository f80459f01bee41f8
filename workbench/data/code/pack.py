"""Packs a tree into a ``tar.gz`` whose bytes depend on nothing but its content, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from workbench.data.code.scan import CodeEntry, Progress
from workbench.errors import CannotWrite

_LEVEL: Final = 4
"""Of compression: source code gains little by more, and large files cost time."""


PREVIEW_BYTES: Final = 20_000_000
PREVIEW_PACKED_BYTES: Final = 4_000_000
"""A preview of what would be started packs no more than this."""


class _Enough(Exception):
    """The preview is complete."""


class ChangedMeanwhile(Exception):
    """A file is no longer what was scanned."""


class _Checked:
    """A file that is hashed while it is packed."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        data = self._stream.read(size)
        self.digest.update(data)
        self._progress(len(data))
        return data


def pack(
    folder: Path, entries: Sequence[CodeEntry], target: Path, progress: Progress, *, whole: bool = True
) -> None:
    """Pack these entries of a folder; ``whole`` False packs no more than a preview needs.

    Raises:
        ChangedMeanwhile: a file is not what the entry says any more; nothing is written then.
        CannotWrite: the target cannot be written.
    """
    total = sum(entry.size for entry in entries)
    done = 0

    def progress_of(size: int) -> None:
        nonlocal done
        done += size
        progress("pack", done, total)

    def cut(size: int) -> None:
        progress_of(size)
        if done > PREVIEW_BYTES and stream.tell() > PREVIEW_PACKED_BYTES:
            raise _Enough

    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".packing-")
    except OSError as error:
        raise CannotWrite(f"{target.parent} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            with suppress(_Enough):
                _write(folder, entries, stream, progress_of if whole else cut)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(target)
    except OSError as error:
        raise CannotWrite(f"the code cannot be packed into {target.parent}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _write(
    folder: Path, entries: Sequence[CodeEntry], stream: IO[bytes], progress: Callable[[int], None]
) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for entry in sorted(entries, key=lambda found: os.fsencode(found.path)):
            _add(archive, folder, entry, progress)


def _add(archive: tarfile.TarFile, folder: Path, entry: CodeEntry, progress: Callable[[int], None]) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o755 if entry.executable or entry.kind == "folder" else 0o644
    if entry.kind == "folder":
        info.type = tarfile.DIRTYPE
    elif entry.kind == "link":
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
    if entry.kind != "file":
        archive.addfile(info)
        return
    info.size = entry.size
    try:
        stream = (folder / entry.path).open("rb")
    except OSError as error:
        raise ChangedMeanwhile(entry.path) from error
    with stream:
        checked = _Checked(stream, progress)
        try:
            archive.addfile(info, checked)
        except OSError as error:
            # tarfile's own message for a file that is shorter than it was; a full disk has a number.
            if error.errno is None:
                raise ChangedMeanwhile(entry.path) from error
            raise
        if stream.read(1) or checked.digest.hexdigest() != entry.digest:
            raise ChangedMeanwhile(entry.path)
