"""Times, sizes, counts and numbers as people read them, and as machines do. Pure: every module may import it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, overload

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


def short_duration(seconds: float) -> str:
    """Return a length of time in one unit, at most four characters wide: ``42s``, ``3m``, ``2h``, ``12d``."""
    whole = max(0, int(seconds))
    for length, unit in ((DAY * 365, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if whole >= length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


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


def clock_time(time_us: int, *, now_us: int | None = None) -> str:
    """Return a local time of day, ``14:05:09``; the date with it where ``now_us`` is on another day."""
    moment = time.localtime(time_us / MICROSECONDS)
    today = moment if now_us is None else time.localtime(now_us / MICROSECONDS)
    same_day = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", moment)


def clock_milliseconds(time_us: int) -> str:
    """Return a local time of day with milliseconds, 12 characters: ``14:05:09.123``."""
    seconds, rest = divmod(time_us, MICROSECONDS)
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{rest // 1000:03}"


def since_start(span_us: int) -> str:
    """Return a span since a start, 11 characters: ``+00:01:23.4``."""
    sign = "-" if span_us < 0 else "+"
    seconds, rest = divmod(abs(span_us), MICROSECONDS)
    return f"{sign}{seconds // HOUR:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest // 100_000}"


@overload
def iso(time_us: int) -> str: ...


@overload
def iso(time_us: None) -> None: ...


@overload
def iso(time_us: int | None) -> str | None: ...


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
    # Formatting a date for each of 10,000 jobs costs more than reading the jobs.
    return time.strftime("%Y-%m-%d", time.gmtime(day * DAY))


def size(count: float) -> str:
    """Return a number of bytes: ``512 B``, ``1.5 KiB``, ``8.0 GiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def short_size(count: float) -> str:
    """Return a number of bytes in at most four characters, for axes and narrow columns: ``512B``, ``1.5K``, ``80G``."""
    value, units = float(count), "BKMGT"
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1024, units[1:]
    if value == 0:
        return "0"
    return f"{value:.0f}{units[0]}" if units[0] == "B" or value >= 9.95 else f"{value:.1f}{units[0]}"


def percent(share: float) -> str:
    """Return a share as people read it, without a blank: ``12%``."""
    return f"{share:.0%}"


def number(value: float | None) -> str:
    """Return a measured value with six significant digits; None is ``nan``."""
    return "nan" if value is None else f"{value:.6g}"


def compact_number(value: float | None) -> str:
    """Return a measured value in few characters: ``0.1234``, ``1.2e-05``, ``12,345``, ``1.235M``; None is ``nan``."""
    if value is None or not math.isfinite(value):
        return number(value)
    rounded = float(f"{value:.4g}")
    if abs(rounded) < 1000 or abs(rounded) >= 1e15:
        return f"{value:.4g}"
    if abs(rounded) < 100_000:
        return f"{value:,.0f}" if abs(rounded) >= 10_000 else f"{value:.0f}"
    factor, sign = next(
        (f, s) for f, s in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(rounded) >= f
    )
    return f"{value / factor:.4g}{sign}"


def count(amount: int, noun: str, many: str = "") -> str:
    """Return a number with its noun: ``1 job``, ``10,000 jobs``; ``many`` is a plural of its own."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {many or noun + 's'}"


def code_progress(step: str, done: int, total: int) -> str:
    """Return how far the code of a job is taken: ``packs the code: 12 MiB of 50 MiB``."""
    if step == "look":
        return f"scanning the code: {count(done, 'entry', 'entries')} so far"
    return f"{step}s the code: {size(done)} of {size(total)}"


def short(text: str, columns: int) -> str:
    """Return one line of at most so many columns, an ellipsis at its end where something was cut."""
    line = " ".join(text.split())
    if len(line) <= columns:
        return line
    return line[: columns - 1].rstrip() + "…" if columns > 0 else ""


def printable(text: str) -> str:
    """Return a text on one line, without control or direction characters that would drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def json_value(value: Any) -> Any:  # any value that a document may hold
    """Return a value that JSON can hold: NaN is null, infinities are ``"inf"`` and ``"-inf"``."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value


def milliseconds(text: str) -> int:
    """Return a time as :func:`iso` writes it in milliseconds since 1970."""
    from datetime import datetime

    return round(datetime.fromisoformat(text).timestamp() * 1000)
