"""Collectors turn a learner's output and files into records; :func:`make` gives those that a job asks for."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional

from workbench.learner.collectors.folder_watch import SharedInotify
from workbench.learner.collectors.interface import Collector, Context, Record
from workbench.learner.collectors.registry import BUILT_IN, SYNONYMS, canonical, load
from workbench.learner.collectors.report import ReportCollector
from workbench.learner.collectors.subprocess import FailsafeCollector, IsolatedCollector

__all__ = ["BUILT_IN", "SYNONYMS", "Collector", "Context", "Record", "canonical", "load", "make"]


def make(metrics: Optional[Mapping[str, Any]], context: Context, *, is_over: bool = False) -> List[Collector]:
    """Make a learner's collectors: the one that ``evaluation_metrics`` name, and the one for ``report()``.

    One that cannot be made says so in a note, and the learner goes on without it. A collector that is not
    ours is named by ``metrics["collector"]``: ``{"module": ..., "class": ..., "path": [folders to import it
    from]}``.

    Args:
        metrics: ``evaluation_metrics``.
        context: what they know of the learner.
        is_over: whether the learner has ended: what it wrote is read once, and nothing is watched.
    """
    metrics = metrics or {}
    context = context._replace(inotify=SharedInotify(is_over=is_over))
    kind = canonical(metrics.get("type"))
    return [
        FailsafeCollector(kind, lambda: _collector(kind, metrics, context)),
        FailsafeCollector(ReportCollector.name, lambda: ReportCollector(metrics, context)),
    ]


_BOUNDED = ("auto", "plain", "tensorboard", "emetrics_file")
"""Collectors whose run time is bounded whatever their settings: they need no process of their own."""


def _collector(kind: str, metrics: Mapping[str, Any], context: Context) -> Collector:
    if kind in _BOUNDED or _is_main_thread():
        return load(kind, metrics)(metrics, context)
    return IsolatedCollector(kind, metrics, context)


def _is_main_thread() -> bool:
    import threading  # most learners' scribes do without it

    return threading.current_thread() is threading.main_thread()
