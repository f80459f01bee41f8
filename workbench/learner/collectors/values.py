"""Turns what training code reports into values that a record can hold: numbers, texts, steps and times."""

from __future__ import annotations

import json
import math
from typing import Any, Mapping, Union

from workbench.learner.texts import clean, expression

Number = Union[int, float, str, None]
"""A number as a record holds it: ``None`` is NaN, ``"inf"`` and ``"-inf"`` are infinities."""

Step = Union[int, float, None]
"""Where a point belongs: ``None`` where nothing says it; a fraction of an epoch is one, too."""

STEP_NAMES = ("iteration", "step", "global_step", "epoch", "tick")
"""What counts the steps of a point, the best first."""

TEXT_LIMIT = 1000
_EXACT = 1 << 53
_INT64 = 1 << 63
_LATEST_US = 253_402_300_799_999_999
"""The end of the year 9999."""
_GLOG = expression(r"[A-Z]?(\d\d)(\d\d)\s+(\d\d):(\d\d):(\d\d)(\.\d+)?\s*$")
_ISO = expression(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2}(?:[.,]\d{1,9})?)?\s*(Z|[-+]\d{2}:?\d{2})?\s*$",
)


def number(value: float) -> Number:
    """Return a number as a record holds it; integers that not every reader could hold become floats."""
    if isinstance(value, int):
        if -_EXACT <= value <= _EXACT:
            return int(value)
        try:
            value = float(value)
        except OverflowError:
            return "inf" if value > 0 else "-inf"
    if math.isfinite(value):
        return value
    if value != value:
        return None
    return "inf" if value > 0 else "-inf"


def parse_int(text: str) -> float:
    """Read an INT: decimal, ``0x`` hexadecimal, or a float that was printed where an integer was meant.

    Raises:
        ValueError: it is not a number.
    """
    try:
        return int(text)
    except ValueError:
        pass
    if "x" in text or "X" in text:
        return int(text, 16)
    return parse_float(text)


def parse_float(text: str) -> float:
    """Read a FLOAT; ``nan`` and ``inf`` in any spelling of Python's are floats.

    Raises:
        ValueError: it is not a number.
    """
    return float(text)


def typed(kind: Any, value: Any) -> Union[float, str]:
    """Read a value of one of FfDL's types: by name, or numbered from 0 (STRING, JSONSTRING, INT, FLOAT).

    Without a type a number is a number, and a text that reads as one is one too.

    Raises:
        ValueError: the value is not of its type.
    """
    if value is None:
        raise ValueError("no value")
    if isinstance(value, bool):
        return int(value)
    kind = kind if isinstance(kind, (str, int, float)) else ""
    kind = {0: "STRING", 1: "JSONSTRING", 2: "INT", 3: "FLOAT"}.get(kind, kind)
    kind = kind.upper() if isinstance(kind, str) else ""
    if kind == "STRING":
        return clipped(value)
    if kind == "JSONSTRING":
        return _from_json(value)
    if isinstance(value, (int, float)):
        return value
    if not isinstance(value, str):
        raise ValueError("not a value: %.40r" % (value,))
    if kind == "INT":
        return parse_int(value.strip())
    try:
        if kind or "_" not in value:  # Python reads 12_34 as a number
            return parse_float(value.strip())
    except ValueError:
        if kind:
            raise
    return clipped(value)


def clipped(value: Any) -> str:
    """Return it as text of bounded length that every reader can hold."""
    return clean(value if isinstance(value, str) else str(value), TEXT_LIMIT)


def _from_json(value: Any) -> Union[float, str]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return clipped(value)
    if isinstance(found, (int, float)):
        return found
    return clipped(found if isinstance(found, str) else value)


def step_of(etimes: Mapping[str, Any]) -> Step:
    """Choose what counts the steps among evaluation times, whole numbers first; None where nothing does.

    They are taken as they were reported: as records hold them (:func:`number`) large ones are rounded.
    """
    found = [step for step in (as_step(etimes.get(name)) for name in STEP_NAMES) if step is not None]
    return next((step for step in found if isinstance(step, int)), found[0] if found else None)


def as_step(value: Any) -> Step:
    """Return it as a step if it fits 64 bits: a whole number, or a fraction (of an epoch); else None."""
    if not isinstance(value, (int, float)) or not -_INT64 <= value < _INT64:  # also so for NaN
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else float(value)


def as_time_us(seconds: float, otherwise_us: int) -> int:
    """Return seconds since 1970 as microseconds; what is not a time of this world becomes ``otherwise_us``."""
    if 0 < seconds < 1e11:  # also false for NaN
        return int(seconds * 1e6)
    return otherwise_us


def parse_time(value: Any, otherwise_us: int) -> int:
    """Read a time (ISO 8601, glog's month and day, seconds or milliseconds since 1970) as microseconds.

    A time without a zone is local; a glog stamp has the year of ``otherwise_us``, which also stands for
    what is not a time.
    """
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return as_time_us(value / 1e3 if value > 1e11 else value, otherwise_us)
        text = str(value).strip()
        found = _iso(text) or _glog(text, otherwise_us) or parse_time(float(text), otherwise_us)
    except (ValueError, OverflowError, OSError):
        return otherwise_us
    return found if 0 < found <= _LATEST_US else otherwise_us


def _iso(text: str) -> int:
    match = _ISO.match(text)
    if match is None:
        return 0
    import datetime  # times that are printed are read by few learners

    day, minute, rest, zone = match.groups()
    second, _, fraction = (rest or ":00").replace(",", ".").partition(".")
    moment = datetime.datetime.strptime(day + " " + minute + second, "%Y-%m-%d %H:%M:%S")
    if zone:
        sign = -1 if zone[0] == "-" else 1
        digits = "0000" if zone == "Z" else zone[1:].replace(":", "")
        offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        moment = moment.replace(tzinfo=datetime.timezone(sign * offset))
    return int(moment.timestamp()) * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])


def _glog(text: str, otherwise_us: int) -> int:
    match = _GLOG.match(text)
    if match is None:
        return 0
    import datetime

    month, day, hour, minute, second = (int(part) for part in match.groups()[:5])
    printed = datetime.datetime.fromtimestamp(otherwise_us / 1e6)
    moment = printed.replace(month=month, day=day, hour=hour, minute=minute, second=second, microsecond=0)
    if moment - printed > datetime.timedelta(days=2):  # printed in January, stamped in December
        moment = moment.replace(year=moment.year - 1)
    return int((moment.timestamp() + float(match.group(6) or 0)) * 1e6)
