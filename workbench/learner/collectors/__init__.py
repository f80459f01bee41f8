"""Collectors turn a learner's output and files into records; :func:`make` gives those that a job asks for."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any, List, Mapping, Optional, Type

from workbench.learner.collectors.interface import Collector, Context, Record
from workbench.learner.collectors.plain import PlainCollector
from workbench.learner.collectors.report import ReportCollector
from workbench.learner.collectors.subprocess import Fence

__all__ = ["BUILT_IN", "SYNONYMS", "Collector", "Context", "Record", "canonical", "load", "make"]

BUILT_IN = {
    "plain": ("workbench.learner.collectors.plain", "PlainCollector"),
    "tensorboard": ("workbench.learner.collectors.tensorboard.collector", "TensorboardCollector"),
    "regex_extractor": ("workbench.learner.collectors.regex.collector", "RegexCollector"),
    "emetrics_file": ("workbench.learner.collectors.emetrics", "EmetricsCollector"),
}
"""Module and class of every collector of ours, imported only when asked for."""

SYNONYMS = {
    "": "plain",
    "none": "plain",
    "nil": "plain",
    "null": "plain",
    "logger": "plain",
    "tensorboard_extractor": "tensorboard",
    "file": "emetrics_file",
    "optivist": "emetrics_file",
}
"""FfDL's other names for them."""


def canonical(kind: Optional[str]) -> str:
    """Return our name for a collector that FfDL knows by this one; others stay as they are."""
    name = (kind or "").strip()
    return SYNONYMS.get(name.lower(), name)


def make(metrics: Optional[Mapping[str, Any]], context: Context) -> List[Collector]:
    """Make a learner's collectors: the one that ``evaluation_metrics`` name, and the one for ``report()``.

    One that cannot be made says so in a note, and the learner goes on without it. A collector that is not
    ours is named by ``metrics["collector"]``: ``{"module": ..., "class": ..., "path": [folders to import it
    from]}``.
    """
    metrics = metrics or {}
    kind = canonical(metrics.get("type"))
    return [
        Fence(kind, lambda: _collector(kind, metrics, context)),
        Fence(ReportCollector.name, lambda: ReportCollector(metrics, context)),
    ]


_HARMLESS = ("plain", "tensorboard", "emetrics_file")
"""Those that come to an end whatever they are told to look for."""


def _collector(kind: str, metrics: Mapping[str, Any], context: Context) -> Collector:
    if kind in _HARMLESS or threading.current_thread() is threading.main_thread():
        return load(kind, metrics)(metrics, context)
    from workbench.learner.collectors.subprocess import Apart

    return Apart(kind, metrics, context)


def load(kind: str, metrics: Mapping[str, Any]) -> Type[Collector]:
    """Return the class of a collector.

    Raises:
        ValueError: there is none of that name.
    """
    if kind == "plain":
        return PlainCollector
    if kind in BUILT_IN:
        module, name = BUILT_IN[kind]
    else:
        where = metrics.get("collector")
        if not where:
            raise ValueError(
                "there is no collector %r; those there are: %s" % (kind, ", ".join(sorted(BUILT_IN)))
            )
        sys.path.extend(folder for folder in where.get("path") or () if folder not in sys.path)
        module, name = where["module"], where["class"]
    found: Type[Collector] = getattr(importlib.import_module(module), name)
    return found
