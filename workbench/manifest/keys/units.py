"""Sizes and durations as people write them, with FfDL's meaning where FfDL had one."""

from __future__ import annotations

import re
from typing import Final

MEGABYTE: Final = 1_048_576
"""FfDL counted decimal megabytes and multiplied by 1024 x 1024, so ``1Gb`` is 1,048,576,000 bytes."""

SIZE_UNITS: Final = {
    "m": MEGABYTE,
    "g": 1000 * MEGABYTE,
    "t": 1_000_000 * MEGABYTE,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
DURATION_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

# Compiled when they are first used: few commands read a size, and all load this.
_SIZE: Final = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(m|g|t|mi|gi|ti)b?"
_NUMBER: Final = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_DURATION_PART: Final = (
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*"
    r"(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)(?![a-z])\s*"
)
_LONGEST: Final = 40
_SIZE_MAX: Final = 1 << 60
DURATION_MAX_SECONDS: Final = 10 * 365 * 86_400


def size_bytes(text: str) -> int:
    """Read a size such as ``1Gb``, ``1.5 GB``, ``8G`` or ``512MiB``.

    Raises:
        ValueError: it is none; the message says what was found and what would be right.
    """
    trimmed = text.strip()
    found = re.fullmatch(_SIZE, trimmed, re.IGNORECASE) if len(trimmed) <= _LONGEST else None
    if found is None:
        raise ValueError(_bad_size(trimmed))
    size = round(float(found[1]) * SIZE_UNITS[found[2].lower()])
    if not 0 < size <= _SIZE_MAX:
        raise ValueError(f"{trimmed} is not a size that a machine can have")
    return size


def _bad_size(text: str) -> str:
    if len(text) <= _LONGEST and re.fullmatch(_NUMBER, text):
        return _without_unit(text)
    return f"{_shown(text)} is not a size; write a number and a unit, such as 512MiB, 1Gb, 1.5GB, 8G or 16GiB"


def _without_unit(text: str) -> str:
    number = float(text)
    if number >= MEGABYTE:
        mebibytes = round(number / MEGABYTE)
        return (
            f"{text} has no unit; write {mebibytes}MiB if these are bytes, or {text}MB if these are megabytes"
            " (FfDL made 512 MB of it)"
        )
    return (
        f"{text} has no unit; write {text}MB if these are megabytes, or {text}GB if these are gigabytes"
        " (FfDL made 512 MB of it)"
    )


def duration_seconds(text: str) -> float:
    """Read a duration such as ``90``, ``90s``, ``1h30m`` or ``2 days``; a bare number is seconds.

    Raises:
        ValueError: it is none; the message says what was found and what would be right.
    """
    trimmed = text.strip().lower()
    seconds = _seconds(trimmed) if 0 < len(trimmed) <= _LONGEST else None
    if seconds is None:
        raise ValueError(f"{_shown(text)} is not a duration; write seconds, or such as 90s, 45m, 1h30m, 2d")
    if seconds > DURATION_MAX_SECONDS:
        raise ValueError(f"{_shown(text)} is longer than ten years")
    return seconds


def _seconds(text: str) -> float | None:
    if re.fullmatch(_NUMBER, text):
        return float(text)
    duration_part, total, position = re.compile(_DURATION_PART), 0.0, 0
    while position < len(text):
        part = duration_part.match(text, position)
        if part is None:
            return None
        total += float(part[1]) * DURATION_UNITS[part[2][0]]
        position = part.end()
    return total


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "...")
