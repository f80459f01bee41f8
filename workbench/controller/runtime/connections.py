"""Places that are open: two ways of running learners on one host share its one connection."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Final

from backends.contract.host import Backend, Cluster, Host
from workbench.clock import elapsed_seconds
from workbench.errors import FabricError
from workbench.store.db.rows import TargetRef

_OF_NO_CONNECTION: Final = frozenset({"engine", "agent"})
"""Options that only one runner looks at, or that say how one logs in: they make no other connection."""


@dataclass(slots=True)
class SharedConnection:
    """One open place, and how many use it."""

    key: str
    place: Host | Cluster
    users: int = 1

    @property
    def is_lost(self) -> bool:
        """Whether the way there is gone."""
        return isinstance(self.place, Host) and self.place.lost


@dataclass(slots=True)
class SharedConnections:
    """What is open in this process. Threads may use it at once."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opening: dict[str, threading.Lock] = field(default_factory=dict)
    _open: dict[str, SharedConnection] = field(default_factory=dict)
    _failed: dict[str, tuple[float, FabricError]] = field(default_factory=dict)
    """When a place could not be opened last, and why."""

    def open(self, ref: TargetRef, backend: Backend) -> SharedConnection:
        """Return the place, reached anew unless it is open and answers.

        Who waited while another could not open it is told the same: each try is a login that the host counts.

        Raises:
            FabricError: it cannot be reached.
        """
        key = _key(ref)
        asked = elapsed_seconds()
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                found = self._open.get(key)
                if found is not None and not found.is_lost:
                    found.users += 1
                    _say_engine(found.place, ref)
                    return found
                when, failure = self._failed.get(key, (0.0, None))
            if failure is not None and when >= asked:
                raise failure
            try:
                place = backend.open()
            except FabricError as error:
                self._failed[key] = (elapsed_seconds(), error)
                raise
            opened = SharedConnection(key, place)
            with self._lock:
                self._open[key] = opened
            return opened

    def close(self, shared: SharedConnection) -> None:
        """Give a place back; the last who does closes it."""
        with self._lock:
            shared.users -= 1
            if shared.users > 0:
                return
            if self._open.get(shared.key) is shared:
                del self._open[shared.key]
        shared.place.close()


SHARED: Final = SharedConnections()
"""This process's."""


def _key(ref: TargetRef) -> str:
    options = {name: value for name, value in ref.options.items() if name not in _OF_NO_CONNECTION}
    return json.dumps([ref.type, ref.address or ref.backend, options], sort_keys=True)


def _say_engine(place: Host | Cluster, ref: TargetRef) -> None:
    """Let a host that was opened for processes know which engine containers are to use."""
    if engine := ref.options.get("engine"):
        place.engine = str(engine)  # type: ignore[union-attr] # hosts with engines have it
