"""Which collectors there are, by name, and how each is loaded."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Mapping, Optional, Type

from workbench.learner.collectors.interface import Collector
from workbench.learner.collectors.plain import PlainCollector

BUILT_IN = {
    "auto": ("workbench.learner.collectors.auto.collector", "AutoCollector"),
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
