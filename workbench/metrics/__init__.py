"""Metrics: from the records of learners to rows and roll-ups, and from there to charts and tables.

``ingestion`` writes what ``records`` and ``columns`` understood, ``rollup`` sums it up; ``queries``,
``chart_buckets``, ``chart_axis`` and ``table`` read it back; ``conditions`` judges values. Other packages import the
names below, and ``chart_axis``, ``conditions`` and ``columns``. It imports ``workbench.store``, ``workbench.clock``,
``workbench.metric_names`` and of ``workbench.learner`` how texts and values are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import offered

if TYPE_CHECKING:
    from workbench.metrics.chart_buckets import buckets as buckets
    from workbench.metrics.ingestion import ingest as ingest
    from workbench.metrics.queries import CheckpointRow as CheckpointRow
    from workbench.metrics.queries import NoteRow as NoteRow
    from workbench.metrics.queries import ProgressRow as ProgressRow
    from workbench.metrics.queries import UsageRow as UsageRow
    from workbench.metrics.queries import checkpoints as checkpoints
    from workbench.metrics.queries import last_step as last_step
    from workbench.metrics.queries import latest as latest
    from workbench.metrics.queries import latest_of as latest_of
    from workbench.metrics.queries import latest_texts as latest_texts
    from workbench.metrics.queries import notes as notes
    from workbench.metrics.queries import points as points
    from workbench.metrics.queries import progress as progress
    from workbench.metrics.queries import series as series
    from workbench.metrics.queries import texts as texts
    from workbench.metrics.queries import usage as usage
    from workbench.metrics.table import MetricRow as MetricRow
    from workbench.metrics.table import MetricTable as MetricTable

_READ = (
    "CheckpointRow NoteRow ProgressRow UsageRow checkpoints last_step latest latest_of latest_texts notes points "
    "progress series texts usage"
)
_HOMES = {
    "MetricRow": "table",
    "MetricTable": "table",
    "buckets": "chart_buckets",
    "ingest": "ingestion",
    **dict.fromkeys(_READ.split(), "queries"),
}
__all__ = sorted(_HOMES)

__getattr__ = offered(__name__, _HOMES)
