"""Raises containers' limits of locked memory and stack, as far as the engine can; found out once for each engine."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from backends.contract.host import Host
from runners.container.engine import Engine
from runners.shared.host_facts import HostFacts
from workbench.errors import RunnerError
from workbench.learner.platform.engine_client import EngineRefused

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
        self._engine = engine
        # Podman reports a new id with every call.
        self._key = engine.path if engine.is_podman else str(engine.info.get("ID") or engine.path)

    def known(self) -> tuple[str, ...] | None:
        """Return the names of the limits that the engine can raise, None if that is not known."""
        found = self._read().get(self._key)
        return tuple(map(str, found)) if isinstance(found, list) else None

    def remember(self, names: Sequence[str] | None) -> None:
        """Store the result; None removes it."""
        limits = {key: value for key, value in self._read().items() if key != self._key}
        if names is not None:
            limits[self._key] = list(names)
        self._host.call("write_files", files={self._path: json.dumps(limits) + "\n"})

    def find(self, image: str) -> tuple[str, ...] | None:
        """Return the limits that the engine can raise, for which a container is started where that is not known.

        It runs nothing of a job. None where no container of this image starts whatever its limits.
        """
        known = self.known()
        if known is not None:
            return known
        # One launch at a time, as where a job's own container is tried.
        with self.lock():
            if (known := self.known()) is None:
                known = next((limits for limits in tries() if self._starts(image, limits)), None)
                if known is not None:
                    self.remember(known)
        return known

    def _starts(self, image: str, names: Sequence[str]) -> bool:
        """Say whether a container with these limits starts; it ends at once."""
        # The home's own: one that a launch left which was cut off is in the way of the next one.
        name = f"fabric-limits-{hashlib.sha256(self._path.encode()).hexdigest()[:12]}"
        document = {
            "Image": image,
            "Entrypoint": ["sh", "-c", "exit 0"],
            "Cmd": [],
            "Labels": {"fabric.limits": ",".join(names)},
            "HostConfig": {
                "AutoRemove": True,
                "NetworkMode": "none",
                "SecurityOpt": ["no-new-privileges"],
                "CapDrop": ["ALL"],
                "LogConfig": {"Type": "none", "Config": {}},
                "Ulimits": [dict(limit) for limit in LIMITS if limit["Name"] in names],
            },
        }
        try:
            if not self._engine.create(name, document):
                self._engine.remove(name)
                self._engine.create(name, document)
            self._engine.ask("POST", f"containers/{name}/start")
        except EngineRefused:
            self._engine.remove(name)
            return False
        return True

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
