"""Understands times as people write them, FfDL's spellings too: ``--since``, ``--begin`` and the dates of filters."""

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

_PERIOD: Final = re.compile(
    r"(?P<year>(?:19|20)\d\d)(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)"
    r"(?P<second>:\d\d)?(?P<zone>Z|[+-]\d\d:?\d\d)?)?)?)?",
    re.IGNORECASE | re.ASCII,
)

_FORMATS: Final = (
    "%a %b %d %H:%M:%S %Y",  # ANSI C, FfDL's ANSIC
    "%a %b %d %H:%M:%S %Z %Y",
    "%a %b %d %H:%M:%S %z %Y",
    "%d %b %y %H:%M %Z",
    "%d %b %y %H:%M %z",
)


_MINUTE_US: Final = 60_000_000

_FARTHEST_US: Final = 10 * 365 * 86_400_000_000

BEGIN_FORMS: Final = (
    "write such as 22:00, 10:30pm, 2026-12-24, 2026-12-24T08:00, 2026-12-24T08:00+01:00 or +2h"
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
        f"{text!r} is not a time",
        hint="for example 5m, 1h30m, 2026-01-31, 2026-01-31T15:04:05, '2 hours ago'",
    )


def period_us(text: str, now_us: int) -> tuple[int, int]:
    """Return when what a text stands for begins and ends, in microseconds since 1970, UTC.

    A year, a month, a day, ``today``, ``yesterday``, a minute and a second last; everything else that
    :func:`since_us` reads is a moment, which ends when it begins.

    Raises:
        UsageError: it stands for no time.
    """
    normalised = " ".join(text.split())
    if (lower := normalised.lower()) in ("today", "yesterday"):
        begin = since_us(lower, now_us)
        return begin, _us(_naive(begin) + timedelta(days=1))
    if (found := _PERIOD.fullmatch(normalised)) is not None:
        try:
            return _period(normalised, found)
        except (ValueError, OverflowError):
            pass  # there is no such day; the error of a moment says so
    moment = since_us(normalised, now_us)
    if (clock := _CLOCK.fullmatch(normalised)) is not None:
        return moment, moment + (1_000_000 if clock[3] else 60_000_000)
    return moment, moment


def begin_us(text: str, now_us: int) -> int:
    """Return when a job may begin, in microseconds since 1970, UTC, by a text such as ``22:00``.

    Clock times are the next such time, of this day or the next one. One that
    the clock skips when it is put forward counts an hour later, one that it shows twice is the first. A time
    without a zone is local, a day is its midnight. ``+2h`` counts from ``now_us`` on, and ``now`` is that.

    Raises:
        UsageError: it stands for no such time, or for one that is over or more than ten years ahead.
    """
    found = _begin(text, now_us)
    if found is None:
        raise UsageError(f"{_quoted(text)} is not a time to begin at", hint=BEGIN_FORMS)
    if found < now_us:
        raise UsageError(
            f"{_quoted(text)} is over", hint="name a time to come, or a clock time such as 22:00"
        )
    if found > now_us + _FARTHEST_US:
        raise UsageError(f"{_quoted(text)} is more than ten years ahead", hint=BEGIN_FORMS)
    return found


def is_begin(text: str) -> bool:
    """Return whether a text has a form that :func:`begin_us` reads, be that time over or not."""
    return _begin(text, 0) is not None


def _begin(text: str, now_us: int) -> int | None:
    normalised = " ".join(text.split())
    if normalised.lower() == "now":
        return now_us
    if normalised.startswith("+"):
        before = _duration(normalised[1:], now_us)
        return None if before is None else 2 * now_us - before
    clock = _clock(normalised, now_us)
    if clock is None:
        return _iso(normalised, now_us)
    wanted, today = _naive(clock).time(), _naive(now_us).date()
    found = _when_clocks_show(datetime.combine(today, wanted))
    if found > now_us:
        return found
    return _when_clocks_show(datetime.combine(today + timedelta(days=1), wanted))


def _when_clocks_show(moment: datetime) -> int:
    found = _us(moment)
    is_skipped = _naive(found) != moment
    return max(found, _us(moment.replace(fold=1))) if is_skipped else found


def local_iso(time_us: int) -> str:
    """Return a time in the local zone, to the second: ``2026-12-24T22:00:00+01:00``."""
    return _local(time_us).isoformat(timespec="seconds")


def iso_us(text: str) -> int | None:
    """Return the microseconds since 1970, UTC, of what :func:`local_iso` wrote; None where it is none."""
    return _iso(text, 0)


def until_text(text: str, now_us: int) -> str:
    """Return a time that :func:`local_iso` wrote for people, in its own zone: the date only where it is a day off."""
    moment = datetime.fromisoformat(text)
    day = "" if _us(moment) - now_us < 86_400_000_000 else "%Y-%m-%d "
    return moment.strftime(f"{day}%H:%M:%S" if moment.second else f"{day}%H:%M")


def about_text(time_us: int, now_us: int) -> str:
    """Return a time to come for people, as :func:`until_text` does, to the minute, rounded up."""
    return until_text(local_iso(-(-time_us // _MINUTE_US) * _MINUTE_US), now_us)


def _period(text: str, found: re.Match[str]) -> tuple[int, int]:
    if found["hour"] is not None:
        begin = _us(datetime.fromisoformat(text.replace("z", "Z")))
        return begin, begin + (1_000_000 if found["second"] else 60_000_000)
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    first = datetime(year, month, day)
    if found["day"]:
        after = first + timedelta(days=1)
    elif found["month"]:
        after = datetime(year + month // 12, month % 12 + 1, 1)
    else:
        after = datetime(year + 1, 1, 1)
    return _us(first), _us(after)


def _naive(time_us: int) -> datetime:
    """Return a time as local clocks show it, so that a day added to it ends at midnight when clocks change, too."""
    return _local(time_us).replace(tzinfo=None)


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


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _local(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, UTC).astimezone()


def _us(time: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is local."""
    moment = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return moment // timedelta(microseconds=1)
