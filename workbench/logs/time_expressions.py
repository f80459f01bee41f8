"""Understands ``--since``: how long ago, or a time, in today's spellings and FfDL's."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from workbench.errors import UsageError

_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0,
    "w": 604800.0,
}  # fmt: skip
_UNIT_NAMES: Final = {
    "second": 1.0, "sec": 1.0, "minute": 60.0, "min": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0,
    "month": 30 * 86400.0, "year": 365 * 86400.0, "millisecond": 1e-3,
}  # fmt: skip

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w)", re.ASCII)
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?|an?)\s*([a-z]+?)s?\s+ago", re.ASCII)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?", re.IGNORECASE | re.ASCII)

_FORMATS: Final = (
    "%a %b %d %H:%M:%S %Y",  # ANSI C, FfDL's ANSIC
    "%a %b %d %H:%M:%S %Z %Y",
    "%a %b %d %H:%M:%S %z %Y",
    "%d %b %y %H:%M %Z",
    "%d %b %y %H:%M %z",
)


def since_us(text: str, now_us: int) -> int:
    """Return the time that a text stands for, in microseconds since 1970, UTC.

    Durations (``5m``, ``1h30m``, ``2d``) are counted back from ``now_us``; so are ``N units ago``. Times are
    ISO 8601 (local without a zone), a day, a clock time of today, milliseconds since 1970 (a raw number of
    eleven digits or more; shorter ones are seconds ago), ``now``, ``today``, ``yesterday``, and the older
    spellings that FfDL took.

    Raises:
        UsageError: it stands for no time.
    """
    normalised = " ".join(text.split())
    for read in (_word, _duration, _ago, _number, _clock, _iso, _other):
        found = read(normalised, now_us)
        if found is not None:
            return found
    raise UsageError(
        f"{text!r} is no time", hint="for example 5m, 1h30m, 2026-01-31, 2026-01-31T15:04:05, '2 hours ago'"
    )


def _word(text: str, now_us: int) -> int | None:
    midnight = _local(now_us).replace(hour=0, minute=0, second=0, microsecond=0)
    match text.lower():
        case "now":
            return now_us
        case "today":
            return _us(midnight)
        case "yesterday":
            return _us(midnight - timedelta(days=1))
    return None


def _duration(text: str, now_us: int) -> int | None:
    body = text.lower().lstrip("-")
    parts = _DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        return None
    return now_us - round(sum(float(number) * _UNITS[unit] for number, unit in parts) * 1e6)


def _ago(text: str, now_us: int) -> int | None:
    found = _AGO.fullmatch(text.lower())
    seconds = _UNIT_NAMES.get(found[2], _UNITS.get(found[2])) if found else None
    if found is None or seconds is None:
        return None
    amount = 1.0 if found[1].startswith("a") else float(found[1])
    return now_us - round(amount * seconds * 1e6)


def _number(text: str, now_us: int) -> int | None:
    if not text.isascii() or not text.isdigit():
        return None
    return int(text) * 1000 if len(text) > 10 else now_us - int(text) * 1_000_000


def _clock(text: str, now_us: int) -> int | None:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if found[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found[4].lower() == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return _us(_local(now_us).replace(hour=hour, minute=minute, second=second, microsecond=0))


def _iso(text: str, now_us: int) -> int | None:
    try:
        return _us(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _other(text: str, now_us: int) -> int | None:
    from email.utils import parsedate_to_datetime

    try:
        return _us(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        pass
    for form in _FORMATS:
        try:
            return _us(datetime.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    return None


def _local(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, UTC).astimezone()


def _us(time: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is local."""
    moment = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return moment // timedelta(microseconds=1)
