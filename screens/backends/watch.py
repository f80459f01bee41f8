"""Asks every backend how it is, each in a worker of its own: one that hangs keeps only itself waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from textual.message import Message
from textual.screen import Screen
from textual.worker import get_current_worker

from backends.contract.host import BackendOptions
from screens.workers.background import post, start_loop
from workbench.clock import now_us
from workbench.services.backends.placement import entry_options
from workbench.services.backends.watch import BackendStatus, BackendWatch

EVERY_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5
PROBE_EVERY: Final = 15
"""What a backend lacks changes seldom: it is probed every so many times."""


class BackendAnswer(Message, bubble=False):
    """A backend has answered, or failed to."""

    def __init__(self, status: BackendStatus) -> None:
        super().__init__()
        self.status = status


class BackendAsked(Message, bubble=False):
    """A backend is being asked; until it answers, its last answer is as old as it is."""

    def __init__(self, name: str, time_us: int) -> None:
        super().__init__()
        self.name = name
        self.time_us = time_us


def watch_backends(
    screen: Screen[Any],
    backends: Mapping[str, Mapping[str, Any]],
    *,
    wanted: Callable[[float], bool] | None = None,
    slower: int = 1,
) -> None:
    """Ask the configured backends again and again until the screen goes; it is sent :class:`BackendAnswer`.

    Args:
        screen: Whom the answers are sent to.
        backends: Their entries in the configuration, by name.
        wanted: Says whether to ask again, given when it was asked last (``time.monotonic``), in another thread. With it
            backends are not probed for what they lack.
        slower: So many times :data:`EVERY_SECONDS` lie between two questions.
    """
    for entry in backends.values():
        options = entry_options(entry)
        start_loop(screen, f"backend {options.name}", partial(_watch, screen, options, wanted, slower))


def _watch(
    screen: Screen[Any], options: BackendOptions, wanted: Callable[[float], bool] | None, slower: int
) -> None:
    worker = get_current_worker()
    backend = BackendWatch(options, probes=wanted is None)
    asked = 0
    while not worker.is_cancelled:
        asked_at = time.monotonic()
        post(screen, BackendAsked(options.name, now_us()))
        for status in backend.ask(probe=asked % PROBE_EVERY == 0):
            if not worker.is_cancelled:
                post(screen, BackendAnswer(status))
        asked += 1
        worker.cancelled_event.wait(EVERY_SECONDS * slower)
        while wanted is not None and not worker.is_cancelled and not wanted(asked_at):
            worker.cancelled_event.wait(_LOOK_SECONDS)
    backend.close()
