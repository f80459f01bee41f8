"""What the terminal is, and plain writing to it: narration on stderr, colour only where a person looks."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from workbench.terminal.harmless import write_controls

SGR = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "dim": "2",
    "bold": "1",
}

STATE_COLOURS = {
    "QUEUED": "yellow",
    "PENDING": "yellow",
    "DOWNLOADING": "blue",
    "PROCESSING": "cyan",
    "STORING": "blue",
    "COMPLETED": "green",
    "FAILED": "red",
    "HALTED": "magenta",
    "RUNNING": "cyan",
    "PAUSED": "magenta",
}


def is_terminal(stream: TextIO) -> bool:
    """Say whether a stream is a terminal; a closed one is not."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def person_present() -> bool:
    """Say whether somebody sits at a terminal: stdin or stderr is one, and ``CI`` is not set."""
    return not os.environ.get("CI") and (_stdin_is_terminal() or is_terminal(sys.stderr))


def has_colour(stream: TextIO) -> bool:
    """Say whether a stream shows colours: a terminal, unless ``NO_COLOR`` or ``TERM=dumb`` is set."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(text: str, name: str, stream: TextIO | None = None) -> str:
    """Return the text in a colour of :data:`SGR` where the stream (stderr if none is given) shows colours."""
    if name not in SGR or not has_colour(stream or sys.stderr):
        return text
    return f"\x1b[{SGR[name]}m{text}\x1b[0m"


def state_style(state: str, text: str | None = None, stream: TextIO | None = None) -> str:
    """Return a state's name, or a text, in that state's colour."""
    return style(state if text is None else text, STATE_COLOURS.get(state, ""), stream)


def narrate(text: str, *, has_controls: bool = False) -> None:
    """Write a line to stderr, as it is where it has controls of ours; nobody who reads it is not a failure."""
    try:
        if has_controls:
            write_controls(sys.stderr, text + "\n")
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def width(default: int = 100) -> int:
    """Return how many columns stdout has, ``default`` where it is not a terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or default
    except (OSError, ValueError):
        return default


def confirm(question: str, *, yes: bool) -> bool:
    """Ask a person; without one the answer must have been given by ``--yes``.

    Raises:
        UsageError: nobody can be asked and ``yes`` is false.
    """
    if yes:
        return True
    if not person_present() or not _stdin_is_terminal():
        from workbench.errors import UsageError

        raise UsageError(
            f"{question} There is no terminal to answer it.", hint="give --yes to skip the question"
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _stdin_is_terminal() -> bool:
    return sys.stdin is not None and is_terminal(sys.stdin)
