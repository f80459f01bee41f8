"""Open connections to backends: two runners on one host share its one connection."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import field
from functools import partial
from typing import Any, Final, TypeVar

from backends.contract.host import Backend, Cluster, Host, HostGroup
from workbench.clock import elapsed_seconds
from workbench.errors import BackendUnreachable, FabricError
from workbench.store.db.rows import TargetRef
from workbench.values import dataclass

Known = TypeVar("Known")

LINE_SECONDS: Final = 10.0
"""How long another question about the queue of a host is waited for, before the host counts as one that hangs."""

REOPEN_SECONDS: Final = 5.0
"""The pause before a host of a group that did not answer is tried again."""

HELD_SECONDS: Final = 10.0
"""How long a connection is kept open for somebody who may not come."""

_OF_NO_CONNECTION: Final = frozenset({"engine", "agent"})
"""Options that one runner alone reads, or that say how to log in: they need no other connection."""


@dataclass(slots=True)
class SharedLine:
    """What several targets wait for in one host's queue by one connection: none of them removes another's entries."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _jobs: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By home and target, which of their jobs wait there."""
    _handed_over: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def ask(
        self,
        host: Host,
        target: str,
        *,
        home: str,
        waiting: Sequence[Mapping[str, Any]],
        keep: Sequence[str] = (),
        handed_over: Sequence[Mapping[str, Any]] = (),
        unchanged: Sequence[str] = (),
        sparing: Sequence[str] = (),
        aside: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Have these jobs of a target wait at the host, and return its answer with their turns alone.

        The arguments are those of the host's operation ``line_up``.

        Raises:
            BackendUnreachable: the host has not answered the last question yet.
        """
        mine = (home, target)
        with self._waiting():
            own = [str(one["job"]) for one in waiting]
            own_handed_over = [*(str(one["job"]) for one in handed_over), *unchanged]
            others = [key for key in self._jobs if key[0] == home and key != mine]
            there = {job for key in others for job in self._jobs[key]}.difference(own, own_handed_over)
            handed = {job for key in others for job in self._handed_over[key]}.difference(
                own, own_handed_over
            )
            found: dict[str, Any] = host.call(
                "line_up",
                home=home,
                waiting=list(waiting),
                keep=[*keep, *sorted(there.difference(keep))],
                handed_over=list(handed_over),
                unchanged=[*unchanged, *sorted(handed)],
                sparing=list(sparing),
                aside=list(aside),
            )
            self._jobs[mine] = {*own, *keep}
            self._handed_over[mine] = own_handed_over
            if not (own or keep or own_handed_over):
                del self._jobs[mine], self._handed_over[mine]
        if others:
            asked = {*own, *keep, *own_handed_over}
            found["turns"] = {job: turn for job, turn in found["turns"].items() if job in asked}
        return found

    def set_aside(
        self, host: Host, target: str, *, home: str, waiting: Collection[str], keep: Sequence[str]
    ) -> None:
        """Have jobs of a target not wait at the host for now; when they do again it is since they did first."""
        there = self._jobs.get((home, target), set())
        if there.difference(keep):
            self.ask(
                host, target, home=home, waiting=[], keep=keep, aside=sorted(there.intersection(waiting))
            )

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wait for the last question, though not for ever: behind a host that hangs no more threads are to hang."""
        if not self._lock.acquire(timeout=LINE_SECONDS):
            raise BackendUnreachable("it has not answered yet")
        try:
            yield
        finally:
            self._lock.release()


@dataclass(slots=True)
class SharedConnection:
    """One open connection, and how many use it."""

    key: str
    opened: Host | Cluster | HostGroup
    users: int = 1
    line: SharedLine = field(default_factory=SharedLine)

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
    _remembered: dict[str, Any] = field(default_factory=dict)

    def remembered(self, key: str, make: Callable[[], Known]) -> Known:
        """Return what is known by a key though connections come and go: what ``make`` has made when it was asked first.

        Whoever uses a key always makes the same kind of thing.
        """
        with self._lock:
            found: Known = self._remembered.setdefault(key, make())
        return found

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

    def close_later(self, shared: SharedConnection) -> None:
        """Release a connection after a while, in which whoever needs it may find it; returns after that."""
        time.sleep(HELD_SECONDS)
        self.close(shared)

    def close(self, shared: SharedConnection) -> None:
        """Release a connection; the last user closes it."""
        with self._lock:
            shared.users -= 1
            if shared.users > 0:
                return
            if self._open.get(shared.key) is shared:
                del self._open[shared.key]
        shared.opened.close()


class LateConnections:
    """Opens hosts of a group that did not answer in threads of their own: whoever needs the others goes on with them.

    Args:
        shared: the connections of this process.
        connect: opens a host by its name.
        failed: takes why one does not answer.
    """

    def __init__(
        self,
        shared: SharedConnections,
        connect: Callable[[str], SharedConnection],
        failed: Callable[[str, FabricError], None],
    ) -> None:
        self._shared = shared
        self._connect = connect
        self._failed = failed
        self._lock = threading.Lock()
        self._try_at: dict[str, float] = {}
        """When each host that is away is tried again; it is infinite while it is tried."""
        self._have_come = threading.Event()

    def is_away(self, name: str) -> None:
        """Note that a host does not answer."""
        with self._lock:
            self._try_at[name] = elapsed_seconds() + REOPEN_SECONDS

    def have_come(self) -> bool:
        """Say whether one of them is open now; those that are due are tried meanwhile."""
        for name in () if self._have_come.is_set() else self._try_at:
            self._try_again(name)
        return self._have_come.is_set()

    def keep(self, opened: SharedConnection) -> None:
        """Keep a connection that came late for who opens the group again; returns once it is released."""
        self._have_come.set()
        self._shared.close_later(opened)

    def _try_again(self, name: str) -> None:
        with self._lock:
            now = elapsed_seconds()
            if now < self._try_at[name]:
                return
            self._try_at[name] = now + REOPEN_SECONDS
            run = partial(copy_context().run, self._try, name)
            # Where no thread can start it is tried after the same pause.
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=run, name=f"try {name}", daemon=True).start()
                self._try_at[name] = float("inf")

    def _try(self, name: str) -> None:
        try:
            opened = self._connect(name)
        except Exception as error:  # somebody else's backend may raise anything
            if isinstance(error, FabricError):
                self._failed(name, error)
            self.is_away(name)
            return
        self.keep(opened)


SHARED: Final = SharedConnections()
"""This process's."""


def _key(ref: TargetRef) -> str:
    options = {name: value for name, value in ref.options.items() if name not in _OF_NO_CONNECTION}
    return json.dumps([ref.type, ref.address or ref.backend, options], sort_keys=True)


def _set_engine(opened: Host | Cluster | HostGroup, ref: TargetRef) -> None:
    """Set the container engine on a host that was opened for processes."""
    if engine := ref.options.get("engine"):
        opened.engine = str(engine)  # type: ignore[union-attr] # hosts with engines have it
