"""What a plain YAML scalar means by YAML 1.2's core schema, and how a text is written to be read back.

By these rules ``1e-5`` is a number, ``yes`` and ``off`` are texts, ``010`` is ten, ``0o10`` is eight, and
neither ``1:30`` nor ``2024-01-01`` is anything but a text.
"""

from __future__ import annotations

import re
from typing import Final

ScalarValue = None | bool | int | float | str

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMERIC_START: Final = frozenset("+-.0123456789")
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY: Final = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_NOT_A_NUMBER: Final = frozenset({".nan", ".NaN", ".NAN"})
_DIGITS_MAX: Final = 300
"""Longer ones are not numbers that a job could want, and Python refuses to read some thousand digits."""


def resolve(text: str) -> ScalarValue:
    """Return what a plain scalar stands for."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in _NUMERIC_START or len(text) > _DIGITS_MAX:
        return text
    return _number(text)


def _number(text: str) -> int | float | str:
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if found := _INFINITY.fullmatch(text):
        return float(found[1] + "inf")
    return float("nan") if text in _NOT_A_NUMBER else text


_PLAIN: Final = re.compile(
    r"[A-Za-z0-9_./$~(+-](?:[^\x00-\x1f\x7f-\x9f\ufeff\ud800-\udfff]*[^\x00-\x20\x7f-\xa0:])?"
)
_ESCAPED: Final = re.compile('[\\\\"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]')
_SHORT_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def written(text: str) -> str:
    """Write a text as one line of YAML that is read back as it: bare where it can be, else quoted."""
    bare = (
        _PLAIN.fullmatch(text)
        and ": " not in text
        and " #" not in text
        and not text.startswith(("- ", "---", "..."))
        and text not in ("-", "<<")
        and isinstance(resolve(text), str)
    )
    if bare:
        return text
    return '"' + _ESCAPED.sub(lambda found: _escape(found[0]), text) + '"'


def _escape(character: str) -> str:
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"
