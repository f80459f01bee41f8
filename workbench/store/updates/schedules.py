"""Schedules as they are written: the file of each, and the history of what became of its times."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from workbench.clock import now_us
from workbench.errors import CannotWrite, InputMissing
from workbench.job import ID_PREFIX as JOB_PREFIX
from workbench.job import new_job_id
from workbench.paths import Home, make_private_folder, write_private
from workbench.store.db.errors import write_failure
from workbench.store.history.journal import append_line
from workbench.store.queries.schedules import FORMAT, SCHEDULE_PREFIX, ScheduleRow


def new_schedule_id() -> str:
    """Make a random id."""
    return SCHEDULE_PREFIX + new_job_id().removeprefix(JOB_PREFIX)


def write_schedule(home: Home, row: ScheduleRow) -> None:
    """Write a schedule's file, as a whole.

    Raises:
        CannotWrite: the home takes no more.
    """
    file = home.schedule(row.id).schedule_file
    document = {"format": FORMAT, **{each.name: getattr(row, each.name) for each in fields(row)}}
    beside = file.with_name(f"schedule.json.{os.getpid()}")
    try:
        make_private_folder(file.parent)
        write_private(beside, json.dumps(document, ensure_ascii=False), errors="surrogateescape")
        beside.replace(file)
    except OSError as error:
        raise write_failure(error, file) from error


def set_paused(home: Home, row: ScheduleRow, *, paused: bool, who: str) -> ScheduleRow:
    """Pause a schedule or let it go on; return it as it is then.

    Raises:
        CannotWrite: the home takes no more.
    """
    changed = replace(row, paused_us=now_us() if paused else None)
    record_run(home, row.id, {"do": "paused" if paused else "resumed", "who": who})
    write_schedule(home, changed)
    return changed


def remove_schedule(home: Home, row: ScheduleRow) -> None:
    """Remove a schedule with its history; jobs that it has started stay.

    Raises:
        CannotWrite: its folder cannot be removed.
    """
    folder = home.schedule(row.id)
    try:
        folder.schedule_file.unlink(missing_ok=True)  # from here on it is none
        shutil.rmtree(folder.path)
    except OSError as error:
        raise CannotWrite(f"{folder.path} cannot be removed: {error.strerror or error}") from error


def record_run(home: Home, schedule_id: str, event: Mapping[str, Any]) -> None:
    """Add an event to a schedule's history.

    ``do`` is one of: ``due`` (a time has come, ``due_us``, and its jobs are being made), ``started`` (``jobs``),
    ``skipped`` (the run before, ``job``, went on), ``refused`` (``why``), ``missed`` (``count`` times from
    ``first_us`` to ``last_us``, ``why``), ``paused`` and ``resumed`` (``who``).

    Raises:
        CannotWrite: the home takes no more.
        InputMissing: the schedule was deleted.
    """
    file = home.schedule(schedule_id).events
    if not file.parent.is_dir():
        raise InputMissing(f"{schedule_id} was deleted")
    append_line(home, file, {"time": now_us(), **event}, durable=True)
