"""Watches folders for entries that are made in them, where the system reports changes."""

from __future__ import annotations

from typing import Optional, Set

from workbench.learner.platform.inotify import (
    IN_CREATE,
    IN_IGNORED,
    IN_MOVED_TO,
    IN_ONLYDIR,
    IN_Q_OVERFLOW,
    Inotify,
    open_inotify,
)

FOLDERS_LIMIT = 1024
"""More folders are not watched: a user's watches are limited."""

_MADE = IN_CREATE | IN_MOVED_TO


class FolderWatch:
    """Says whether anything was made in some folders. Those that cannot be watched are left to who searches them."""

    def __init__(self) -> None:
        self._inotify: Optional[Inotify] = None
        self._unavailable = False
        self._watches: Set[int] = set()

    @property
    def descriptor(self) -> Optional[int]:
        """What is readable when something was made; None where nothing is watched."""
        return None if self._inotify is None else self._inotify.fd

    def add(self, path: str) -> bool:
        """Watch a folder; return whether it was not watched before: what it held until now is not reported."""
        if self._inotify is None and not self._unavailable:
            self._inotify = open_inotify()
            self._unavailable = self._inotify is None
        if self._inotify is None or len(self._watches) >= FOLDERS_LIMIT:
            return False
        try:
            watch = self._inotify.add(path, _MADE | IN_ONLYDIR)
        except OSError:
            return False
        is_new = watch not in self._watches
        self._watches.add(watch)
        return is_new

    def take(self) -> bool:
        """Whether anything was made since the last call."""
        made = False
        if self._inotify is not None:
            for watch, mask, _name in self._inotify.read():
                made = made or bool(mask & (_MADE | IN_Q_OVERFLOW))
                if mask & IN_IGNORED:
                    self._watches.discard(watch)
        return made

    def close(self) -> None:
        """Watch nothing any more."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._unavailable = True
        self._watches.clear()
