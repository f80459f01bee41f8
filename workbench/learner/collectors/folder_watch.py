"""Watches folders for what is made and written in them, and single files, where the system reports changes."""

from __future__ import annotations

import os
import time
from typing import Dict, Optional, Set
from weakref import WeakSet

from workbench.learner.platform import system
from workbench.learner.platform.inotify import (
    IN_CREATE,
    IN_IGNORED,
    IN_ISDIR,
    IN_MASK_ADD,
    IN_MODIFY,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_ONLYDIR,
    RETRY_SECONDS,
    Inotify,
    open_inotify,
)

FOLDERS_LIMIT = 1024
"""More folders are not watched: a user's watches are limited."""

NAMES_LIMIT = 1024
"""More names of what was made are not kept until they are asked for."""

_MADE = IN_CREATE | IN_MOVED_TO


class SharedInotify:
    """The one instance of inotify of all collectors of a learner: opened by the first that watches, closed by the last.

    A user has few (128 by default). Whoever reads gives the others what is theirs.

    Args:
        is_over: nothing changes any more, so nothing is watched: to open and close inotify takes the kernel 20 ms.
    """

    def __init__(self, *, is_over: bool = False) -> None:
        self._is_over = is_over
        self._inotify: Optional[Inotify] = None
        self._open_at = 0.0
        self._users: Dict[int, WeakSet[FolderWatch]] = {}

    @property
    def descriptor(self) -> Optional[int]:
        """What is readable when something has changed; None where nothing is watched."""
        return None if self._inotify is None else self._inotify.fd

    def add(self, user: FolderWatch, path: str, events: int) -> Optional[int]:
        """Watch a path for a user and return the watch's number; None where it cannot be watched now."""
        if self._is_over or not system.reports_changes(path):
            return None
        if self._inotify is None and time.monotonic() >= self._open_at:
            self._inotify = open_inotify()
            self._open_at = time.monotonic() + RETRY_SECONDS
        if self._inotify is None:
            return None
        try:
            watch = self._inotify.add(path, events | IN_MASK_ADD)
        except OSError:
            return None
        self._users.setdefault(watch, WeakSet()).add(user)
        return watch

    def read(self) -> None:
        """Read what has happened, and note it with those whom it concerns."""
        for watch, mask, name in self._inotify.read() if self._inotify is not None else ():
            # Where too much has happened at once, it may have happened to everybody.
            concerned = [self._users.get(watch, ())] if watch >= 0 else list(self._users.values())
            for user in {user for users in concerned for user in users}:
                user.note(watch, mask, name)
            if mask & IN_IGNORED:
                self._users.pop(watch, None)

    def drop(self, user: FolderWatch) -> None:
        """Watch nothing any more for a user."""
        for watch, users in list(self._users.items()):
            users.discard(user)
            if not users:
                del self._users[watch]
                if self._inotify is not None:
                    self._inotify.remove(watch)
        if not self._users and self._inotify is not None:
            self._inotify.close()
            self._inotify = None
            self._open_at = 0.0


class FolderWatch:
    """Says whether anything was made or written in some folders; what cannot be watched has to be polled.

    Where there is no instance of inotify for it, :meth:`add` asks for one again later.
    """

    def __init__(self, shared: Optional[SharedInotify] = None) -> None:
        self._shared = SharedInotify() if shared is None else shared
        self._closed = False
        self._watches: Set[int] = set()
        self._made = False
        self._paths: Dict[int, str] = {}
        """The folders that are watched."""
        self._names: Dict[str, bool] = {}
        """What was made in them since :meth:`vanished` was asked, and whether it is a folder."""
        self.has_news = False
        """Whether another collector has read that something changed here, which nothing else reports."""

    @property
    def descriptor(self) -> Optional[int]:
        """What is readable when something has changed; None where nothing is watched."""
        return self._shared.descriptor if self._watches else None

    def add(self, path: str) -> Optional[bool]:
        """Watch a folder; return whether it was not watched before, and None if it cannot be watched.

        What it held until now is not reported.
        """
        return self._add(path, _MADE | IN_MOVED_FROM | IN_MODIFY | IN_ONLYDIR)

    def add_file(self, path: str, events: int = IN_MODIFY) -> Optional[bool]:
        """Watch a file by itself, as :meth:`add` does a folder."""
        return self._add(path, events)

    def _add(self, path: str, events: int) -> Optional[bool]:
        if self._closed or len(self._watches) >= FOLDERS_LIMIT:
            return None
        watch = self._shared.add(self, path, events)
        if watch is None:
            return None
        is_new = watch not in self._watches
        self._watches.add(watch)
        if is_new and events & IN_ONLYDIR:
            self._paths[watch] = os.path.realpath(path)
        return is_new

    def note(self, watch: int, mask: int, name: str = "") -> None:
        """Take over what was read for it."""
        self.has_news = True
        self._made = self._made or not mask & (IN_MODIFY | IN_MOVED_FROM)
        if name and watch in self._paths:
            self._note_name(os.path.join(self._paths[watch], name), mask)
        if mask & IN_IGNORED:
            self._watches.discard(watch)
            self._paths.pop(watch, None)

    def _note_name(self, path: str, mask: int) -> None:
        if mask & IN_MOVED_FROM:
            self._names.pop(path, None)  # it is there under another name, which is reported by itself
        elif mask & _MADE and len(self._names) < NAMES_LIMIT:
            is_folder = bool(mask & IN_ISDIR)
            # One that is watched already was searched: it is reported late.
            if not is_folder or path not in self._paths.values():
                self._names[path] = is_folder

    def vanished(self) -> Dict[str, bool]:
        """Return what was made since the last call and is gone, unless it is a folder that was watched meanwhile.

        The values say whether it was a folder.
        """
        names, self._names = self._names, {}
        watched = set(self._paths.values()) if names else set()
        return {
            path: folder
            for path, folder in names.items()
            if path not in watched and not os.path.lexists(path)
        }

    def take(self) -> bool:
        """Whether anything was made since the last call; what was written only makes the descriptor readable."""
        self._shared.read()
        made, self._made, self.has_news = self._made, False, False
        return made

    def close(self) -> None:
        """Watch nothing any more."""
        self._closed = True
        self._shared.drop(self)
        self._watches.clear()
        self._paths.clear()
        self._names.clear()
