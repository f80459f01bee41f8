"""Raises containers' limits of locked memory and stack, as far as the engine can; found out once for each engine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from backends.contract.host import Host
from runners.container.engine import Engine
from runners.shared.host_facts import HostFacts
from workbench.errors import RunnerError

LIMITS: Final[Sequence[Mapping[str, Any]]] = (
    {"Name": "memlock", "Soft": -1, "Hard": -1},
    {"Name": "stack", "Soft": 64 << 20, "Hard": 64 << 20},
)
"""As NVIDIA recommends: NCCL and CUDA lock memory, and deep recursion needs a large stack."""

FILE: Final = "engine-limits.json"
LOCK_SECONDS: Final = 120.0
LOCK_PAUSE_SECONDS: Final = 0.05
_WORDS: Final = ("rlimit", "ulimit")


class Limits:
    """Stores which limits an engine can raise."""

    def __init__(self, host: Host, site: HostFacts, engine: Engine) -> None:
        self._host = host
        self._path = str(site.home.path / FILE)
        # A folder of locks is opened for all users, which a home must not be.
        self._locks = str(site.home.environments)
        # Podman reports a new id with every call.
        self._engine = engine.path if engine.is_podman else str(engine.info.get("ID") or engine.path)

    def known(self) -> tuple[str, ...] | None:
        """Return the names of the limits that the engine can raise, None if that is not known."""
        found = self._read().get(self._engine)
        return tuple(map(str, found)) if isinstance(found, list) else None

    def remember(self, names: Sequence[str] | None) -> None:
        """Store the result; None removes it."""
        limits = {key: value for key, value in self._read().items() if key != self._engine}
        if names is not None:
            limits[self._engine] = list(names)
        self._host.call("write_files", files={self._path: json.dumps(limits) + "\n"})

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the trial of an engine's limits; waits for another launch.

        Raises:
            RunnerError: the lock was not free within LOCK_SECONDS.
        """
        self._host.call("make_folders", paths=[self._locks])
        until = time.monotonic() + LOCK_SECONDS
        while (held := self._host.lock([f"{FILE}.lock"], folder=self._locks, text="{}")) is None:
            if time.monotonic() > until:
                raise RunnerError("Somebody else finds out for long what limits the container engine raises.")
            time.sleep(LOCK_PAUSE_SECONDS)
        try:
            yield
        finally:
            held.release()

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = self._host.call("read_object", path=self._path) or {}
        return found


def tries() -> Iterator[tuple[str, ...]]:
    """Yield the sets of limits to try on a new engine; the last is empty, which no engine refuses."""
    names = tuple(str(limit["Name"]) for limit in LIMITS)
    yield names
    yield from ((name,) for name in names)
    yield ()


def is_refused(message: str) -> bool:
    """Return whether a start failed because the engine cannot raise a limit."""
    return any(word in message.lower() for word in _WORDS)
