"""Asks every place how it is, each in a thread of its own: one that hangs keeps only itself waiting."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from textual.message import Message

from backends.contract.host import BackendOptions, Cluster, Finding, Host, Inventory
from screens.workers.reader import Receiver, post
from workbench.clock import now_us
from workbench.errors import FabricError, NeedsLogin

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
    needs_login: bool
    latency_seconds: float
    findings: tuple[Finding, ...]
    seen_us: int


class PlaceAnswer(Message, bubble=False):
    """A place has answered, or failed to."""

    def __init__(self, seen: PlaceSeen) -> None:
        super().__init__()
        self.seen = seen


def options_of(told: Mapping[str, Any]) -> BackendOptions:
    """Return a place as backends are given it, from what the configuration says."""
    address, options = str(told.get("address", "")), dict(told.get("options") or {})
    return BackendOptions(str(told["name"]), str(told["type"]), address, options)


class PlaceWatch:
    """Watches places until it is closed."""

    def __init__(self, receiver: Receiver, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._receiver = receiver
        self._every_seconds = every_seconds
        self._over = threading.Event()

    def start(self, places: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin to ask; the mapping is that of the configuration."""
        for told in places.values():
            options = options_of(told)
            threading.Thread(
                target=self._run, args=(options,), name=f"place-{options.name}", daemon=True
            ).start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _run(self, options: BackendOptions) -> None:
        place = _Place(options)
        asked = 0
        while not self._over.is_set():
            for seen in place.look(probe=asked % PROBE_EVERY == 0):
                if not self._over.is_set():
                    post(self._receiver, PlaceAnswer(seen))
            asked += 1
            self._over.wait(self._every_seconds)
        place.close()


class _Place:
    """One place, reached once and asked again and again over the same connection."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        self._opened: Host | Cluster | None = None
        self._findings: tuple[Finding, ...] = ()

    def look(self, *, probe: bool) -> Iterator[PlaceSeen]:
        """Say how the place is, and again once it is known what it lacks, which takes longer.

        A connection that failed is opened anew the next time.
        """
        started = time.monotonic()
        try:
            yield from self._look(probe=probe)
        except FabricError as error:
            self.close()
            yield self._away(started, str(error), error.hint, needs_login=isinstance(error, NeedsLogin))
        except (
            Exception
        ) as error:  # someone else's backend may raise anything, and the others are to be seen all the same
            self.close()
            yield self._away(started, f"{type(error).__name__}: {error}")

    def _look(self, *, probe: bool) -> Iterator[PlaceSeen]:
        from workbench.controller.runtime.session_borrower import load_place

        backend = load_place(self._options)
        if self._opened is None:
            self._opened = backend.open()
        started = time.monotonic()
        inventory = backend.inventory_of(self._opened)
        latency = time.monotonic() - started
        yield self._there(inventory, latency)
        if probe or not self._findings:
            self._findings = tuple(backend.probe())
            yield self._there(inventory, latency)

    def _there(self, inventory: Inventory, latency: float) -> PlaceSeen:
        told = self._options
        return PlaceSeen(told.name, told.type, inventory, "", "", False, latency, self._findings, now_us())

    def _away(self, started: float, trouble: str, hint: str = "", *, needs_login: bool = False) -> PlaceSeen:
        told, latency = self._options, time.monotonic() - started
        return PlaceSeen(
            told.name, told.type, None, trouble, hint, needs_login, latency, self._findings, now_us()
        )

    def close(self) -> None:
        """Give the connection back."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(FabricError, OSError):
                opened.close()
