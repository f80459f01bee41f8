"""A line at the foot of the terminal that is drawn again and again, and gives way to whatever is printed."""

from __future__ import annotations

import os
import sys

from workbench.formats import short
from workbench.terminal.console import is_terminal, narrate
from workbench.terminal.harmless import harmless, write_controls

CLEAR = "\r\x1b[K"


class StatusLine:
    """The line on stderr. Where stdout is a terminal too it is not drawn while a line of the job is open."""

    def __init__(self) -> None:
        self._shares_terminal = is_terminal(sys.stdout)
        self._shown = ""
        self._line_open = False

    def draw(self, text: str) -> None:
        """Show a text, cut to the width of the terminal."""
        line = short(harmless(text), _columns() - 1)
        if line == self._shown or (self._line_open and self._shares_terminal):
            return
        self._write(CLEAR + line)
        self._shown = line

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write(CLEAR)
            self._shown = ""

    def before_output(self, data: bytes) -> None:
        """Make room for output of the job that is about to be printed to stdout."""
        if self._shares_terminal:
            self.clear()
            self._line_open = not data.endswith(b"\n")

    def say(self, text: str) -> None:
        """Print a line of narration above."""
        self.clear()
        if self._line_open and self._shares_terminal:
            self._write("\n")
            self._line_open = False
        narrate(text)

    def _write(self, text: str) -> None:
        try:
            write_controls(sys.stderr, text)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except (OSError, ValueError):
        return 80
