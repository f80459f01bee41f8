"""The grammar of filters: terms, joined by ``and``, ``or``, ``not`` and brackets; each is read into a tree.

::

    filter  = all {("or" | "|") all}
    all     = one {["and"] one}
    one     = {"not" | "!"} ("(" filter ")" | term)
    term    = name sign value | text

A sign is one of :data:`SIGNS`, with or without blanks around it. A name in quotes before a comparison is that of a
metric, whatever is in it. A value or text ends at a blank outside of
``"quotes"`` and ``/regular expressions/``. A bracket groups only where a term may begin, so a text may hold some.
What the terms mean is defined in ``where``.
"""

from __future__ import annotations

import re
from typing import Final

from workbench.errors import UsageError
from workbench.values import dataclass

SIGNS: Final = ("<=", ">=", "!=", "==", "<", ">", "=", ":")
"""What stands between a name and its value; the longer ones first."""

DEPTH_MAX: Final = 50
"""How many brackets may be open at a time."""

_SIGN: Final = re.compile("|".join(SIGNS))
_FUNCTION: Final = re.compile(r"(?:last|min|max)\((?:\s*\"[^\"]+\"\s*|[^()]*)\)", re.IGNORECASE)
_QUOTED: Final = re.compile(r"\"[^\"]+\"(?=\s*(?:[<>]|[=!]=|=))")
_NAME: Final = re.compile(rf"(?:{_FUNCTION.pattern}|(?:[^\s<>=!:\"]|!(?!=))+)", re.IGNORECASE)
_OR: Final = re.compile(r"or(?![^\s()])|\|\|?", re.IGNORECASE)
_AND: Final = re.compile(r"and(?![^\s()])|&&?(?=\s|$)", re.IGNORECASE)
_NOT: Final = re.compile(r"not(?![^\s()])|!(?!=)", re.IGNORECASE)


