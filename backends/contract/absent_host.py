"""A host of a group that does not answer now: what is meant for the others reaches them all the same."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

from backends.contract.host import Chunk, Completed, EarlyBytes, Host, HostIdentity, HostStream, Lock
from workbench.errors import FabricError, NeedsLogin


class AbsentHost(Host):
    """Stands for a host that could not be opened: whatever is asked of it raises why."""

    def __init__(self, why: FabricError) -> None:
        self.why = why

    def _refuse(self) -> NoReturn:
        # Each time another object: what raises one adds to its traceback.
        raise copied(self.why, self.why.message)

    def identity(self) -> HostIdentity:
        """Raise why it could not be opened."""
        self._refuse()

    def clock_ahead_us(self) -> int:
        """Raise why it could not be opened."""
        self._refuse()

    def folder(self, home_uuid: str) -> str:
        """Raise why it could not be opened."""
        self._refuse()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        deadline_seconds: float = 30.0,
    ) -> Completed:
        """Raise why it could not be opened."""
        self._refuse()

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: str,
        holding: Sequence[Lock] = (),
    ) -> int:
        """Raise why it could not be opened."""
        self._refuse()

    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Raise why it could not be opened."""
        self._refuse()

    def read(self, offsets: Mapping[str, int], *, limit_bytes: int = 1 << 20) -> Mapping[str, Chunk]:
        """Raise why it could not be opened."""
        self._refuse()

    def follow(
        self,
        subscriber: str,
        known: Mapping[str, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[str, Mapping[str, Chunk]]:
        """Raise why it could not be opened."""
        self._refuse()

    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Raise why it could not be opened."""
        self._refuse()

    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Raise why it could not be opened."""
        self._refuse()

    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Raise why it could not be opened."""
        self._refuse()

    def call(self, operation: str, **arguments: Any) -> Any:
        """Raise why it could not be opened."""
        self._refuse()

    def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, terminal: bool
    ) -> HostStream | None:
        """Raise why it could not be opened."""
        self._refuse()

    def connect(self, path: str) -> socket.socket:
        """Raise why it could not be opened."""
        self._refuse()

    def close(self) -> None:
        """Do nothing: nothing is open."""


def at_member(error: FabricError, name: str) -> FabricError:
    """Return an error of a group's member, which names it."""
    if isinstance(error, NeedsLogin) or begins_with(error.message, name):
        return error  # how to log in names it
    return copied(error, f"{name}: {error.message}")


def begins_with(message: str, name: str) -> bool:
    """Say whether a message begins with the name of the host that it comes from."""
    return message.startswith((f"{name}: ", f"{name} "))


def copied(error: FabricError, message: str) -> FabricError:
    """Return an error of the same kind with another message."""
    made = error.__class__.__new__(error.__class__)
    made.__dict__.update(error.__dict__)
    made.args = (message,)
    made.message = message
    made.__cause__ = error
    return made
