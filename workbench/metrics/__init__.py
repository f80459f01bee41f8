"""Metrics: from the records of learners to rows and roll-ups, and from there to charts and tables."""

from __future__ import annotations

from workbench.metrics.charting import buckets
from workbench.metrics.ingesting import ingest
from workbench.metrics.reading import (
    CheckpointRow,
    NoteRow,
    ProgressRow,
    UsageRow,
    checkpoints,
    last_step,
    latest,
    latest_of,
    notes,
    points,
    progress,
    series,
    texts,
    usage,
)
from workbench.metrics.table import MetricRow, Table, table

__all__ = [
    "CheckpointRow",
    "MetricRow",
    "NoteRow",
    "ProgressRow",
    "Table",
    "UsageRow",
    "buckets",
    "checkpoints",
    "ingest",
    "last_step",
    "latest",
    "latest_of",
    "notes",
    "points",
    "progress",
    "series",
    "table",
    "texts",
    "usage",
]