class WhereError(UsageError):
    """A filter that cannot be read; ``start`` and ``end`` say which part of its text is wrong."""

    def __init__(self, message: str, start: int, end: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = end


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """One condition as it was written."""

    start: int
    end: int
    name: str
    """What is compared; empty where the term is only a text."""
    sign: str
    """One of :data:`SIGNS`, or empty."""
    value: str
    """What it is compared with, or the text; quotes and slashes included."""


@dataclass(frozen=True, slots=True)
class Negation:
    """What must not hold."""

    start: int
    end: int
    inner: Node


@dataclass(frozen=True, slots=True)
class Junction:
    """Several of which all, or any, must hold."""

    start: int
    end: int
    word: str
    """``AND`` or ``OR``."""
    parts: tuple[Node, ...]


Node = FilterTerm | Negation | Junction


def read_filter(text: str) -> Junction:
    """Read a filter as the conditions that must all hold; there may be none.

    Raises:
        WhereError: says which part is wrong, and why.
    """
    reader = _Reader(text)
    if reader.is_done():
        return Junction(0, 0, "AND", ())
    found = reader.read_any()
    if not reader.is_done():
        raise WhereError(
            "there is no '(' for this ')'",
            reader.at,
            reader.at + 1,
            hint='to search for the text, put it in quotes: ")"',
        )
    if isinstance(found, Junction) and found.word == "AND" and found.parts[0].start == found.start:
        return found  # not in brackets
    return Junction(found.start, found.end, "AND", (found,))


class _Reader:
    """Reads from left to right; ``at`` is where the next sign or word starts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._depth = 0

    def is_done(self) -> bool:
        """Skip blanks, and say whether nothing follows."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at == len(self.text)

    def read_any(self) -> Node:
        """Read up to the end, or to the bracket that closes."""
        parts = [self._all()]
        while (word := self._word(_OR)) is not None:
            parts.append(self._all(word))
        return _joined("OR", parts)

    def _all(self, before: tuple[int, int] | None = None) -> Node:
        parts = [self._one(before)]
        while not self.is_done() and not self._closes() and not _OR.match(self.text, self.at):
            parts.append(self._one(self._word(_AND)))
        return _joined("AND", parts)

    def _one(self, before: tuple[int, int] | None) -> Node:
        """Read one condition; ``before`` is where the word stands that needs it."""
        self.is_done()
        start, inverse, ahead = self.at, False, before
        while (word := self._word(_NOT)) is not None:
            inverse, ahead = not inverse, word
        if (
            self.is_done()
            or self._closes()
            or _OR.match(self.text, self.at)
            or _AND.match(self.text, self.at)
        ):
            raise self._missing(ahead)
        found = self._group() if self.text[self.at] == "(" else self._term()
        return Negation(start, found.end, found) if inverse else found

    def _missing(self, ahead: tuple[int, int] | None) -> WhereError:
        start, end = ahead or (self.at, self.at + 1)
        word = self.text[start:end]
        if ahead is None and (found := _OR.match(self.text, start) or _AND.match(self.text, start)):
            word, end = found[0], found.end()
            return WhereError(f"a term is missing before {word!r}", start, end, hint=_quoting(word))
        if word == ")":
            return WhereError("a term is missing before ')'", start, end, hint="write (done or failed)")
        hint = "write !done or !tag:old" if word == "!" else _quoting(word)
        return WhereError(f"{word!r} must be followed by a term", start, end, hint=hint)

    def _group(self) -> Node:
        start = self.at
        if self._depth == DEPTH_MAX:
            raise WhereError(f"more than {DEPTH_MAX} brackets are open", start, start + 1)
        self.at += 1
        self._depth += 1
        if self.is_done():
            raise self._unclosed(start)
        found = self.read_any()
        if self.is_done():
            raise self._unclosed(start)
        self.at += 1
        self._depth -= 1
        word, parts = (found.word, found.parts) if isinstance(found, Junction) else ("AND", (found,))
        return Junction(start, self.at, word, parts)

    def _unclosed(self, start: int) -> WhereError:
        return WhereError(
            "( is not closed",
            start,
            len(self.text),
            hint="end it with ); to search for the text, put it in quotes",
        )

    def _term(self) -> FilterTerm:
        start = self.at
        name_end = self._name_end(start)
        sign = _SIGN.match(self.text, self._skip(name_end)) if name_end > start else None
        if sign is None:
            self.at = self._end_of_text(start, start)
            return FilterTerm(start, self.at, "", "", self.text[start : self.at])
        value_start = self._skip(sign.end())
        if value_start == len(self.text) or self.text[value_start] in "()":
            self.at = sign.end()
            return FilterTerm(start, self.at, self.text[start:name_end], sign[0], "")
        self.at = self._end_of_text(value_start, start)
        return FilterTerm(
            start, self.at, self.text[start:name_end], sign[0], self.text[value_start : self.at]
        )

    def _name_end(self, start: int) -> int:
        if quoted := _QUOTED.match(self.text, start):
            return quoted.end()
        if self.text[start] in '"/' or (found := _NAME.match(self.text, start)) is None:
            return start
        return min(found.end(), self._closing_bracket(start, found.end()))

    def _closing_bracket(self, start: int, end: int) -> int:
        """Return where the group ends that is open, if it does within a text; brackets within the text do not count."""
        inner = 0
        for at in range(start, end if self._depth else start):
            inner += {"(": 1, ")": -1}.get(self.text[at], 0)
            if inner < 0:
                return at
        return end

    def _end_of_text(self, start: int, term_start: int) -> int:
        closing, inner = "", 0
        function = _FUNCTION.match(self.text, start)  # a metric's name may have blanks in it
        at = function.end() if function else start
        while at < len(self.text):
            sign = self.text[at]
            if closing:
                if sign == closing and self.text[at - 1] != "\\":
                    closing = ""
            elif sign.isspace() or (sign == ")" and not inner and self._depth):
                break
            elif sign == '"' or (sign == "/" and (at == start or self.text[at - 1] in ":!|")):
                closing = sign
            else:
                inner = max(0, inner + {"(": 1, ")": -1}.get(sign, 0))
            at += 1
        if closing:
            raise WhereError(
                f"{closing} is not closed", term_start, len(self.text), hint=f"end it with {closing}"
            )
        while at - start > 1 and self.text[at - 1] == "|":
            at -= 1  # `a| b` is `a | b`
        return at

    def _word(self, pattern: re.Pattern[str]) -> tuple[int, int] | None:
        """Read a word that joins or negates; None where none is next."""
        if self.is_done() or (found := pattern.match(self.text, self.at)) is None:
            return None
        self.at = found.end()
        return found.span()

    def _closes(self) -> bool:
        """Say whether a closing bracket is next; outside of brackets only one that stands alone."""
        after = self.text[self.at + 1 : self.at + 2]
        return self.text[self.at] == ")" and bool(self._depth or not after.strip())

    def _skip(self, at: int) -> int:
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        return at


def _joined(word: str, parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Junction(parts[0].start, parts[-1].end, word, tuple(parts))


def _quoting(word: str) -> str:
    return f'to search for the word, put it in quotes: "{word}"'
