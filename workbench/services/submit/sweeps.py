"""Lists and ranges in ``--set``: ``params.lr=0.1,0.01`` and ``params.seed=1..5`` start one job for each value.

A thousand of them at most are made at once. More are an array: a search with ``method: grid``, whose jobs are made when
their turn comes.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from workbench.errors import UsageError
from workbench.job import ID_ALPHABET
from workbench.manifest.builder.overlay import kind_at
from workbench.manifest.builder.overrides import ArrayValues
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.keys.scalars import Duration, Number, Size, WholeNumber
from workbench.manifest.keys.search_keys import POINTS_MAX
from workbench.services.filters import pointing

JOBS_MOST: Final = 1000
"""So many jobs are made at once; more are an array."""
ARRAY_MOST: Final = POINTS_MAX
"""So many jobs an array has at most."""
ARRAY_AT_ONCE: Final = 16
"""So many jobs of an array run at once where ``--at-most`` does not say."""

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
    if (total := _product_size(choices)) > JOBS_MOST:
        raise UsageError(
            f"these values make {total:,} jobs; at most {JOBS_MOST:,} are started at once",
            hint="`fabric run MANIFEST` starts more of them as an array",
        )
    return list(itertools.product(*choices))


def array_of(overrides: Sequence[str], at_most: int | None) -> ArrayValues | None:
    """Return what the jobs of an array differ in; None where they are few enough to be made at once.

    Its jobs come in the order of a sweep whose lists are sorted by name.

    Raises:
        UsageError: a list has an empty item, is of no parameter or given twice, or the jobs are too many for an
            array, too.
    """
    choices = [_choices(text) for text in overrides]
    total = _product_size(choices)
    if total <= JOBS_MOST:
        return None
    if total > ARRAY_MOST:
        raise UsageError(
            f"these values make {total:,} jobs; an array has at most {ARRAY_MOST:,}",
            hint="start a part of them, or a search with method: random",
        )
    paths = [text.partition("=")[0].strip() for text in overrides]
    tried: dict[str, list[str]] = {}
    for path, values in zip(paths, choices, strict=True):
        if len(values) == 1:
            continue
        if not path.startswith("params."):
            raise UsageError(
                f"--set {path}: only parameters have lists where there are more than {JOBS_MOST:,} jobs",
                hint=f"start them in parts of {JOBS_MOST:,}",
            )
        if paths.count(path) > 1:
            raise UsageError(f"--set {path} is given twice", hint="write its values as one list")
        tried[path.removeprefix("params.")] = [each.partition("=")[2] for each in values]
    return ArrayValues(tried, min(ARRAY_AT_ONCE if at_most is None else at_most, total))


def first_of(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides of the first job of a sweep."""
    return tuple(_choices(text)[0] for text in overrides)


def _product_size(choices: Sequence[Sequence[str]]) -> int:
    return math.prod(map(len, choices))


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
    if count > ARRAY_MOST:
        raise pointing(text, start, start + len(part), f"this range has {count:,} values")
    return [f"{(first + step * number).normalize():f}" for number in range(count)]
