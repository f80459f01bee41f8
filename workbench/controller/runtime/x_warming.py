"""Loads what the first job here will need, while the client that started the controller still prepares that job."""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Final

MODULES: Final = (
    "backends.local.backend",
    "backends.local.host",
    "runners.process.runner",
    "runners.shared.virtualenvs",
    "runners.shared.environment",
    "runners.process.plan",
    "runners.process.launch",
    "runners.process.observe",
    "workbench.learner.boot.archive",
    "workbench.metrics.ingestion",
)
"""Else a thread imports them once the job is there, with everybody waiting."""


def warm_up() -> threading.Thread:
    """Import them in a thread of its own; what cannot be imported is told by whoever needs it."""
    thread = threading.Thread(target=_import, name="warming up", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    for module in MODULES:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
