"""Logs in to backends in the controller, where the connection stays: a one-time code opens one connection only.

What a backend asks for is passed to the client that requested the login: the client polls for it over the socket.
Commands of the user's go over the open connections (:func:`share_session`) and need no login of their own.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final

from backends.contract.host import BackendOptions, Cluster, Host
from backends.contract.prompts import CREDENTIALS, LoginPrompt
from backends.ssh.shared_sessions import SharesSessions, connection_of, relay
from workbench.errors import FabricError
from workbench.store.db.rows import TargetRef
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import HostGroup
    from workbench.controller.runtime.connections import SharedConnection

ANSWERED_WITHIN_SECONDS: Final = 300.0
"""How long a question waits for its answer; the host gives up sooner, as a rule."""


@dataclass(slots=True)
class LoginAttempt:
    """One login that is under way, or over."""

    question: LoginPrompt | None = None
    asked: int = 0
    """The number of questions so far: each is answered once."""
    failure: FabricError | None = None
    is_done: bool = False
    _answers: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    def ask(self, question: LoginPrompt) -> str | None:
        """Pass a question to the client and wait for the answer; None when nobody answers."""
        self.asked += 1
        self.question = question
        try:
            return self._answers.get(timeout=ANSWERED_WITHIN_SECONDS)
        except queue.Empty:
            return None
        finally:
            self.question = None

    def answer(self, number: int, text: str | None) -> None:
        """Answer a question, unless that was done before."""
        if self.question is not None and number == self.asked:
            self.question = None
            self._answers.put(text)

    def document(self) -> dict[str, Any]:
        """Return its status for a client."""
        question = self.question
        return {
            "done": self.is_done,
            "question": None if question is None else asdict(question),
            "asked": self.asked,
            "failure": None
            if self.failure is None
            else {
                "message": self.failure.message,
                "hint": self.failure.hint,
                "exit_code": self.failure.exit_code,
            },
        }


@dataclass(frozen=True, slots=True)
class _OpenConnection:
    """A connection that a login made."""

    connection: tuple[str, str, str]
    """The key by which clients ask to share it."""
    shared: SharedConnection


class LoginSessions:
    """All logins of a controller, and the connections that they opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logins: dict[str, LoginAttempt] = {}
        self._open: list[_OpenConnection] = []

    def begin(self, name: str, target: Mapping[str, Any], done: Callable[[], None]) -> None:
        """Log in to a target in the background.

        Args:
            name: by which the client asks for the status.
            target: the fields of a ``TargetRef``.
            done: called once the login succeeded.
        """
        login, ref = LoginAttempt(), TargetRef(**target)
        with self._lock:
            self._logins[name] = login
        threading.Thread(target=self._work, args=(login, ref, done), name="login", daemon=True).start()

    def poll(self, name: str, number: int, answer: str | None) -> dict[str, Any] | None:
        """Return the status of a login, None for one that another controller began.

        Args:
            name: the login.
            number: of the question that ``answer`` is for; 0 answers none.
            answer: what the person typed; None gives up.
        """
        with self._lock:
            login = self._logins.get(name)
        if login is None:
            return None
        if number:
            login.answer(number, answer)
        return login.document()

    def holds(self) -> bool:
        """Say whether a connection is open that a person would have to log in to again."""
        from workbench.controller.runtime.connections import SHARED

        with self._lock:
            connections, self._open = self._open, []
            for one in connections:
                if one.shared.is_lost:
                    SHARED.close(one.shared)
                else:
                    self._open.append(one)
            return bool(self._open)

    def find(self, connection: tuple[str, str, str]) -> Host | Cluster | HostGroup | None:
        """Return the host or cluster of an open connection by its key; None where none is open."""
        with self._lock:
            found = (one.shared for one in self._open if one.connection == connection)
            return next((shared.opened for shared in found if not shared.is_lost), None)

    def _work(self, login: LoginAttempt, ref: TargetRef, done: Callable[[], None]) -> None:
        from backends.registry import load_backend
        from workbench.controller.runtime.connections import SHARED

        try:
            with CREDENTIALS.prompting(login.ask):
                options = BackendOptions.of(ref)
                backend = load_backend(options)
                shared = SHARED.open(ref, backend)
            backend.discover(shared.opened)
        except FabricError as error:
            login.failure = error
        except Exception as error:  # a plug-in's; the person waits for an answer
            login.failure = FabricError(f"{type(error).__name__}: {error}")
        else:
            self.holds()
            with self._lock:
                self._open.append(_OpenConnection(connection_of(options), shared))
            CREDENTIALS.update({})  # backends that waited for a login may be tried again
            login.is_done = True
            done()


LOGINS: Final = LoginSessions()
"""This process's."""


def share_session(message: Mapping[str, Any], stream: socket.socket) -> None:
    """Run a client's command over a connection that is open, and relay its streams until either side ends.

    The client gets a line that says whether a connection is open, and a second one once the command runs; the bytes
    of the command follow. An empty command asks only for the first line.

    Args:
        message: ``place`` has the fields of ``BackendOptions``, ``command`` is shell text.
        stream: the client's socket.
    """
    host = LOGINS.find(connection_of(BackendOptions(**message["place"])))
    command = str(message["command"])
    _reply(stream, ok=isinstance(host, SharesSessions))
    if not isinstance(host, SharesSessions) or not command:
        return
    try:
        pipe = host.session(command)
    except FabricError:
        return  # the client opens a connection of its own
    _reply(stream, ok=True)
    stream.settimeout(None)
    relay(pipe, stream)


def _reply(stream: socket.socket, *, ok: bool) -> None:
    stream.sendall(json.dumps({"ok": ok}).encode() + b"\n")
