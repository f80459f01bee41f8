"""Documents of logs and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from workbench.documents.values import Id, Measured, Reading, Time


class LineEntry(TypedDict):
    """One line of a log."""

    attempt: int
    learner: int
    time: Time
    text: str


class LogsDocument(TypedDict):
    """The log of one attempt: `fabric logs --json`."""

    schema: Literal["fabric.logs/1"]
    id: Id
    attempt: int
    lines: list[LineEntry]


class HitDocument(TypedDict):
    """A line that `fabric grep` found."""

    schema: Literal["fabric.hit/1"]
    id: Id
    name: str
    attempt: int
    learner: int
    offset: int
    """Of the line, in bytes."""
    text: str


class LogLineDocument(TypedDict):
    """A line of a log as FfDL gave it: `fabric loglines --json`."""

    schema: Literal["fabric.logline/1"]
    training_id: Id
    learner: int
    time: int
    """Milliseconds since 1970."""
    line: str
    rindex: int
    """Its number, from 1."""


class EmetricsDocument(TypedDict):
    """Metrics of one step as FfDL gave them: `fabric emetrics --json`."""

    schema: Literal["fabric.emetrics/1"]
    training_id: Id
    learner: int
    time: int
    """Milliseconds since 1970."""
    grouplabel: str
    etimes: Mapping[str, Reading]
    values: Mapping[str, Reading]
    rindex: int
    """Its number, from 1."""


class SeriesDocument(TypedDict):
    """One metric of one learner: `fabric metrics --latest --json`."""

    schema: Literal["fabric.series/1"]
    name: str
    learner: int
    kind: str
    """`value`, `etime` or `usage`."""
    points: int
    superseded: int
    """Points that a later attempt went over again."""
    last_step: Measured
    last_time: Time | None
    last: Measured
    minimum: Measured
    """The least finite value."""
    maximum: Measured


class MetricRowEntry(TypedDict):
    """The values of one step of one learner."""

    learner: int
    attempt: int
    step: Measured
    time: Time
    superseded: bool
    values: Mapping[str, Reading]
    texts: Mapping[str, str]
    """What was reported in words."""


class MetricsDocument(TypedDict):
    """All values that a job measured: `fabric metrics --json`."""

    schema: Literal["fabric.metrics/1"]
    id: Id
    series: list[SeriesDocument]
    columns: list[str]
    rows: list[MetricRowEntry]


class TriedDocument(TypedDict):
    """A line of a log with what a manifest extracts of it: `fabric metrics --try --json`."""

    schema: Literal["fabric.tried/1"]
    line: int
    text: str
    group: str | None
    """The group of expressions that matched."""
    values: dict[str, Any] | None
    step: Measured
    why: str | None
    """Why nothing was extracted."""


class RecognisedSeriesEntry(TypedDict):
    """A series that `auto` finds in a log."""

    name: str
    points: int
    last: Reading
    steps: list[Measured]
    """Of the first and the last point."""


class TryDocument(TypedDict):
    """The series that are recognised of themselves in a log: `fabric metrics --try auto LOG --json`."""

    schema: Literal["fabric.try/1"]
    series: list[RecognisedSeriesEntry]
