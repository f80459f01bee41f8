"""Finds lines that match, in blocks of many lines at once: a loop over lines would cost ten times as much."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from workbench.errors import PatternTooSlow, UsageError
from workbench.expression import TypedExpression
from workbench.learner.journal.output_search import matching_lines, without_anything_first

_LONG_WORD: Final = 12
"""From here on looking for a word takes larger steps than the regular expression does."""
_HIGHLIGHT_SECONDS: Final = 0.02
"""For the highlights of one line: the thread that draws waits for them."""


class Pattern:
    """A regular expression or a plain text to find in lines, over bytes.

    Texts without capitals match in any case where ``smart_case`` is set. Whatever looks for a pattern raises
    :class:`PatternTooSlow` where it is an expression that takes too long.
    """

    def __init__(
        self, text: str, *, literal: bool = False, ignore_case: bool = False, smart_case: bool = False
    ) -> None:
        """Understand a pattern.

        Raises:
            UsageError: it is not a regular expression.
        """
        self.text = text
        self._is_unlit = False
        folded = ignore_case or (smart_case and text == text.lower())
        plain = literal or re.escape(text) == text
        self.is_expression = not plain
        """Whether it is a regular expression, which may look at each part of a line many times."""
        # Only what has no case at all is the same in bytes whatever the case.
        self._word = (
            text.encode("utf-8", "surrogateescape")
            if plain and (not folded or text.lower() == text.upper())
            else b""
        )
        if not literal:
            text = without_anything_first(text)
        flags = re.MULTILINE | (re.IGNORECASE if folded else 0)
        try:
            # Letters beyond ASCII have a case only in text: such a pattern is matched line by line there.
            expression = re.escape(text) if literal else text
            self._text = (
                TypedExpression(expression, shown=self.text, flags=flags) if _beyond(text, folded) else None
            )
            # A pattern typed in another encoding finds its own bytes.
            searched = expression.encode("utf-8", "surrogateescape")
            self._regex = TypedExpression(searched, shown=self.text, flags=flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(
                f"{text!r} is not a regular expression: {error}", hint="-F takes the text literally"
            ) from error

    def matches(self, line: bytes) -> bool:
        """Say whether one line, without its newline, matches."""
        if self._text is not None:
            return self._text.search(line.decode("utf-8", "replace")) is not None
        return self._word in line if self._word else self._regex.search(line) is not None

    def may_match(self, block: bytearray, end: int) -> bool:
        """Say whether some line before ``end`` may match; a block that has none need not be looked at closer."""
        if self._text is not None:
            return True
        if len(self._word) >= _LONG_WORD:
            return block.find(self._word, 0, end) >= 0
        return self._regex.search(block, 0, end) is not None

    def spans(self, block: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
        """Iterate over begin and end, without the newline, of each line that matches, from ``start`` to ``end``.

        Both are where lines begin, or the ends of the block.
        """
        length = len(block) if end is None else end
        is_match = None if self._word else self.matches
        return matching_lines(block, self._finder(block, length), is_match, start, length)

    def last_span(self, block: bytes) -> tuple[int, int] | None:
        """Return the last line of a block that matches."""
        found = None
        for found in self.spans(block):  # noqa: B007 - the last one is returned
            pass
        return found

    def highlights(self, text: str) -> list[tuple[int, int]]:
        """Return where a line's text matches, for showing; nowhere once that has taken too long."""
        if self._is_unlit:
            return []
        try:
            found = self._highlighter.spans(text, seconds=_HIGHLIGHT_SECONDS)
        except PatternTooSlow:
            self._is_unlit = True
            return []
        return [(start, end) for start, end in found if end > start]

    @cached_property
    def _highlighter(self) -> TypedExpression[str]:
        searched = self._regex.pattern.decode("utf-8", "surrogateescape")
        return self._text or TypedExpression(
            searched, shown=self.text, flags=self._regex.flags & re.IGNORECASE
        )

    def _finder(self, block: bytes, end: int) -> Callable[[int], int]:
        if word := self._word:
            return lambda position: block.find(word, position, end)
        if self._text is not None:
            return lambda position: position  # every line is asked
        search = self._regex.search

        def find(position: int) -> int:
            hit = search(block, position, end)
            return -1 if hit is None else hit[0]

        return find


def select(
    block: bytes, pattern: Pattern, *, invert: bool = False, start: int = 0, end: int | None = None
) -> bytes:
    """Return the lines that match, or those that do not, of a block or of a part of it that is whole lines."""
    end = len(block) if end is None else end
    kept: list[bytes] = []
    if invert:
        for begin, stop in pattern.spans(block, start, end):
            kept.append(block[start:begin])
            start = stop + 1
        kept.append(block[start:end])
        return b"".join(kept)
    # Neighbouring lines are taken at once.
    first = last = start
    for begin, stop in pattern.spans(block, start, end):
        if begin != last:
            kept.append(block[first:last])
            first = begin
        last = min(stop + 1, end)
    kept.append(block[first:last])
    return b"".join(kept)


def _beyond(text: str, folded: bool) -> bool:
    return folded and not text.isascii()
