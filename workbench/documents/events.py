"""Lines of JSON that commands print while they follow: each is a ``fabric.event/1`` of some kind."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from workbench.documents.jobs import HappeningFields, JobFields
from workbench.documents.values import Id, Measured, Time
from workbench.job import HistoryKind


class JobEvent(JobFields):
    """A job that has changed (`state`, `job`) or ended (`end`)."""

    schema: Literal["fabric.event/1"]
    event: Literal["state", "job", "end"]


class EndEvent(JobEvent):
    """The job that is followed has ended."""

    results: str
    """The folder of its results."""


class HappeningEvent(HappeningFields):
    """Something that happened to a job: `fabric events --follow`."""

    schema: Literal["fabric.event/1"]
    event: HistoryKind


class HistoryEvent(TypedDict):
    """Something that happened to the job that is followed."""

    schema: Literal["fabric.event/1"]
    event: HistoryKind
    id: Id
    time: Time
    text: str
    code: str
    who: str
    origin: str


class OutputEvent(TypedDict):
    """A line of output."""

    schema: Literal["fabric.event/1"]
    event: Literal["output"]
    attempt: int
    learner: int
    text: str
    time: NotRequired[Time]
    """With `fabric logs --follow`."""


class LogLineEvent(TypedDict):
    """A line of output as FfDL gave it: `fabric loglines --follow`."""

    schema: Literal["fabric.event/1"]
    event: Literal["output"]
    training_id: Id
    learner: int
    time: int
    """Milliseconds since 1970."""
    line: str
    rindex: int


class SeriesEvent(TypedDict):
    """The last value of a metric that has new ones."""

    schema: Literal["fabric.event/1"]
    event: Literal["metric"]
    learner: int
    name: str
    kind: str
    points: int
    step: Measured
    value: Measured
    time: Time | None


class PointEvent(TypedDict):
    """One value: `fabric metrics --follow`."""

    schema: Literal["fabric.event/1"]
    event: Literal["metric"]
    name: str
    value: Measured
    learner: int
    attempt: int
    step: Measured
    time: Time
    superseded: bool


class TextEvent(TypedDict):
    """How far data or results are (`progress`), or something that a person should know (`trouble`)."""

    schema: Literal["fabric.event/1"]
    event: Literal["progress", "trouble"]
    text: str


class ServingEvent(TypedDict):
    """A store that is served: `fabric store serve`."""

    schema: Literal["fabric.event/1"]
    event: Literal["serving"]
    address: str
    folder: str
    alias: str
    name: str
    user_name: str
    password: str
    containers: list[str]
    made: list[str]
    """The containers that were created."""


Event = (
    JobEvent
    | EndEvent
    | HappeningEvent
    | HistoryEvent
    | OutputEvent
    | LogLineEvent
    | SeriesEvent
    | PointEvent
    | TextEvent
    | ServingEvent
)
