"""Opens the connection to a target while the job for it is still being prepared: both take about as long."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Mapping
from typing import Any, Final

from workbench.store.db.rows import TargetRef


def prewarm(target: Mapping[str, Any]) -> None:
    """Open the connection to a target in the background, and keep it for a while.

    A failure is not reported: the job's own launch meets it again. ``target`` has the fields of a ``TargetRef``.
    """
    ref = TargetRef(**target)
    threading.Thread(target=_open, args=(ref,), name=f"prewarm {ref.backend}", daemon=True).start()


def _open(ref: TargetRef) -> None:
    from backends.contract.host import BackendOptions
    from backends.registry import load_backend
    from workbench.controller.runtime.connections import SHARED

    with contextlib.suppress(Exception):  # a plug-in's; the job's own launch meets it again and reports it
        options = BackendOptions.of(ref)
        SHARED.close_later(SHARED.open(ref, load_backend(options)))


PRELOADED_MODULES: Final = (
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
"""Modules that would else be imported once a job has come, which then waits for them."""


def preload_modules() -> threading.Thread:
    """Import the modules in a thread of its own; a failure is reported by whatever needs the module."""
    thread = threading.Thread(target=_import, name="preload", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    for module in PRELOADED_MODULES:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
