"""A signal at every change of a folder's entries: unlike an instance of inotify, a user has it without a limit."""

from __future__ import annotations

import os
import signal

from workbench.learner.platform import system

NUMBER = signal.SIGIO
"""The signal that is sent. Whoever asks for it handles it first: by itself it ends a process."""


def signal_changes(folder: int) -> bool:
    """Have :data:`NUMBER` sent when an entry of an open folder is made, renamed or removed, as long as it is open.

    Returns False where the system has no such signal, or not for this folder.
    """
    try:
        import fcntl

        if not system.reports_changes("/dev/fd/%d" % folder):
            return False
        events = fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_DELETE
        fcntl.fcntl(folder, fcntl.F_NOTIFY, events | fcntl.DN_MULTISHOT)
    except (AttributeError, OSError):
        return False
    return True


def open_signalling(path: str) -> int | None:
    """Open a folder that signals its changes; None where it cannot."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if signal_changes(folder):
        return folder
    os.close(folder)
    return None
