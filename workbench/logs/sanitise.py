r"""Makes output harmless for a terminal: colours stay, whatever else would drive it is taken out or shown.

Cursor movements, titles, clipboard writes, device strings and the like vanish with what they carry; single
control characters are shown (NUL as ``␀``); so are characters that turn the direction of writing. What is
left is text, newlines, tabs, SGR sequences (``ESC [ ... m``) and, where asked for, carriage returns.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

RESET: Final = "\x1b[0m"
"""Ends all colours."""

SGR: Final = re.compile(r"\x1b\[[0-9;:]*m")

_SEQUENCE_MAX: Final = 4096
"""An unfinished sequence that is longer is not a sequence."""

_SEQUENCES: Final = (
    r"(?P<sgr>\x1b\[[0-9;:]*m)"
    r"|(?P<drop>"
    # CSI, with a two-character or a one-character introducer.
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    # OSC, DCS, SOS, PM and APC with all that they carry, up to their end, else up to the end of the line.
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-Z\\^-~]"
    r")"
)
_CHARACTERS: Final = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_HARM: Final = re.compile(rf"{_SEQUENCES}|(?P<newline>\r\n)|(?P<control>{_CHARACTERS})")
_SPECIAL: Final = re.compile(_CHARACTERS)

_UNFINISHED: Final = re.compile(
    r"(?:\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c\n]*\x1b?)"
    r"|\x9b[0-?]*[ -/]*|[\x9d\x90\x98\x9e\x9f][^\x07\x1b\x9c\n]*\x1b?|\r)\Z"
)


def sanitise(text: str, *, returns: bool = False) -> str:
    """Return a text that cannot drive a terminal; ``returns`` keeps carriage returns."""
    if _SPECIAL.search(text) is None:
        return text
    return _HARM.sub(_keeping_returns if returns else _shown, text)


def plain(text: str) -> str:
    """Return a text without anything but characters: colours are taken out, too."""
    return SGR.sub("", sanitise(text))


class Sanitiser:
    """:func:`sanitise` for bytes that come in pieces, cut anywhere. Broken UTF-8 is replaced."""

    def __init__(self, *, returns: bool = True) -> None:
        self._returns = returns
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> bytes:
        """Take some bytes and return those that are known to be harmless now."""
        text = self._held + self._decoder.decode(data)
        self._held = ""
        tail = text[-_SEQUENCE_MAX:]
        unfinished = _UNFINISHED.search(tail)
        if unfinished and not (self._returns and unfinished[0] == "\r"):
            cut = len(text) - len(tail) + unfinished.start()
            text, self._held = text[:cut], text[cut:]
        return sanitise(text, returns=self._returns).encode()

    def finish(self) -> bytes:
        """Return what was held back."""
        text = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        return sanitise(text, returns=self._returns).encode()


def _shown(match: re.Match[str]) -> str:
    if match["sgr"] is not None:
        return match["sgr"]
    if match["drop"] is not None:
        return ""
    return "\n" if match["newline"] is not None else _picture(match["control"])


def _keeping_returns(match: re.Match[str]) -> str:
    if match["newline"] is not None:
        return match["newline"]
    return "\r" if match["control"] == "\r" else _shown(match)


def _picture(control: str) -> str:
    code = ord(control)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<{code:02X}>" if code < 0x100 else f"<U+{code:04X}>"
