"""Open connections to backends: two runners on one host share its one connection."""

from __future__ import annotations

import json
import threading
from dataclasses import field
from typing import Final

from backends.contract.host import Backend, Cluster, Host
from workbench.clock import elapsed_seconds
from workbench.errors import FabricError
from workbench.store.db.rows import TargetRef
from workbench.values import dataclass

_OF_NO_CONNECTION: Final = frozenset({"engine", "agent"})
"""Options that one runner alone reads, or that say how to log in: they need no other connection."""


@dataclass(slots=True)
class SharedConnection:
    """One open connection, and how many use it."""

    key: str
    opened: Host | Cluster
    users: int = 1

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone for good."""
        return isinstance(self.opened, Host) and self.opened.lost


@dataclass(slots=True)
class SharedConnections:
    """The open connections of this process. Threads may use it at once."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opening: dict[str, threading.Lock] = field(default_factory=dict)
    _open: dict[str, SharedConnection] = field(default_factory=dict)
    _failed: dict[str, tuple[float, FabricError]] = field(default_factory=dict)
    """When opening a connection last failed, and why."""

    def open(self, ref: TargetRef, backend: Backend) -> SharedConnection:
        """Return a connection to a target, a new one unless one is open.

        A thread that waited while another failed to open it gets the same error: each try is a login that the host
        counts.

        Raises:
            FabricError: the backend cannot be reached.
        """
        key = _key(ref)
        requested_at = elapsed_seconds()
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                found = self._open.get(key)
                if found is not None and not found.is_lost:
                    found.users += 1
                    _set_engine(found.opened, ref)
                    return found
                when, failure = self._failed.get(key, (0.0, None))
            if failure is not None and when >= requested_at:
                raise failure
            try:
                opened = backend.open()
            except FabricError as error:
                self._failed[key] = (elapsed_seconds(), error)
                raise
            shared = SharedConnection(key, opened)
            with self._lock:
                self._open[key] = shared
            return shared

    def close(self, shared: SharedConnection) -> None:
        """Release a connection; the last user closes it."""
        with self._lock:
            shared.users -= 1
            if shared.users > 0:
                return
            if self._open.get(shared.key) is shared:
                del self._open[shared.key]
        shared.opened.close()


SHARED: Final = SharedConnections()
"""This process's."""


def _key(ref: TargetRef) -> str:
    options = {name: value for name, value in ref.options.items() if name not in _OF_NO_CONNECTION}
    return json.dumps([ref.type, ref.address or ref.backend, options], sort_keys=True)


def _set_engine(opened: Host | Cluster, ref: TargetRef) -> None:
    """Set the container engine on a host that was opened for processes."""
    if engine := ref.options.get("engine"):
        opened.engine = str(engine)  # type: ignore[union-attr] # hosts with engines have it
