"""Asks a backend how it is: once, or again and again over one connection. A failure is a value, not an exception."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from workbench.clock import now_us
from workbench.errors import FabricError, NeedsLogin
from workbench.services.backends.placement import open_backend
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import Backend, BackendOptions, Cluster, Finding, Host, HostGroup, Inventory
    from workbench.documents.machines import InventoryDocument


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """How a backend was found."""

    name: str
    type: str
    inventory: Inventory | None
    """None when it did not answer; ``error`` says why."""
    error: FabricError | None
    latency_seconds: float
    findings: tuple[Finding, ...]
    """What the last probe found; empty where none was made."""
    seen_us: int

    @property
    def trouble(self) -> str:
        """Why it did not answer; empty where it did."""
        return "" if self.error is None else str(self.error)

    @property
    def hint(self) -> str:
        """What can be done about that."""
        return "" if self.error is None else self.error.hint

    @property
    def needs_login(self) -> bool:
        """Whether a person has to log in."""
        return isinstance(self.error, NeedsLogin)

    def document(self) -> InventoryDocument:
        """Return the inventory as ``--json`` gives it, schema ``fabric.inventory/1``."""
        from workbench.formats import iso

        assert self.inventory is not None
        nodes = [
            {**asdict(node), "slots": [{**asdict(slot), "free": slot.free} for slot in node.slots]}
            for node in self.inventory.nodes
        ]
        return {
            "schema": "fabric.inventory/1",
            "backend": self.name,
            "time": iso(self.inventory.time_us),
            "nodes": nodes,
            "note": self.inventory.note,
        }


class KeptConnection:
    """A connection to a backend that is kept between questions; once it is closed, the next one opens it again."""

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        self._opened: Host | Cluster | HostGroup | None = None

    def backend(self) -> Backend:
        """Load the backend; nothing is reached."""
        return open_backend(self.options)

    def opened(self) -> Host | Cluster | HostGroup:
        """Return the open backend.

        Raises:
            FabricError: it cannot be reached.
        """
        if self._opened is None:
            self._opened = self.backend().open()
        return self._opened

    def close(self) -> None:
        """Give the connection back."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(FabricError, OSError):
                opened.close()


class BackendWatch:
    """One backend, reached once and asked again and again over the same connection."""

    def __init__(self, options: BackendOptions, *, probes: bool = True) -> None:
        """Watch a backend; with ``probes`` it is also looked at what it lacks."""
        self._options = options
        self._probes = probes
        self._connection = KeptConnection(options)
        self._findings: tuple[Finding, ...] = ()

    def ask(self, *, probe: bool = False) -> Iterator[BackendStatus]:
        """Yield how the backend is, and again once it is known what it lacks, which takes longer.

        It is probed where ``probe`` says so and where nothing was found so far. A connection that failed is opened
        again the next time.
        """
        started = time.monotonic()
        try:
            yield from self._ask(probe=probe)
        except FabricError as error:
            self.close()
            yield self._status(None, time.monotonic() - started, error)
        except (
            Exception
        ) as error:  # someone else's backend may raise anything, and the others are shown all the same
            self.close()
            wrong = FabricError(f"{type(error).__name__}: {error}")
            wrong.__cause__ = error
            yield self._status(None, time.monotonic() - started, wrong)

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def _ask(self, *, probe: bool) -> Iterator[BackendStatus]:
        backend, opened = self._connection.backend(), self._connection.opened()
        started = time.monotonic()
        inventory = backend.inventory_of(opened)
        latency = time.monotonic() - started
        yield self._status(inventory, latency)
        if self._probes and (probe or not self._findings):
            self._findings = tuple(backend.probe())
            yield self._status(inventory, latency)

    def _status(
        self, inventory: Inventory | None, latency: float, error: FabricError | None = None
    ) -> BackendStatus:
        options = self._options
        return BackendStatus(options.name, options.type, inventory, error, latency, self._findings, now_us())
