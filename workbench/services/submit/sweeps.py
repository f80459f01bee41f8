"""Lists and ranges in ``--set``: ``params.lr=0.1,0.01`` and ``params.seed=1..5`` start one job for each value."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from workbench.errors import UsageError
from workbench.job import ID_ALPHABET
from workbench.services.filters import pointing

JOBS_MOST: Final = 1000
"""More than that at once is a mistake more often than a wish."""

_NUMBER: Final = r"-?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE: Final = rf"({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?"
_OPENING: Final = {"[": "]", "{": "}", "(": ")"}


def expanded(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the overrides of each job: the product of all lists, the last one changing first.

    Only parameters and keys that hold a number have lists; elsewhere a comma is a comma. A text with a comma is
    written in quotes.

    Raises:
        UsageError: a list has an empty item, a range never ends, or the jobs are too many.
    """
    choices = [_choices(text) for text in overrides]
    total = 1
    for each in choices:
        total *= len(each)
    if total > JOBS_MOST:
        raise UsageError(
            f"these values make {total:,} jobs; at most {JOBS_MOST:,} are started at once",
            hint="start a part of them, or an experiment",
        )
    return list(itertools.product(*choices))


def swept(overrides: Sequence[str], chosen: Sequence[str]) -> dict[str, Any]:
    """Return the values that a job of a sweep has of lists; its params are left out, which it has anyway."""
    pairs = zip(overrides, chosen, strict=True)
    parts = [own.partition("=") for text, own in pairs if len(_choices(text)) > 1]
    return {
        path.strip(): _number_or_text(value)
        for path, _, value in parts
        if not path.strip().startswith("params.")
    }


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text.strip()


def new_label() -> str:
    """Make the value of the label that jobs which are started together have in common."""
    return "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in os.urandom(6))


def _choices(text: str) -> list[str]:
    path, equals, value = text.partition("=")
    if not equals or not _takes_lists(path.strip()):
        return [text]
    offset = len(path) + 1
    parts = _parts(value)
    if len(parts) > 1:
        for start, part in parts:
            if not part.strip():
                position = offset + start
                raise pointing(
                    text, position, position + 1, "a value is missing", "write --set params.lr=0.1,0.01"
                )
    values = [each for start, part in parts for each in _ranged(text, offset + start, part)]
    return [f"{path}={each}" for each in values]


def _takes_lists(path: str) -> bool:
    if path.startswith("params."):
        return True
    from workbench.manifest.builder.overlay import kind_at
    from workbench.manifest.keys.root import MANIFEST
    from workbench.manifest.keys.scalars import Duration, Number, Size, WholeNumber

    return isinstance(kind_at(MANIFEST, path), (WholeNumber, Number, Size, Duration))


def _parts(value: str) -> list[tuple[int, str]]:
    """Split at commas that stand in no quotes and no brackets; name where each part begins."""
    parts: list[tuple[int, str]] = []
    begin, is_escaped = 0, False
    closing: list[str] = []
    for at, sign in enumerate(value):
        quote = closing[-1] if closing and closing[-1] in "\"'" else ""
        if is_escaped:
            is_escaped = False
        elif quote == '"' and sign == "\\":
            is_escaped = True
        elif closing and sign == closing[-1]:
            closing.pop()
        elif quote:
            continue
        elif sign in "\"'":
            closing.append(sign)
        elif sign in _OPENING:
            closing.append(_OPENING[sign])
        elif sign == "," and not closing:
            parts.append((begin, value[begin:at]))
            begin = at + 1
    return [*parts, (begin, value[begin:])]


def _ranged(text: str, start: int, part: str) -> list[str]:
    """Return the values of a range, both ends included; any other part is a value."""
    match = re.fullmatch(_RANGE, part.strip())
    if match is None:
        return [part]
    from decimal import Decimal

    first, last = Decimal(match[1]), Decimal(match[2])
    is_whole = first == first.to_integral_value() and last == last.to_integral_value()
    if match[3] is None and not is_whole:
        raise pointing(
            text, start, start + len(part), "a range of fractions needs a step", f"write {part}..0.1"
        )
    step = Decimal(match[3]) if match[3] else Decimal(1 if last >= first else -1)
    if step == 0 or (last - first) * step < 0:
        raise pointing(
            text,
            start,
            start + len(part),
            "this range never reaches its end",
            "write 1..5, 0..100..25 or 5..1",
        )
    count = int((last - first) / step) + 1
    if count > JOBS_MOST:
        raise pointing(text, start, start + len(part), f"this range has {count:,} values")
    return [f"{(first + step * number).normalize():f}" for number in range(count)]
