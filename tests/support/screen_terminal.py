"""A terminal that a test is at the other end of: it counts bytes, can be slow, and keeps what was written."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl

from rich.cells import cell_len

from tests.support.waiting import patience

ASKED, ANSWER = b"\x1b[6n", b"\x1b[1;1R"
"""The position of the cursor: what asks for it, and what every terminal answers."""
TRUE_COLOUR: Mapping[str, str] = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
"""The environment variables of a terminal of today."""
ENTRY = "import sys; from fabric_workbench import main; sys.exit(main())"


_PARTS = re.compile(
    r"\x1b\[(\d+)(?:;(\d+))?H|\x1b\[(\d+)C|\x1b\[(\d+)X|\x1b\[([\d;]*)m|"
    r"\x1b\[((?:\d+;\d+)?r|\d+[ML])|\x1b\[[<>?]?[\d;]*[$ ]?[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|([^\x1b])",
    re.DOTALL,
)
_UNENDED = re.compile(r"\x1b(\[[<>?]?[\d;]*[$ ]?|\][^\x07\x1b]*\x1b?)?$")


class Emulator:
    """A terminal that knows as much as is written to it: moves, colours and text."""

    def __init__(self, width: int, height: int) -> None:
        self.cells = [[(" ", "")] * width for _ in range(height)]
        self._x = self._y = 0
        self._margins = 0, height
        self._pen = ""
        self._unended = ""

    @property
    def text(self) -> str:
        """Return what is shown, without colours."""
        return "\n".join("".join(sign for sign, _ in line) for line in self.cells)

    def write(self, text: str) -> None:
        """Take what is written; an unended sequence waits for its end."""
        text = self._unended + text
        unended = _UNENDED.search(text)
        self._unended = unended[0] if unended else ""
        x, y, pen = self._x, self._y, self._pen
        for found in _PARTS.finditer(text.removesuffix(self._unended)):
            row, column, further, erased, codes, lines, sign = found.groups()
            if row:
                x, y = int(column or 1) - 1, int(row) - 1
            elif further:
                x = min(x + int(further), len(self.cells[0]) - 1)
            elif erased:
                end = min(x + int(erased), len(self.cells[0]))
                self.cells[y][x:end] = [(" ", _background(pen))] * (end - x)
            elif lines:
                x, y = self._move_lines(lines, x, y)
            elif sign == "\r":
                x = 0
            elif sign == "\n":
                y += 1
            elif sign:
                width = cell_len(sign)
                if not width and x:
                    self.cells[y][x - 1] = (self.cells[y][x - 1][0] + sign, self.cells[y][x - 1][1])
                for step in range(min(width, len(self.cells[0]) - x if y < len(self.cells) else 0)):
                    self.cells[y][x + step] = ("" if step else sign, _seen(sign, pen))
                x += width
            elif codes is not None:
                pen = _with(pen, codes)
        self._x, self._y, self._pen = x, y, pen

    def _move_lines(self, sequence: str, x: int, y: int) -> tuple[int, int]:
        """Set the margins, or delete or insert lines between them; return where the cursor is then."""
        if sequence.endswith("r"):
            top, bottom = (int(part) for part in (sequence[:-1] or f"1;{len(self.cells)}").split(";"))
            self._margins = top - 1, bottom
            return 0, 0
        count, (_, bottom) = int(sequence[:-1]), self._margins
        blank = [[(" ", "")] * len(self.cells[0]) for _ in range(count)]
        rows = self.cells[y:bottom]
        self.cells[y:bottom] = [*rows[count:], *blank] if sequence.endswith("M") else [*blank, *rows[:-count]]
        return 0, y


def _with(pen: str, codes: str) -> str:
    """Return a pen after the codes of one sequence: its attributes, colour and background."""
    parts: dict[str, str] = dict(part.split("=") for part in pen.split()) if pen else {}
    for code in (codes or "0").split(";"):
        if code == "0":
            parts = {}
        elif code.startswith("3"):
            parts["colour"] = code
        elif code.startswith("4") and len(code) == 2:
            parts["background"] = code
        else:
            parts["attribute" + code] = code
    kept = {name: code for name, code in parts.items() if code not in ("39", "49")}
    return " ".join(f"{name}={code}" for name, code in sorted(kept.items()))


def _background(pen: str) -> str:
    """Return the part of a pen with which a terminal fills what it erases."""
    return " ".join(part for part in pen.split() if part.startswith("background"))


def _seen(sign: str, pen: str) -> str:
    """Return what of a pen is seen: of a blank, its background, and what is drawn under or instead of it."""
    if sign != " " or "attribute4=" in pen or "attribute7=" in pen:
        return pen
    return _background(pen)


class PtyTerminal:
    """Runs a program on a terminal; with ``bytes_per_second`` and ``delay_seconds`` over a slow link."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        size: tuple[int, int] = (120, 40),
        *,
        bytes_per_second: float = 0.0,
        delay_seconds: float = 0.0,
        kind: Mapping[str, str] = TRUE_COLOUR,
    ) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.process = subprocess.Popen(
            list(argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, **kind},
            start_new_session=True,
        )
        os.close(slave)
        self.count = 0
        """How many bytes have arrived."""
        self.seen = bytearray()
        """What has arrived, of the last of it."""
        self._emulator = Emulator(*size)
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rate = bytes_per_second
        self._delay = delay_seconds
        self._typed: deque[tuple[float, bytes]] = deque()
        self._link: deque[tuple[float, bytes]] = deque()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        free_at = 0.0
        while not self._closed.is_set():
            now = time.monotonic()
            while self._link and self._link[0][0] <= now:
                self._arrive(self._link.popleft()[1])
            while self._typed and self._typed[0][0] <= now:
                os.write(self.master, self._typed.popleft()[1])
            if free_at > now:
                self._closed.wait(0.001)
                continue
            if not select.select([self.master], [], [], 0.005)[0]:
                continue
            try:
                data = os.read(self.master, 2048 if self._rate else 1 << 16)
            except OSError:
                return
            free_at = now + (len(data) / self._rate if self._rate else 0.0)
            self._link.append((free_at + self._delay, data))

    def _arrive(self, data: bytes) -> None:
        self.count += len(data)
        self.seen = (self.seen + data)[-(1 << 18) :]
        self._emulator.write(self._decode(data))
        for _ in range(data.count(ASKED)):
            self._typed.append((time.monotonic() + self._delay, ANSWER))

    @property
    def shown(self) -> str:
        """Return what is on the screen, as text."""
        return self._emulator.text

    def type(self, keys: bytes) -> None:
        """Press keys; over a slow link they arrive later."""
        self._typed.append((time.monotonic() + self._delay, keys))

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> float:
        """Wait until something holds, and return how long it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > patience(seconds):
                raise AssertionError(f"it never came; the screen is:\n{self.shown}")
            time.sleep(0.005)
        return time.monotonic() - began

    def until_quiet(self, quiet_seconds: float = 1.0, seconds: float = 60.0) -> None:
        """Wait until nothing is written for a while."""
        last, since = self.count, time.monotonic()

        def quiet() -> bool:
            nonlocal last, since
            if self.count != last:
                last, since = self.count, time.monotonic()
            return time.monotonic() - since > quiet_seconds

        self.until(quiet, seconds)

    def close(self) -> None:
        """End the program and the terminal."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._closed.set()
        self._thread.join(5)
        os.close(self.master)
