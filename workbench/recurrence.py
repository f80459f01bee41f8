"""Times that come again: a cron expression in a time zone.

Imported only where a schedule is made, shown or due: the library for expressions would cost every command.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from workbench.errors import UsageError
from workbench.values import dataclass

WORDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FORMS: Final = (
    "five fields, minute hour day month weekday, such as '0 22 * * *'; or @hourly, @daily, @weekly, @monthly"
)
FIELDS: Final = 5
LOCALTIME: Final = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A cron expression in a zone.

    Where minute and hour are named, local clocks count: a time that they skip in spring comes right after, one that
    they show twice in autumn comes once. With ``*`` as the minute or the hour every hour that passes counts.
    """

    every: str
    """As a person wrote it."""
    zone: str
    """Of the IANA's names, such as ``Europe/Berlin``."""

    def next_after(self, time_us: int) -> int | None:
        """Return the first time after another one, both in microseconds since 1970, UTC; None where none comes.

        Raises:
            UsageError: the expression or the zone is none.
        """
        return next(iter(self.times(time_us, 1)), None)

    def times(self, after_us: int, at_most: int, until_us: int | None = None) -> list[int]:
        """Return the times after one and not later than another, in order, in microseconds since 1970, UTC.

        Raises:
            UsageError: the expression or the zone is none.
        """
        begin = datetime.fromtimestamp(after_us // 1_000_000, UTC).astimezone(zone_of(self.zone))
        try:
            simulated = CronSim(_expression(self.every), begin)
        except CronSimError as error:
            field = str(error).removeprefix("Bad ")
            raise UsageError(
                f"'{self.every}' is not a recurring time: see its {field}", hint=FORMS
            ) from error
        found: list[int] = []
        for moment in simulated:
            time_us = round(moment.timestamp()) * 1_000_000
            if until_us is not None and time_us > until_us:
                break
            # Where clocks go back, what begins within the second hour meets times of the first one.
            if time_us > after_us:
                found.append(time_us)
            if len(found) >= at_most:
                break
        return found


def recurrence(every: str, zone: str, now_us: int) -> Recurrence:
    """Return what a person asked for.

    Raises:
        UsageError: it is not an expression, or stands for no time to come.
    """
    text = " ".join(every.split())
    fields = text.split()
    if text.startswith("@") and text.lower() not in WORDS:
        raise UsageError(f"'{text}' is not a recurring time", hint=FORMS)
    if not text.startswith("@") and len(fields) != FIELDS:
        raise UsageError(
            f"'{text}' has {len(fields)} field{'' if len(fields) == 1 else 's'}, and a cron expression has five",
            hint=FORMS,
        )
    found = Recurrence(text, zone)
    if found.next_after(now_us) is None:
        raise UsageError(f"'{text}' never comes", hint=FORMS)
    return found


def _expression(every: str) -> str:
    """Return five fields, or six with seconds before them.

    A step over all values becomes one over a range: with a star cron lets such times come twice, or not at all, where
    clocks change.
    """
    fields = WORDS.get(every.lower(), every).split()
    for position, values in ((-5, "0-59"), (-4, "0-23")) if len(fields) >= FIELDS else ():
        fields[position] = re.sub(r"^\*(?=/0*(?:[2-9]|1\d))", values, fields[position])
    return " ".join(fields)


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises:
        UsageError: this machine knows none of that name.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise _unknown_zone(name) from error
    except KeyError as error:
        raise _unknown_zone(name) from error


def _unknown_zone(name: str) -> UsageError:
    return UsageError(
        f"this machine knows no time zone '{name}'",
        hint="TZ=Europe/Berlin before the command names one; the package tzdata has them all",
    )


def local_zone() -> str:
    """Return the name of this machine's time zone: of ``TZ``, else of ``/etc/localtime``; without both it is UTC.

    Raises:
        UsageError: it has no name.
    """
    if (given := os.environ.get("TZ")) is not None:
        return zone_of(given.removeprefix(":")).key if given else "UTC"
    if LOCALTIME.is_symlink():
        _, found, name = str(LOCALTIME.resolve()).partition("zoneinfo/")
        if found:
            return zone_of(name.removeprefix("posix/")).key
    try:
        if name := Path("/etc/timezone").read_text(encoding="utf-8").strip():
            return zone_of(name).key
    except OSError:
        pass
    if not LOCALTIME.exists():
        return "UTC"
    raise UsageError(
        "this machine's time zone has no name", hint="TZ=Europe/Berlin before the command names one"
    )
