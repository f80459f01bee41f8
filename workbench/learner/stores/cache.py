"""The data that the jobs of a host share: one read-only copy of each container, as it was when it was listed.

An entry appears whole or not at all, is held by a lock as long as a learner uses it, and is dropped by least
use when the cache grows above its limit or the disk has no room for another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time

from workbench.learner.platform import files as host_files
from workbench.learner.stores.errors import TransferError
from workbench.learner.stores.inventory import folded, shown

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.stores.inventory import StoreListing
    from workbench.learner.stores.rclone import StopCheck

COMPLETE = "complete.json"
"""Written last into an entry: what is in it."""

SPARE_BYTES = 64 << 20
"""What a copy leaves free of the disk."""

_POLL_SECONDS = 0.2
_READ_ONLY_FILE, _READ_ONLY_FOLDER = 0o444, 0o555


class CacheEntry:
    """One container's copy: ``<cache>/<store key>/<listing>/<container>``, with its lock next to it."""

    def __init__(self, cache: str, key: str, listing: StoreListing, container: str) -> None:
        self._cache = cache
        self._listing = listing
        self._container = container
        self._lock = -1
        self._name(os.path.join(cache, key, listing.fingerprint[:24]))

    @property
    def data(self) -> str:
        """The folder that jobs read."""
        return os.path.join(self.folder, self._container)

    def take(self, check_stop: StopCheck) -> bool:
        """Hold the entry for the life of this process; return whether it is there, whole and unchanged.

        Where it is not, it is this process's to fill: others wait here.
        """
        os.makedirs(os.path.dirname(self.folder), mode=0o700, exist_ok=True)
        while True:
            if self._lock < 0:
                self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if self._locked(fcntl.LOCK_SH) and self._is_whole():
                os.utime(self._lock_path)  # when it was used last
                return True
            if self._locked(fcntl.LOCK_EX):
                return False
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            if os.path.isdir(self.folder):
                # Somebody changed what others are reading: they keep it.
                self.release()
                self._name(self.folder + "+")
                continue
            check_stop()
            time.sleep(_POLL_SECONDS)

    def fill(self, copy: Callable[[str], None], limit_bytes: int) -> None:
        """Have the container copied, check it, and make it appear. Without a limit that is half of the disk.

        Raises:
            StoreTrouble: there is no room for it, or not everything came.
        """
        if os.path.isdir(self.folder):
            host_files.remove_put(self.folder)  # somebody has changed it
        target = os.path.join(self.filling, self._container)
        os.makedirs(target, mode=0o755, exist_ok=True)
        _chmod_folders(target, 0o755)  # a try before may have come as far as to close them
        self._make_room(_size_of(self.filling), limit_bytes)
        copy(target)
        found = _measure(target, seal=True)
        expected = (len(self._listing.files), self._listing.bytes)
        if found != expected:
            raise _incomplete(self._listing, target, found)
        _chmod_folders(target, _READ_ONLY_FOLDER)
        document = {"files": found[0], "bytes": found[1], "fingerprint": self._listing.fingerprint}
        _write(os.path.join(self.filling, COMPLETE), document)
        host_files.put_folder(self.filling, self.folder)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def release(self) -> None:
        """Release the entry, so that it may be evicted; also for processes that were forked from this one."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = -1

    def _name(self, stem: str) -> None:
        self.folder, self.filling, self._lock_path = stem, stem + ".filling", stem + ".lock"

    def _locked(self, how: int) -> bool:
        try:
            fcntl.flock(self._lock, how | fcntl.LOCK_NB)
            return True
        except OSError:
            return False

    def _is_whole(self) -> bool:
        document = _read(os.path.join(self.folder, COMPLETE))
        return bool(document) and _measure(self.data) == (document.get("files"), document.get("bytes"))

    def _make_room(self, there_bytes: int, limit_bytes: int) -> None:
        needed = max(0, self._listing.bytes - there_bytes)
        limit_bytes = limit_bytes or _disk_bytes(self._cache) // 2
        evict(self._cache, until=lambda used: used + self._listing.bytes <= limit_bytes, but=self.folder)
        if _free_bytes(self._cache) < needed + SPARE_BYTES:
            evict(
                self._cache, until=lambda _: _free_bytes(self._cache) >= needed + SPARE_BYTES, but=self.folder
            )
        free = _free_bytes(self._cache)
        if free < needed + SPARE_BYTES:
            raise TransferError(
                "there is no room for the data: %s are needed, and %s of the disk of %s are free"
                % (format_bytes(needed), format_bytes(free), self._cache),
                "S204",
                "free some space, or mount the store instead: mount: true",
            )


def entries(cache: str) -> list[dict[str, Any]]:
    """List what is cached, the longest unused first.

    Of each: ``folder``, ``key`` of the store, ``container``, ``bytes``, ``files``, ``fingerprint``, ``whole``,
    ``used_us``, ``in_use``.
    """
    found = []
    for key in host_files.children(cache):
        for name in host_files.children(os.path.join(cache, key)):
            folder = os.path.join(cache, key, name)
            if name.endswith((".lock", host_files.MOVING)):
                continue
            stem = folder[: -len(".filling")] if name.endswith(".filling") else folder
            document = _read(os.path.join(folder, COMPLETE))
            lock = _try_lock(stem + ".lock")
            found.append(
                {
                    "folder": folder,
                    "key": key,
                    "container": _container_in(folder),
                    "bytes": document.get("bytes", 0) if document else _size_of(folder),
                    "files": document.get("files", 0),
                    "fingerprint": document.get("fingerprint", ""),
                    "whole": bool(document),
                    "used_us": _used_us(stem + ".lock"),
                    "in_use": lock < 0,
                }
            )
            if lock >= 0:
                os.close(lock)
    return sorted(found, key=lambda entry: int(entry["used_us"]))


def evict(cache: str, until: Callable[[int], bool], but: str = "") -> list[str]:
    """Drop what nobody uses, the longest unused first, until that is enough; return what was dropped.

    ``until`` is given how many bytes the cache has.
    """
    listed = entries(cache)
    used = sum(int(entry["bytes"]) for entry in listed if not entry["folder"].startswith(but or "\0"))
    dropped: list[str] = []
    for entry in listed:
        if until(used):
            break
        folder = str(entry["folder"])
        if but and folder.startswith(but):
            continue
        stem = folder[: -len(".filling")] if folder.endswith(".filling") else folder
        lock = _try_lock(stem + ".lock")
        if lock < 0:
            continue
        try:
            host_files.remove([folder])
        finally:
            os.close(lock)
        used -= int(entry["bytes"])
        dropped.append(folder)
    return dropped


def format_bytes(count: float) -> str:
    """Return a number of bytes as ``workbench.formats.size`` does, which an agent has not."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return "%.0f B" % count if unit == "B" else "%.1f %s" % (count, unit)
        count /= 1024
    return "%.1f TiB" % count


