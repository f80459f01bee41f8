"""``controller.log``: what the controller has to say, line by line with its time, and not without end.

Whatever is written to the process's own stdout and stderr goes to the same file.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

ROTATE_BYTES: Final = 1 << 20
"""At this size the file becomes ``controller.log.1``, and the one of that name before it is gone."""


class ControllerLog:
    """Writes lines to a file; a disk that takes no more is not a reason to stop. Safe from all threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._descriptor = self._open()

    def say(self, text: str) -> None:
        """Write a line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        data = f"{stamp} [{os.getpid()}] {text}\n".encode(errors="replace")
        with self._lock:
            try:
                if os.fstat(self._descriptor).st_size + len(data) > ROTATE_BYTES:
                    self._rotate()
                os.write(self._descriptor, data)
            except OSError:
                return  # the disk is full, the home is gone or the log closed; the job's reason says so where it can

    def bug(self, where: str, error: BaseException) -> None:
        """Write down an error that should not be, and where it came from, without values of variables."""
        frames = []
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
            trace = trace.tb_next
        self.say(f"defect in {where}: {type(error).__name__}: {error} ({' < '.join(reversed(frames))})")

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1  # the number may be another file's soon, and a thread may have a line left

    def take_over_output(self) -> None:
        """Let stdout and stderr of this process go to the file, too."""
        with self._lock:
            self._point_output_here()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(self._file, flags, 0o600)
        except OSError:
            return os.open(os.devnull, flags & ~os.O_CREAT)

    def _rotate(self) -> None:
        shared = os.fstat(self._descriptor).st_ino == os.fstat(sys.__stderr__.fileno()).st_ino  # type: ignore[union-attr] # the controller has one
        self._file.rename(self._file.with_name(self._file.name + ".1"))
        os.close(self._descriptor)
        self._descriptor = self._open()
        if shared:
            self._point_output_here()

    def _point_output_here(self) -> None:
        for stream in (1, 2):
            os.dup2(self._descriptor, stream)
