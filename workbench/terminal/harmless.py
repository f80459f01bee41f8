r"""Keeps names and texts that others chose from controlling the terminal.

Jobs that were adopted or copied, hosts, files and training code bring texts of any kind, and a text with an escape
sequence could hide a line, forge one, or set the terminal's title. The streams of a command write such characters out
(``\x1b``), except in the colours of :mod:`workbench.terminal.console`. What has to control the terminal is written
with :func:`write_controls`.
"""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost `fabric --help` a quarter of its start
    from typing import Final, TextIO

_ESCAPE: Final = "\x1b"
_COLOURS: Final = tuple(f"[{code}m" for code in (0, 1, 2, *range(31, 37)))
_CONTROLS: Final = {
    code: f"\\x{code:02x}"
    for code in (*range(9), 11, 12, *range(14, 32), *range(0x7F, 0xA0))
    if chr(code) != _ESCAPE
}
_HARM: Final = f"[{''.join(map(chr, _CONTROLS))}]"


def harmless(text: str) -> str:
    """Return a text in which characters that control a terminal are written out; lines, tabs and our colours stay."""
    if text.isprintable():
        return text
    if _ESCAPE in text:
        first, *rest = text.split(_ESCAPE)
        text = first + "".join((_ESCAPE if part.startswith(_COLOURS) else "\\x1b") + part for part in rest)
    if "\r" in text:
        text = "\r\n".join(line.replace("\r", "\\x0d") for line in text.split("\r\n"))
    if text.isascii():
        return text.translate(_CONTROLS)
    import re  # translate is slow where a text has other letters, too

    return re.sub(_HARM, lambda match: _CONTROLS[ord(match.group())], text)


class HarmlessStream(io.TextIOWrapper):
    """A stream to which only :func:`write_controls` writes what controls a terminal."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=bool(stream.line_buffering),
        )
        self._stream = stream  # it would close the file when nothing keeps it

    def write(self, text: str) -> int:
        """Write a text, harmless."""
        super().write(harmless(text))
        return len(text)

    def write_as_is(self, text: str) -> None:
        """Write a text that may control the terminal."""
        super().write(text)


def make_streams_harmless() -> None:
    """Have this process print what it did not choose itself harmlessly."""
    sys.stdout, sys.stderr = (_harmless(stream) for stream in (sys.stdout, sys.stderr))


def write_controls(stream: TextIO, text: str) -> None:
    """Write a text that controls the terminal; what others chose of it must be :func:`harmless` before."""
    if isinstance(stream, HarmlessStream):
        stream.write_as_is(text)
    else:
        stream.write(text)


def _harmless(stream: TextIO) -> TextIO:
    if type(stream) is not io.TextIOWrapper:  # a test's, or one that is closed
        return stream
    return HarmlessStream(stream)
