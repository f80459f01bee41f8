"""A command on a terminal of its own: what it draws there, keys that are pressed, a terminal that goes away."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

from tests.support.command import EXECUTABLE
from tests.support.waiting import patience

PROMPT = b"ready: "


class OnTerminal:
    """``fabric`` as the leader of a session whose terminal we hold the other side of."""

    def __init__(self, folder: Path, *args: str, columns: int = 100, **options: Any) -> None:
        self._main, side = os.openpty()
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        streams: dict[str, Any] = {"stdin": side, "stdout": side, "stderr": side, **options}
        self.process = subprocess.Popen(
            [EXECUTABLE, *args],
            cwd=folder,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(streams["stderr"], termios.TIOCSCTTY, 0) and None,
            **streams,
        )
        os.close(side)
        self.shown = b""

    def press(self, keys: bytes) -> None:
        """Type something; ``\\x03`` is ctrl-c."""
        os.write(self._main, keys)

    def know_the_prompt(self) -> None:
        """Give the shell a prompt of ours: what is typed ahead of one it may take for its end, and leave."""
        self.press(b"PS1='rea''dy: '\r")
        self.read_until(PROMPT)

    def ask(self, command: bytes) -> bytes:
        """Type a command for that shell; return what is shown until it is ready again."""
        self.shown = b""
        self.press(command + b"\r")
        return self.read_until(PROMPT)

    def resize(self, rows: int, columns: int) -> None:
        """Make the terminal another size, as a window that is dragged."""
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Take the terminal away."""
        os.close(self._main)
        self._main = -1

    def read_until(self, text: bytes, seconds: float = 60.0) -> bytes:
        """Read what is drawn until a text has been; return all that was drawn so far."""
        deadline = time.monotonic() + patience(seconds)
        while text not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0, f"waited {seconds} s for {text!r}, seen {self.shown[-2000:]!r}"
            assert self._read(left), f"it ended before {text!r}, seen {self.shown[-2000:]!r}"
        return self.shown

    def wait(self, seconds: float = 60.0) -> int:
        """Read to the end and return the exit code."""
        while self._main >= 0 and self._read(patience(seconds)):
            pass
        code = self.process.wait(patience(seconds))
        if self._main >= 0:
            os.close(self._main)
            self._main = -1
        return code

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # nobody has the other side open any more
            return False
        self.shown += data
        return bool(data)
