"""Begins to reach a place while the job for it is still being prepared: one takes as long as the other."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from workbench.controller.runtime.connect import say
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

HEARD_WITHIN_SECONDS: Final = 5.0
"""How long a controller that is just being started may take to hear of it."""

HELD_SECONDS: Final = 10.0
"""How long a place is kept open for a job that does not come."""

_AGAIN_SECONDS: Final = 0.01


def request_prewarm(home: Home, place: TargetRef) -> None:
    """Tell the controller, in the background, that a job for a place is about to come; nobody waits for that."""
    threading.Thread(target=_tell, args=(home, asdict(place)), name="request prewarm", daemon=True).start()


def prewarm(place: Mapping[str, Any]) -> None:
    """Reach a place in the background, and keep it for a while. What fails is told by the job that comes."""
    ref = TargetRef(**place)
    threading.Thread(target=_open, args=(ref,), name=f"prewarm {ref.backend}", daemon=True).start()


def _tell(home: Home, place: Mapping[str, Any]) -> None:
    until = time.monotonic() + HEARD_WITHIN_SECONDS
    while say(home, "expect", place=place) is None and time.monotonic() < until:
        time.sleep(_AGAIN_SECONDS)


def _open(ref: TargetRef) -> None:
    from backends.contract.host import BackendOptions
    from backends.registry import load_backend
    from workbench.controller.runtime.connections import SHARED

    with contextlib.suppress(Exception):  # a plug-in's; the job's own launch meets it again and tells
        options = BackendOptions(ref.backend, ref.type, ref.address, ref.options)
        shared = SHARED.open(ref, load_backend(options))
        time.sleep(HELD_SECONDS)
        SHARED.close(shared)


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
"""Else a thread imports them once the job is there, with everybody waiting."""


def preload_modules() -> threading.Thread:
    """Import them in a thread of its own; what cannot be imported is told by whoever needs it."""
    thread = threading.Thread(target=_import, name="warming up", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    for module in PRELOADED_MODULES:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
