"""Asks every place how it is, each in a thread of its own: one that hangs keeps only itself waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from textual.message import Message

from backends.interface import BackendOptions, Finding, Inventory
from screens.reader import Receiver, post
from workbench.clock import now_us
from workbench.errors import FabricError

EVERY_SECONDS: Final = 2.0
PROBE_EVERY: Final = 15
"""What a place lacks changes seldom: it is looked for every so many times."""


@dataclass(frozen=True, slots=True)
class PlaceSeen:
    """How a place was found."""

    name: str
    type: str
    inventory: Inventory | None
    """None when it did not answer; ``trouble`` says why."""
    trouble: str
    hint: str
    latency_seconds: float
    findings: tuple[Finding, ...]
    seen_us: int


class PlaceAnswer(Message, bubble=False):
    """A place has answered, or failed to."""

    def __init__(self, seen: PlaceSeen) -> None:
        super().__init__()
        self.seen = seen


class PlaceWatch:
    """Watches places until it is closed."""

    def __init__(self, receiver: Receiver, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._receiver = receiver
        self._every_seconds = every_seconds
        self._over = threading.Event()

    def start(self, places: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin to ask; the mapping is that of the configuration."""
        for name, told in places.items():
            options = BackendOptions(
                name, str(told["type"]), str(told.get("address", "")), dict(told.get("options") or {})
            )
            threading.Thread(target=self._run, args=(options,), name=f"place-{name}", daemon=True).start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _run(self, options: BackendOptions) -> None:
        findings: tuple[Finding, ...] = ()
        asked = 0
        while not self._over.is_set():
            seen, findings = _ask(options, findings, probe=asked % PROBE_EVERY == 0)
            if not self._over.is_set():
                post(self._receiver, PlaceAnswer(seen))
            asked += 1
            self._over.wait(self._every_seconds)


def _ask(
    options: BackendOptions, findings: tuple[Finding, ...], *, probe: bool
) -> tuple[PlaceSeen, tuple[Finding, ...]]:
    from backends.registry import load_backend

    inventory, trouble, hint = None, "", ""
    started = time.monotonic()
    try:
        backend = load_backend(options)
        inventory = backend.inventory()
        latency = time.monotonic() - started
        if probe:
            findings = tuple(backend.probe())
    except FabricError as error:
        latency, trouble, hint = time.monotonic() - started, str(error), error.hint
    except (
        Exception
    ) as error:  # someone else's backend may raise anything, and the others are to be seen all the same
        latency, trouble = time.monotonic() - started, f"{type(error).__name__}: {error}"
    seen = PlaceSeen(options.name, options.type, inventory, trouble, hint, latency, findings, now_us())
    return seen, findings
