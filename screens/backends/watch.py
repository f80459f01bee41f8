"""Asks every backend how it is, each in a worker of its own: one that hangs keeps only itself waiting."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from textual.message import Message
from textual.screen import Screen
from textual.worker import get_current_worker

from backends.contract.host import BackendOptions, Cluster, Finding, Host, Inventory
from screens.workers.background import post, start_loop
from workbench.clock import now_us
from workbench.errors import FabricError, NeedsLogin
from workbench.values import dataclass

EVERY_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5
PROBE_EVERY: Final = 15
"""What a backend lacks changes seldom: it is probed every so many times."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """How a backend was found."""

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


def options_of(entry: Mapping[str, Any]) -> BackendOptions:
    """Return what a backend is opened with, from an entry of the configuration."""
    address, options = str(entry.get("address", "")), dict(entry.get("options") or {})
    return BackendOptions(str(entry["name"]), str(entry["type"]), address, options)


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
        options = options_of(entry)
        start_loop(screen, f"backend {options.name}", partial(_watch, screen, options, wanted, slower))


def _watch(
    screen: Screen[Any], options: BackendOptions, wanted: Callable[[float], bool] | None, slower: int
) -> None:
    worker = get_current_worker()
    backend = _Backend(options, probes=wanted is None)
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


class _Backend:
    """One backend, reached once and asked again and again over the same connection."""

    def __init__(self, options: BackendOptions, *, probes: bool = True) -> None:
        self._options = options
        self._probes = probes
        self._opened: Host | Cluster | None = None
        self._findings: tuple[Finding, ...] = ()

    def ask(self, *, probe: bool) -> Iterator[BackendStatus]:
        """Yield how the backend is, and again once it is known what it lacks, which takes longer.

        A connection that failed is opened anew the next time.
        """
        started = time.monotonic()
        try:
            yield from self._ask(probe=probe)
        except FabricError as error:
            self.close()
            yield self._failed(started, str(error), error.hint, needs_login=isinstance(error, NeedsLogin))
        except (
            Exception
        ) as error:  # someone else's backend may raise anything, and the others are shown all the same
            self.close()
            yield self._failed(started, f"{type(error).__name__}: {error}")

    def _ask(self, *, probe: bool) -> Iterator[BackendStatus]:
        from workbench.controller.client.sessions import load_client_backend

        backend = load_client_backend(self._options)
        if self._opened is None:
            self._opened = backend.open()
        started = time.monotonic()
        inventory = backend.inventory_of(self._opened)
        latency = time.monotonic() - started
        yield self._answered(inventory, latency)
        if self._probes and (probe or not self._findings):
            self._findings = tuple(backend.probe())
            yield self._answered(inventory, latency)

    def _answered(self, inventory: Inventory, latency: float) -> BackendStatus:
        options = self._options
        return BackendStatus(
            options.name, options.type, inventory, "", "", False, latency, self._findings, now_us()
        )

    def _failed(
        self, started: float, trouble: str, hint: str = "", *, needs_login: bool = False
    ) -> BackendStatus:
        options, latency = self._options, time.monotonic() - started
        return BackendStatus(
            options.name, options.type, None, trouble, hint, needs_login, latency, self._findings, now_us()
        )

    def close(self) -> None:
        """Give the connection back."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(FabricError, OSError):
                opened.close()
