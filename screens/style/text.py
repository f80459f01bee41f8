"""Values as words: durations, ages, sizes, numbers, and texts from outside made harmless. Pure."""

from __future__ import annotations

import math
import time
from datetime import datetime

from screens.style.glyphs import glyphs

_SECOND_US = 1_000_000


def harmless(text: str) -> str:
    """Return a text on one line in which no control or direction character is left to drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else "�" for c in text)


def duration(seconds: float) -> str:
    """Say a span in at most two units: ``42 s``, ``3 m 07 s``, ``2 h 05 m``, ``3 d 04 h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {second:02} s"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minute:02} m"
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02} h"


def short_duration(seconds: float) -> str:
    """Say a span in one unit and at most four cells, for columns: ``42s``, ``3m``, ``2h``, ``12d``."""
    whole = max(0, int(seconds))
    for size, unit in ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def clock_time(time_us: int, *, now_us: int | None = None) -> str:
    """Say a time of day where the reader is; with the date when it is not today."""
    moment = datetime.fromtimestamp(time_us / _SECOND_US)
    today = datetime.fromtimestamp(now_us / _SECOND_US) if now_us is not None else moment
    return moment.strftime("%H:%M:%S" if moment.date() == today.date() else "%Y-%m-%d %H:%M")


def clock_milliseconds(time_us: int) -> str:
    """Say a time of day with milliseconds, 12 cells wide."""
    seconds, rest = divmod(time_us, _SECOND_US)
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{rest // 1000:03}"


def since_start(span_us: int) -> str:
    """Say a span since a start, 12 cells wide: ``+00:01:23.456``."""
    sign = "-" if span_us < 0 else "+"
    seconds, rest = divmod(abs(span_us), _SECOND_US)
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest // 100_000}"


def size(count: float) -> str:
    """Say a number of bytes: ``512 B``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def number(value: float | None) -> str:
    """Say a metric's value in at most nine cells: ``0.1234``, ``1.2e-05``, ``12,345``."""
    if value is None or math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    return f"{value:.4g}"


def count(amount: int, noun: str) -> str:
    """Say how many of a thing: ``1 job``, ``12,431 jobs``."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def shorten(text: str, width: int) -> str:
    """Cut a text that is wider than so many cells, and say that it was cut."""
    from rich.cells import set_cell_size

    if cells(text) <= width:
        return text
    return (set_cell_size(text, max(0, width - 1)) + glyphs().more) if width > 0 else ""


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
