"""Times, sizes and counts as people read them; machines read JSON."""

from __future__ import annotations

import time
from functools import cache

MICROSECONDS = 1_000_000
MINUTE, HOUR, DAY = 60, 3600, 86_400


def duration(seconds: float) -> str:
    """Return a length of time in at most two units: ``0.3 s``, ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def ago(time_us: int, now_us: int) -> str:
    """Return how long ago a time was, in one unit: ``12 s ago``."""
    seconds = max(0, now_us - time_us) // MICROSECONDS
    for unit, length in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def stamp(time_us: int) -> str:
    """Return a time in the local time zone: ``2026-03-01 14:05:09``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_us / MICROSECONDS))


def iso(time_us: int | None) -> str | None:
    """Return a time as machines read it: ISO 8601 in UTC with microseconds, or None."""
    if time_us is None:
        return None
    whole, rest = divmod(time_us, MICROSECONDS)
    day, second = divmod(whole, DAY)
    minute, second = divmod(second, MINUTE)
    return f"{_date(day)}T{minute // 60:02d}:{minute % 60:02d}:{second:02d}.{rest:06d}Z"


@cache
def _date(day: int) -> str:
    # Asking the system for each of 10,000 jobs' times costs more than reading them.
    return time.strftime("%Y-%m-%d", time.gmtime(day * DAY))


def size(count: int) -> str:
    """Return a number of bytes: ``512 B``, ``1.5 KiB``, ``8.0 GiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def number(value: float | None) -> str:
    """Return a measured value with six significant digits; None is ``nan``."""
    return "nan" if value is None else f"{value:.6g}"


def count(amount: int, noun: str, many: str = "") -> str:
    """Return a number with its noun: ``1 job``, ``10,000 jobs``; ``many`` is a plural of its own."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {many or noun + 's'}"


def short(text: str, columns: int) -> str:
    """Return one line of at most so many columns, an ellipsis at its end where something was cut."""
    line = " ".join(text.split())
    if len(line) <= columns:
        return line
    return line[: columns - 1].rstrip() + "…" if columns > 0 else ""


def milliseconds(text: str) -> int:
    """Return a time as :func:`iso` writes it in milliseconds since 1970."""
    from datetime import datetime

    return round(datetime.fromisoformat(text).timestamp() * 1000)
