"""Schedules as they are read: what is started again and again, and what became of each time.

Files are all that there is of them: ``schedules/<id>/schedule.json`` says what is started and when, ``events.jsonl``
what happened. A schedule has no row: there are few, and a list of them reads one small file each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from workbench.errors import ConfigError, InputMissing, UnknownName
from workbench.paths import Home
from workbench.values import dataclass

FORMAT: Final = 1
SCHEDULE_PREFIX: Final = "schedule-"
SCHEDULE_LABEL: Final = "schedule"
"""The label of every job that a schedule has started; its value is :attr:`ScheduleRow.nine`."""
RECENT_BYTES: Final = 256 << 10
"""So much of a history's end says how a schedule stands: some 2,000 events."""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule, as its file says."""

    id: str
    name: str
    every: str
    """A cron expression, as a person wrote it."""
    zone: str
    """The time zone that it counts in."""
    folder: str
    """Where `fabric run` was called: paths count from there."""
    options: Mapping[str, Any]
    """The options of the run; it has no secret in it."""
    environment: Mapping[str, str]
    """The variables that a run is prepared with; no secret is among them."""
    who: str
    created_us: int
    paused_us: int | None = None
    """Since when it has been paused; None where it is active."""

    @property
    def nine(self) -> str:
        """The characters that stand for it where space is short."""
        return self.id.removeprefix(SCHEDULE_PREFIX)


def read_schedule(home: Home, schedule_id: str) -> ScheduleRow:
    """Read a schedule's file.

    Raises:
        InputMissing: it is gone, or is none.
        ConfigError: a newer version of fabric has written it.
    """
    file = home.schedule(schedule_id).schedule_file
    try:
        document = json.loads(file.read_bytes())
        found = int(document["format"])
        if found > FORMAT:
            raise ConfigError(
                f"schedule {schedule_id} was made by a newer version of fabric (format {found})",
                hint="use that version, or delete it and make it again",
            )
        return ScheduleRow(**{each.name: document[each.name] for each in fields(ScheduleRow)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputMissing(f"{file} cannot be read: {error}") from error


def schedule_ids(home: Home) -> list[str]:
    """List the ids of all schedules; the file of one may be unreadable."""
    try:
        with os.scandir(home.schedules) as entries:
            names = [each.name for each in entries if each.name.startswith(SCHEDULE_PREFIX)]
    except FileNotFoundError:
        return []
    return sorted(name for name in names if home.schedule(name).schedule_file.exists())


def schedules(home: Home) -> tuple[list[ScheduleRow], list[str]]:
    """Return all schedules, the newest first, and why others cannot be read."""
    rows, faults = [], []
    for schedule_id in schedule_ids(home):
        try:
            rows.append(read_schedule(home, schedule_id))
        except (InputMissing, ConfigError) as error:
            faults.append(str(error))
    return sorted(rows, key=lambda row: row.created_us, reverse=True), faults


def resolve_schedule(home: Home, text: str) -> ScheduleRow:
    """Return the schedule that a person means: by its id, a beginning of it, its name, or ``@last``.

    Raises:
        UnknownName: there is none, or there are several.
    """
    known, faults = schedules(home)
    nine = text.removeprefix(SCHEDULE_PREFIX)
    found = [one for one in known if one.nine == nine]
    if text == "@last":
        found = known[:1]
    found = found or [one for one in known if nine and one.nine.startswith(nine)]
    found = found or [one for one in known if one.name == text]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.nine for one in found[:5])
        raise UnknownName(f"'{text}' could be {names}", hint="name one of them by its id")
    why = "; ".join(faults)
    raise UnknownName(
        f"there is no schedule '{text}'", hint=why or "`fabric schedule list` shows those there are"
    )


def runs_of(home: Home, schedule_id: str, *, everything: bool = False) -> list[dict[str, Any]]:
    """Return the events of a schedule in order: the recent ones, or all; a line that makes no sense is left out."""
    try:
        with home.schedule(schedule_id).events.open("rb") as stream:
            if not everything:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - RECENT_BYTES))
                if size > RECENT_BYTES:
                    stream.readline()
            lines = stream.read().splitlines()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event["do"], str) and isinstance(event["time"], int):
                found.append(event)
        except (ValueError, KeyError):
            continue
    return found


def dealt_with_us(row: ScheduleRow, events: Sequence[Mapping[str, Any]]) -> int:
    """Return up to when a schedule's times have been dealt with: the next one comes after that."""
    times = [row.created_us]
    for event in events:
        if event["do"] == "due":
            times.append(int(event["due_us"]))
        elif event["do"] == "missed":
            times.append(int(event["last_us"]))
        elif event["do"] == "resumed":
            times.append(int(event["time"]))
    return max(times)


def undecided(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the time that has come last where nothing says what became of it."""
    about_a_time = [event for event in events if event.get("due_us") is not None or event["do"] == "missed"]
    return about_a_time[-1] if about_a_time and about_a_time[-1]["do"] == "due" else None


def has_active_schedules(home: Home) -> bool:
    """Say whether a controller has times to wait for."""
    return any(row.paused_us is None for row in schedules(home)[0])
