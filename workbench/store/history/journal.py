"""A job's history, ``events.jsonl``: written before the rows, so that rows can be made of it again.

All events of a job pass through :func:`record`, under the store's write lock. The row remembers how much of
the file it holds; what a crash left in the file alone is applied before anything else is said of the job.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from workbench.clock import now_us
from workbench.errors import FabricError
from workbench.learner.texts import clean_json
from workbench.paths import Home, make_private_folder
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.rows import TargetRef
from workbench.store.history.job_file import read_job_document
from workbench.store.history.projection import apply

DURABLE: Final = frozenset({"submit", "step", "mend", "attempt", "intent", "request", "settle", "annotate"})
"""Kinds that are on the disk before they are in the store: they cannot be found out again. The others can."""

_OPEN_PAUSES: Final = (0.02, 0.05, 0.1, 0.3, 0.6, 1.2)
"""Seconds between attempts to open a file that the disk reports an error of, until who has it open has closed it."""


def record(store: Store, job_id: str, event: dict[str, Any]) -> None:
    """Write an event to the job's history, then to the rows, all or nothing.

    ``time`` is filled in where it is missing. Events of a deleted job are dropped: the line would make its folder
    again, and whoever removes that may be done.

    Raises:
        CannotWrite: the history cannot be written; nothing has changed.
    """
    event.setdefault("time", now_us())
    with store.atomic():
        if _catch_up(store, job_id) is None:
            return
        try:
            end = append_event(store.home, job_id, event, store=store)
        except UnicodeEncodeError:
            # Half of a surrogate pair, as a file name that is not UTF-8 has it: no row can hold it either.
            event = clean_json(event)
            end = append_event(store.home, job_id, event, store=store)
        _apply(store, job_id, event, end)


def is_deleted(store: Store, job_id: str) -> bool:
    """Say whether only the tombstone of a job is left."""
    return bool(store.row("SELECT 1 FROM jobs WHERE id = ? AND deleted_us IS NOT NULL", (job_id,)))


def catch_up(store: Store, job_id: str) -> int:
    """Apply what the history holds and the rows do not (after a crash); return how many events that were."""
    return _catch_up(store, job_id) or 0


def _catch_up(store: Store, job_id: str) -> int | None:
    """Do the same; return None where only the tombstone of the job is left."""
    file = store.home.job(job_id).events
    held = store.row("SELECT events_size, deleted_us FROM jobs WHERE id = ?", (job_id,))
    if held and held[1] is not None:
        return None  # a deleted job's folder may still be there, its rows are not wanted back
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return 0
    offset = held[0] if held else 0
    if size <= offset:
        return 0
    count = 0
    with store.atomic():
        for event, end in read_events(file, offset):
            _apply(store, job_id, event, end)
            count += 1
    return count


def read_events(file: Path, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each whole event from an offset on, and the offset behind it.

    A torn last line and lines of garbage are left out.
    """
    with open(file, "rb", opener=_open) as stream:
        stream.seek(offset)
        for line in stream:
            offset += len(line)
            if not line.endswith(b"\n"):
                return
            if (event := parse_event(line)) is not None:
                yield event, offset


def targets_of(home: Home, job_id: str) -> list[TargetRef]:
    """Return the targets that a job's attempts went to, the last one first, each once.

    One whose document or history is gone, or says nothing of it, has none.
    """
    documents: list[Any] = []
    with contextlib.suppress(OSError, FabricError, KeyError):
        documents.append(read_job_document(home, job_id)["place"])
    with contextlib.suppress(OSError):
        documents += [event.get("place") for event, _ in read_events(home.job(job_id).events)]
    found = []
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("options", {}), dict):
            with contextlib.suppress(TypeError):  # another version's
                found.append(TargetRef(**document))
    last_first: list[TargetRef] = []
    for target in reversed(found):
        if target not in last_first:
            last_first.append(target)
    return last_first


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line; None where it holds none."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "do" in event else None


def append_event(home: Home, job_id: str, event: dict[str, Any], *, store: Store | None = None) -> int:
    """Append one whole line to a job's history and return the offset behind it.

    A torn line before it is cut off.

    With ``store`` the line is taken back when the transaction that is open there fails.
    """
    return append_line(home, home.job(job_id).events, event, durable=event["do"] in DURABLE, store=store)


def append_line(
    home: Home, file: Path, document: dict[str, Any], *, durable: bool, store: Store | None = None
) -> int:
    """Append one document as a whole line to a file of a home, or nothing at all; ``durable`` waits for the disk.

    Raises:
        CannotWrite: the disk does not take it, or the home was removed.
    """
    line = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    try:
        make_private_folder(file.parent, within=home.path)
        descriptor = _open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        try:
            start = _whole_end(descriptor)
            _append(descriptor, line, start, durable=durable)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_failure(error, file) from error
    if store is not None:
        store.on_rollback(lambda: _take_back(file, start, len(line)))
    return start + len(line)


def _open(file: str | Path, flags: int) -> int:
    """Open a file, and try again for a while where the disk reports an error.

    A mount of rclone's (1.75) answers so to one of two processes that open a file at the same instant: its
    cache makes an item for each of them ("already open in the cache").
    """
    for pause in _OPEN_PAUSES:
        try:
            return os.open(file, flags, 0o600)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        time.sleep(pause)
    return os.open(file, flags, 0o600)


def _apply(store: Store, job_id: str, event: dict[str, Any], end: int) -> None:
    apply(store, job_id, event)
    store.execute("UPDATE jobs SET events_size = ? WHERE id = ?", (end, job_id))


def _whole_end(descriptor: int) -> int:
    """Return the end of the last whole line; what follows it was torn by a crash and is cut off."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    block, end = 1 << 16, size
    while end > 0:
        start = max(0, end - block)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    os.ftruncate(descriptor, end)
    return end


def _append(descriptor: int, line: bytes, start: int, *, durable: bool) -> None:
    try:
        written = os.write(descriptor, line)
        while written < len(line):
            written += os.write(descriptor, line[written:])
        if durable:
            # Where writes are kept back, as on network file systems, this is what says that there is no room.
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, start)
        raise


def _take_back(file: Path, start: int, length: int) -> None:
    """Cut off a line again, unless another has been written behind it (SQLite gave the lock up by itself)."""
    with contextlib.suppress(FileNotFoundError):
        if file.stat().st_size == start + length:
            os.truncate(file, start)
