"""Documents of schedules: runs that come again."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from workbench.documents.values import Id, Time


class ScheduledRun(TypedDict):
    """What became of one time of a schedule, or of several that were missed."""

    time: Time
    """When this was written down."""
    what: Literal["started", "skipped", "refused", "missed", "paused", "resumed"]
    due: Time | None
    """The time that it is about, of several the first; null where a person asked for the run."""
    jobs: list[Id]
    """The jobs that were started; of a skipped run the one that still went on."""
    count: int
    """How many times it is about; of those that were missed it may be more than one."""
    why: str


class ScheduleDocument(TypedDict):
    """A schedule: `fabric run --every --json`, `fabric schedule list --json`, `show --json` and what changes one."""

    schema: Literal["fabric.schedule/1"]
    id: str
    name: str
    state: Literal["ACTIVE", "PAUSED"]
    every: str
    """The cron expression, or a word such as `@daily`."""
    zone: str
    """The time zone that it counts in."""
    next: Time | None
    """When it comes next; null where it is paused."""
    last: Time | None
    """When a run was last started."""
    jobs: list[Id]
    """The jobs of that run."""
    missed: int
    """How many times were missed since then."""
    missed_since: Time | None
    """The first of these."""
    trouble: str
    """Why the last time that came started nothing: it was skipped, refused or missed; empty where it did."""
    folder: str
    """Where `fabric run` was called."""
    command: list[str]
    """As it was called."""
    created: Time
    runs: NotRequired[list[ScheduledRun]]
    """What became of its times, the newest first; only in `show`."""
