"""Waits until files change: by inotify where the system has it, by polling elsewhere.

It reports files that appear (also in folders that do not exist yet), renames over a file, appends, truncation and
removal; of a folder, entries that are added and removed. ``splice`` into a file is reported by new kernels only, so
watch a journal's index, not its output.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import threading
import time
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from workbench.learner.platform import system
from workbench.learner.platform.inotify import (
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MOVE_SELF,
    IN_Q_OVERFLOW,
    ON_FILE,
    ON_FOLDER,
    RETRY_SECONDS,
    WATCH_ENDED,
    Inotify,
    open_inotify,
)

POLL_SECONDS = 0.05
"""The polling interval where the system reports no changes."""

AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""After which pauses a change is reported once more where the kernel does not report every one: on FUSE, who reads a
file after it was replaced may find it missing, empty, or as it was. rclone uploads it 5 s later, or when it can."""

_NO_WATCH = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EACCES}) | system.MOUNT_GONE
_Signature = Optional[Tuple[int, int, int, int]]


class Watcher:
    """Watches paths. A change after :meth:`add` has returned is never missed.

    One thread calls :meth:`wait`. :meth:`add`, :meth:`remove` and :meth:`wake` may be called from any thread,
    :meth:`close` only while no thread waits.
    """

    def __init__(self, paths: Iterable[str] = (), *, polling: bool = False) -> None:
        self._lock = threading.Lock()
        self._watched: Dict[str, _Watched] = {}
        self._by_watch: Dict[int, Set[str]] = {}
        self._changed: Set[str] = set()
        self._inotify: Optional[Inotify] = None
        self._ready: Optional[select.epoll] = None
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        self._open_at = float("inf")
        """When to ask for an instance of inotify again."""
        if not polling:
            self._open()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Watch a path; neither it nor its folder need exist. Adding it again does nothing."""
        path = os.path.abspath(path)
        with self._lock:
            if path in self._watched:
                return
            self._watched[path] = watched = _Watched(path)
            self._arm(watched)
        if watched.polled:
            self.wake()  # it may be waiting for inotify alone

    def remove(self, path: str) -> None:
        """Stop watching a path."""
        path = os.path.abspath(path)
        with self._lock:
            watched = self._watched.pop(path, None)
            if watched is not None:
                self._hold(watched, None, None)
            self._changed.discard(path)

    def paths(self) -> List[str]:
        """Return the watched paths."""
        with self._lock:
            return list(self._watched)

    def wait(self, timeout_seconds: Optional[float] = None) -> List[str]:
        """Block until a path changes, :meth:`wake` is called or the time is over; return the paths that changed.

        A change since the last call returns at once. A timeout of None waits without end.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            woken = self._drain()
            with self._lock:
                self._look()
                changed, self._changed = sorted(self._changed), set()
            left = None if deadline is None else deadline - time.monotonic()
            if changed or woken or (left is not None and left <= 0):
                return changed
            self._block(left)

    def wake(self) -> None:
        """Make the waiting thread, or the next one that waits, return at once. Safe in a signal handler."""
        # The pipe may be full of earlier calls, or closed.
        with contextlib.suppress(OSError):
            os.write(self._wake, b"!")

    def fileno(self) -> Optional[int]:
        """Return a descriptor that is readable when :meth:`wait` would return changes; None where files are polled."""
        with self._lock:
            if self._ready is None or any(watched.polled for watched in self._watched.values()):
                return None
            return self._ready.fileno()

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            if self._ready is not None:
                self._ready.close()
                self._ready = None
            if self._inotify is not None:
                self._inotify.close()
                self._inotify = None
            for end in (self._woken, self._wake):
                if end >= 0:
                    os.close(end)
            self._woken = self._wake = -1
            self._watched.clear()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        """Take an instance of inotify, if there is one for us now."""
        self._open_at = time.monotonic() + RETRY_SECONDS
        self._inotify = open_inotify()
        if self._inotify is not None:
            self._open_at = float("inf")
            self._ready = select.epoll()
            self._ready.register(self._inotify.fd, select.EPOLLIN)
            self._ready.register(self._woken, select.EPOLLIN)

    def _block(self, left: Optional[float]) -> None:
        polled = any(watched.polled for watched in list(self._watched.values()))
        if polled or self._ready is None:
            left = POLL_SECONDS if left is None else min(left, POLL_SECONDS)
        if self._ready is not None:
            self._ready.poll(left)
        else:
            select.select([self._woken], [], [], left)

    def _drain(self) -> bool:
        try:
            return bool(os.read(self._woken, 4096))
        except BlockingIOError:
            return False

    def _look(self) -> None:
        if time.monotonic() >= self._open_at:
            self._open()
            for watched in self._watched.values() if self._inotify is not None else ():
                before = watched.signature
                self._arm(watched)
                # What came between the last look and the watch is reported by nothing else.
                if watched.signature != before:
                    self._changed.add(watched.path)
        if self._inotify is not None:
            for watch, mask, name in self._inotify.read():
                if mask & IN_Q_OVERFLOW:
                    self._changed.update(self._watched)
                    for watched in self._watched.values():
                        self._arm(watched)
                for path in tuple(self._by_watch.get(watch, ())):
                    self._take(self._watched[path], watch, mask, name)
        for watched in self._watched.values():
            if watched.polled:
                before, watched.signature = watched.signature, _signature(watched.path)
                now = time.monotonic()
                if before != watched.signature:
                    self._changed.add(watched.path)
                    watched.begin_again(now)
                elif now >= watched.again_at:
                    self._changed.add(watched.path)
                    watched.again_at = now + next(watched.pauses, float("inf"))

    def _take(self, watched: _Watched, watch: int, mask: int, name: str) -> None:
        if watch == watched.own_watch and not mask & WATCH_ENDED:
            self._changed.add(watched.path)
        elif watch == watched.folder_watch and name == watched.awaited:
            if watched.awaits_itself:
                self._changed.add(watched.path)
            self._arm(watched)
        elif mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF):
            if mask & IN_IGNORED:
                self._by_watch.pop(watch, None)
            self._arm(watched)

    def _arm(self, watched: _Watched) -> None:
        """Set the watches of a path and its folder, or the nearest one that exists; report if the path came or went."""
        was = watched.signature is not None
        if self._inotify is not None:
            try:
                # A mount may end, and come back without a report: what was polled once for that stays so.
                watched.unreported = watched.unreported or not system.reports_changes(_existing(watched.path))
                self._arm_inotify(self._inotify, watched)
                watched.polled = watched.unreported
            except OSError as error:
                if error.errno not in _NO_WATCH:
                    raise
                watched.polled = True
                watched.unreported = watched.unreported or error.errno in system.MOUNT_GONE
            watched.begin_again(time.monotonic())
        else:
            watched.polled = True
        watched.signature = _signature(watched.path)
        if watched.armed and was != (watched.signature is not None):
            self._changed.add(watched.path)
        watched.armed = True

    def _arm_inotify(self, inotify: Inotify, watched: _Watched) -> None:
        while True:
            folder, awaited = _nearest(watched.path)
            try:
                folder_watch = inotify.add(folder, ON_FOLDER)
                # Checked after the watch was set: the next part of the path may have appeared just before.
                if awaited != watched.path and os.path.isdir(awaited):
                    continue
                watched.awaited = os.path.basename(awaited)
                watched.awaits_itself = awaited == watched.path
                self._hold(watched, folder_watch, self._own(inotify, watched.path))
                return
            except (FileNotFoundError, NotADirectoryError):
                continue  # a folder was removed meanwhile

    def _own(self, inotify: Inotify, path: str) -> Optional[int]:
        try:
            return inotify.add(path, ON_FOLDER if os.path.isdir(path) else ON_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _hold(self, watched: _Watched, folder_watch: Optional[int], own_watch: Optional[int]) -> None:
        """Record which watches serve a path, and remove those that serve none any more."""
        dropped = {watched.folder_watch, watched.own_watch} - {folder_watch, own_watch}
        watched.folder_watch, watched.own_watch = folder_watch, own_watch
        for watch in (folder_watch, own_watch):
            if watch is not None:
                self._by_watch.setdefault(watch, set()).add(watched.path)
        for watch in dropped:
            if watch is None or watch not in self._by_watch:
                continue
            self._by_watch[watch].discard(watched.path)
            if not self._by_watch[watch]:
                del self._by_watch[watch]
                if self._inotify is not None:
                    self._inotify.remove(watch)


class _Watched:
    """One path and the watches that serve it."""

    __slots__ = (
        "again_at",
        "armed",
        "awaited",
        "awaits_itself",
        "folder_watch",
        "own_watch",
        "path",
        "pauses",
        "polled",
        "signature",
        "unreported",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder_watch: Optional[int] = None
        self.own_watch: Optional[int] = None
        self.awaited = ""
        """The name in the watched folder that the path needs next."""
        self.awaits_itself = True
        """Whether that is the path's own name, not a folder on the way to it."""
        self.polled = False
        self.unreported = False
        """Whether it lies where the kernel does not report every change."""
        self.again_at = float("inf")
        """When it is reported as changed once more."""
        self.pauses: Iterator[float] = iter(())
        """How long after that it is again."""
        self.armed = False
        self.signature: _Signature = None

    def begin_again(self, now: float) -> None:
        """Have a change reported more than once, where one report may be too early."""
        self.pauses = iter(AGAIN_SECONDS if self.unreported else ())
        self.again_at = now + next(self.pauses, float("inf"))


def _nearest(path: str) -> Tuple[str, str]:
    """Return the nearest existing folder above a path, and the path of the next part below it."""
    awaited, folder = path, os.path.dirname(path)
    while folder != awaited and not os.path.isdir(folder):
        awaited, folder = folder, os.path.dirname(folder)
    return folder, awaited


def _existing(path: str) -> str:
    """Return a path, or the nearest part of it that is not missing; a mount that has ended is not."""
    while True:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            path = os.path.dirname(path)
        except OSError:
            return path
        else:
            return path


def _signature(path: str) -> _Signature:
    try:
        found = os.stat(path)
    except OSError:
        return None
    size = found.st_size if not stat.S_ISDIR(found.st_mode) else 0
    return (found.st_dev, found.st_ino, size, found.st_mtime_ns)


IDLE_LIMIT = 8
"""The number of idle watchers in the pool; each has an inotify descriptor, of which a user has 128."""


class WatcherPool:
    """Keeps idle watchers, and uses for each call the one that shares most paths with it. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Watcher] = []
        self._busy: List[Watcher] = []
        self._closed = False

    def wait(self, paths: Sequence[str], timeout_seconds: float) -> List[str]:
        """Block until one of these files changes or appears, or the time is over; return those that changed.

        A change since the last call with the same path counts; for a new path, changes from now on.
        """
        watcher = self._take(set(paths))
        try:
            return watcher.wait(timeout_seconds)
        finally:
            self._put_back(watcher)

    def close(self) -> None:
        """Close all watchers; calls that wait return."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for watcher in self._busy:
                watcher.wake()
        for watcher in idle:
            watcher.close()

    def _take(self, paths: Set[str]) -> Watcher:
        with self._lock:
            best = max(self._idle, key=lambda idle: len(paths.intersection(idle.paths())), default=None)
            if best is None or not paths.intersection(best.paths()):
                best = Watcher()
            else:
                self._idle.remove(best)
            self._busy.append(best)
        for path in set(best.paths()) - paths:
            best.remove(path)
        for path in paths:
            best.add(path)
        return best

    def _put_back(self, watcher: Watcher) -> None:
        with self._lock:
            self._busy.remove(watcher)
            self._idle.append(watcher)
            surplus = self._idle if self._closed else self._idle[:-IDLE_LIMIT]
            self._idle = [idle for idle in self._idle if idle not in surplus]
        for idle in surplus:
            idle.close()
