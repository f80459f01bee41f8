"""Metrics: from the records of learners to rows and roll-ups, and from there to charts and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import offered

if TYPE_CHECKING:
    from workbench.metrics.charting import buckets as buckets
    from workbench.metrics.ingesting import ingest as ingest
    from workbench.metrics.reading import CheckpointRow as CheckpointRow
    from workbench.metrics.reading import NoteRow as NoteRow
    from workbench.metrics.reading import ProgressRow as ProgressRow
    from workbench.metrics.reading import UsageRow as UsageRow
    from workbench.metrics.reading import checkpoints as checkpoints
    from workbench.metrics.reading import last_step as last_step
    from workbench.metrics.reading import latest as latest
    from workbench.metrics.reading import latest_of as latest_of
    from workbench.metrics.reading import notes as notes
    from workbench.metrics.reading import points as points
    from workbench.metrics.reading import progress as progress
    from workbench.metrics.reading import series as series
    from workbench.metrics.reading import texts as texts
    from workbench.metrics.reading import usage as usage
    from workbench.metrics.table import MetricRow as MetricRow
    from workbench.metrics.table import Table as Table

_READ = (
    "CheckpointRow NoteRow ProgressRow UsageRow checkpoints last_step latest latest_of notes points progress series "
    "texts usage"
)
_HOMES = {
    "MetricRow": "table",
    "Table": "table",
    "buckets": "charting",
    "ingest": "ingesting",
    **dict.fromkeys(_READ.split(), "reading"),
}
__all__ = sorted(_HOMES)

__getattr__ = offered(__name__, _HOMES)