def _incomplete(listing: StoreListing, target: str, found: tuple[int, int]) -> TransferError:
    text = "%d files of %d bytes were to come, %d of %d did" % (len(listing.files), listing.bytes, *found)
    if clashing := _clashing(listing, target):
        return TransferError(
            "%s: this disk has one file for names that differ in case or Unicode form alone: %s"
            % (text, shown(clashing)),
            "C101",
            "rename those objects, or run where the disk tells them apart",
        )
    return TransferError("%s: the data changed while it was copied" % text, transient=True, incomplete=True)


def _clashing(listing: StoreListing, target: str) -> list[str]:
    """Return the objects that share a file on the disk with another one: of each such group not all came."""
    there = {
        os.path.relpath(os.path.join(folder, name), target)
        for folder, _, names in os.walk(target)
        for name in names
    }
    groups: dict[str, list[str]] = {}
    for path in listing.collisions():
        groups.setdefault(folded(path), []).append(path)
    return [path for group in groups.values() if not there.issuperset(group) for path in group]


def _chmod_folders(folder: str, mode: int) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        os.chmod(path, mode)


def _measure(folder: str, *, seal: bool = False) -> tuple[int, int]:
    files = count = 0
    waiting = [folder]
    while waiting:
        try:
            inside = os.scandir(waiting.pop())
        except OSError:
            continue
        with inside:
            for item in inside:
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)
                    continue
                files += 1
                count += item.stat(follow_symlinks=False).st_size
                if seal:
                    os.chmod(item.path, _READ_ONLY_FILE)
    return files, count


def _container_in(folder: str) -> str:
    inside = [name for name in host_files.children(folder) if os.path.isdir(os.path.join(folder, name))]
    return min(inside, default="")


def _size_of(folder: str) -> int:
    return _measure(folder)[1]


def _free_bytes(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _disk_bytes(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def _try_lock(path: str) -> int:
    """Return a descriptor that holds a lock alone, or -1."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    except OSError:
        os.close(lock)
        return -1


def _used_us(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1000
    except OSError:
        return 0


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(path: str, document: dict[str, Any]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(path)  # half of it says nothing
        raise
