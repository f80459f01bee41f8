r"""Makes texts harmless that training code and file names bring in: what no reader can hold is written out.

Python's texts may hold what no UTF-8 can: halves of surrogate pairs, which stand for the bytes of a file name that is
not UTF-8. Such characters, and those that control a terminal, become escapes that people know: ``\xe9``, ``\ud800``.
Runs wherever training code does, on Python 3.6 and later.
"""

import re

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Match, Pattern

NAME_LIMIT = 500
"""Characters of a name of a metric, a group or a GPU."""

DEPTH_LIMIT = 16
"""A list or an object that is nested deeper becomes a text."""

_HARM = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_HARM_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DIGEST_CHARACTERS = 12
_SHORT_DIGEST_BYTES = 3
_EXACT = 1 << 63
_KNOWN_LIMIT = 4096

_known: "dict[str, str]" = {}
"""Names that were cleaned before: the same few come again and again."""


class Expression:
    """A regular expression that is compiled when it is first used: most learners print nothing that needs it.

    It has the methods of a compiled one; :func:`expression` makes it.
    """

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> "Any":
        """Compile it, and keep the method that is asked for."""
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def expression(text: str, flags: int = 0) -> "Pattern[str]":
    """Return a regular expression that is compiled when it is first used."""
    made: "Any" = Expression(text, flags)
    lazy: "Pattern[str]" = made
    return lazy


def clean(text: str, limit: int = 0) -> str:
    """Return a text that every reader can hold, of at most ``limit`` characters if there is one.

    Newlines and tabs stay.
    """
    cleaned = _HARM.sub(_escape, text[:limit] if limit else text)
    return cleaned[:limit] if limit else cleaned


def clean_name(name: str) -> str:
    r"""Return a name that every reader can hold, in one line. Of a clean one nothing changes.

    Of one that is long, or in which something is written out, a digest keeps it apart from others: ``a`` and a NUL
    is ``a\x00-1f2e3d``, and not the name whose letters are ``a\x00``.
    """
    known = _known.get(name)
    if known is not None:
        return known
    cleaned = _HARM_IN_NAMES.sub(_escape, name)
    if len(name) > NAME_LIMIT:
        import hashlib  # it loads OpenSSL, which no other part of an agent needs

        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
        return "%s-%s" % (cleaned[: NAME_LIMIT - _DIGEST_CHARACTERS - 1], digest)
    if cleaned != name:
        digest = short_hash(name.encode("utf-8", "surrogatepass"), _SHORT_DIGEST_BYTES)
        cleaned = "%s-%s" % (cleaned[: NAME_LIMIT - 2 * _SHORT_DIGEST_BYTES - 1], digest)
    if len(_known) >= _KNOWN_LIMIT:
        _known.clear()
    _known[name] = cleaned
    return cleaned


def escaped(text: str) -> str:
    """Return a text of any length in one line: what would end it or control a terminal is written out."""
    return _HARM_IN_NAMES.sub(_escape, text)


def clean_json(value: "Any", limit: int = 0, depth: int = DEPTH_LIMIT) -> "Any":
    """Return a JSON value whose texts are clean, whose numbers fit, and that is not nested without end.

    NaN is None; infinities, and integers beyond 64 bits, are ``"inf"`` and ``"-inf"``, or floats.
    """
    if isinstance(value, str):
        return clean(value, limit)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, (dict, list, tuple)):
        if not depth:
            return "..."
        if isinstance(value, dict):
            return {clean_name(str(key)): clean_json(item, limit, depth - 1) for key, item in value.items()}
        return [clean_json(item, limit, depth - 1) for item in value]
    return clean(str(value), limit)


def _number(value: "Any") -> "Any":
    if isinstance(value, int):
        if -_EXACT <= value < _EXACT:
            return value
        try:
            return float(value)
        except OverflowError:
            return "inf" if value > 0 else "-inf"
    if value - value == 0:
        return value
    return None if value != value else "inf" if value > 0 else "-inf"


def _escape(match: "Match[str]") -> str:
    code = ord(match.group())
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name
        code -= 0xDC00
    return "\\x%02x" % code if code <= 0xFF else "\\u%04x" % code


def short_hash(data: bytes, size_bytes: int) -> str:
    """Return a hash of some bytes as hexadecimal digits, the same on every machine."""
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b  # loads OpenSSL: some megabytes and milliseconds of every learner
    return blake2b(data, digest_size=size_bytes).hexdigest()
