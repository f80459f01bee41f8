"""A regular expression that a user typed: it may be one that takes hours on an ordinary line.

Python's own module is fastest, but holds all other threads until it has ended. So it is used only where an
expression repeats nothing. All others are matched by the module ``regex``, which lets other threads run and ends
a match after a time; it is loaded when the first of them is used.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property, lru_cache
from typing import Any, AnyStr, Final, Generic

from workbench.errors import PatternTooSlow

SECONDS_MAX: Final = 2.0
"""Of the processor, for one match: in a block of 1 MiB, an ordinary expression takes hundredths of one."""

_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_REPEATS: Final = re.compile(r"[*+{]")
_BRANCHES: Final = re.compile(r"[?|]")
_BRANCHES_MAX: Final = 8
"""With so many ``?`` and ``|``, and nothing repeated, there are few ways to match."""
_TAKEN_OTHERWISE: Final = re.compile(r"(\\N\{[^}]*\}|\\.)|(\[\^?)\[(?=:)|\{(?![\d,])", re.DOTALL)
"""What means itself to Python, but something to ``regex``: ``{`` before no number, ``[:`` in a set."""
_FIELD_SECONDS_MAX: Final = 0.05
"""For a name, a note or a parameter: they are short, and a list has many of them."""


class _Failures(threading.local):
    """Errors of functions that SQLite calls: it reports that one failed, and drops what it raised."""

    too_slow: PatternTooSlow | None = None


_failures: Final = _Failures()


class TypedExpression(Generic[AnyStr]):
    """A regular expression over text or bytes, each of whose matches ends in time.

    Args:
        pattern: The expression, in Python's syntax.
        shown: The same as the user typed it, for the error.
        flags: ``re.IGNORECASE`` and ``re.MULTILINE``, or neither.

    Raises:
        re.error: it is not a regular expression; also RecursionError and OverflowError.
    """

    def __init__(self, pattern: AnyStr, *, shown: str, flags: int = 0) -> None:
        self.shown = shown
        self.flags = flags
        self._plain: re.Pattern[AnyStr] = re.compile(pattern, flags)
        text = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
        kept = _ESCAPED.sub("", text)
        self.may_run_on = bool(_REPEATS.search(kept)) or len(_BRANCHES.findall(kept)) > _BRANCHES_MAX
        """Whether there is a line on which it does not end."""

    @property
    def pattern(self) -> AnyStr:
        """The expression as it was given."""
        return self._plain.pattern

    def search(
        self,
        text: AnyStr | bytearray,
        start: int = 0,
        end: int | None = None,
        *,
        seconds: float | None = None,
    ) -> tuple[int, int] | None:
        """Return begin and end of the first match between two positions; None for none.

        Raises:
            PatternTooSlow: it was not found, nor known to be absent, within so many seconds of the processor,
                by default :data:`SECONDS_MAX`.
        """
        end = len(text) if end is None else end
        if not self.may_run_on:
            found = self._plain.search(text, start, end)  # type: ignore[arg-type] # a bytearray for bytes
            return found.span() if found else None
        try:
            hit = self._limited.search(text, start, end, concurrent=True, timeout=seconds or SECONDS_MAX)
        except TimeoutError:
            raise PatternTooSlow(self.shown) from None
        return hit.span() if hit else None

    def spans(self, text: AnyStr, *, seconds: float) -> list[tuple[int, int]]:
        """Return begin and end of all matches.

        Raises:
            PatternTooSlow: they were not found within so many seconds.
        """
        if not self.may_run_on:
            return [found.span() for found in self._plain.finditer(text)]
        try:
            found = self._limited.finditer(text, concurrent=True, timeout=seconds)
            return [hit.span() for hit in found]
        except TimeoutError:
            raise PatternTooSlow(self.shown) from None

    @cached_property
    def _limited(self) -> Any:
        import regex

        flags = regex.VERSION0
        flags |= regex.IGNORECASE if self.flags & re.IGNORECASE else 0
        flags |= regex.MULTILINE if self.flags & re.MULTILINE else 0
        pattern = self._plain.pattern
        text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
        text = _TAKEN_OTHERWISE.sub(_as_python_takes_it, text)
        return regex.compile(text if isinstance(pattern, str) else text.encode("latin-1"), flags)


def _as_python_takes_it(found: re.Match[str]) -> str:
    escape, set_start = found.groups()
    return escape or (f"{set_start}\\[" if set_start else "\\{")


@lru_cache(maxsize=64)
def expression_in_any_case(pattern: str) -> TypedExpression[str]:
    """Return the expression of a filter of jobs.

    Raises:
        re.error: it is not a regular expression; also RecursionError and OverflowError.
    """
    return TypedExpression(pattern, shown=pattern, flags=re.IGNORECASE)


def in_any_case(pattern: str, value: str) -> bool:
    """Say whether a job's name, note or another short value matches, whatever its capitals.

    Raises:
        PatternTooSlow: that is not known in time; within a query of SQLite see :func:`take_failure`.
    """
    try:
        return expression_in_any_case(pattern).search(value, seconds=_FIELD_SECONDS_MAX) is not None
    except PatternTooSlow as error:
        _failures.too_slow = error
        raise


def take_failure() -> PatternTooSlow | None:
    """Return which expression was given up last in this thread, once: SQLite drops what its functions raise."""
    error, _failures.too_slow = _failures.too_slow, None
    return error
