"""Logs in to places in the controller, where the connection stays: a code that works once is worth one connection.

What a place asks is asked by the client that wanted the login, over the socket; the client looks in for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from backends.contract.host import BackendOptions, Cluster, Host
from backends.contract.prompts import CREDENTIALS, LoginPrompt
from backends.ssh.shared_sessions import connection_of
from workbench.errors import FabricError
from workbench.store.db.rows import TargetRef

if TYPE_CHECKING:
    from workbench.controller.runtime.connections import SharedConnection

LOOKS_IN_WITHIN_SECONDS: Final = 300.0
"""How long a question waits for its answer; the place gives up sooner, as a rule."""


@dataclass(slots=True)
class LoginAttempt:
    """One login that is under way, or over."""

    question: LoginPrompt | None = None
    asked: int = 0
    """How many questions there were: each is answered once."""
    failure: FabricError | None = None
    is_done: bool = False
    _answers: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    def ask(self, question: LoginPrompt) -> str | None:
        """Have a question asked, and wait; None when nobody answers."""
        self.asked += 1
        self.question = question
        try:
            return self._answers.get(timeout=LOOKS_IN_WITHIN_SECONDS)
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
        """Say how it stands, for a client."""
        asked = self.question
        return {
            "done": self.is_done,
            "question": None if asked is None else {"text": asked.text, "shown": asked.shown},
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
    """What it is called by who would borrow it."""
    shared: SharedConnection


class LoginSessions:
    """All logins of a controller, and the connections that came of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logins: dict[str, LoginAttempt] = {}
        self._kept: list[_OpenConnection] = []

    def begin(self, name: str, place: Mapping[str, Any], done: Callable[[], None]) -> None:
        """Log in to a place; ``name`` is how the client looks in, ``done`` is called once it lets us in."""
        login, ref = LoginAttempt(), TargetRef(**place)
        with self._lock:
            self._logins[name] = login
        threading.Thread(target=self._work, args=(login, ref, done), name="login", daemon=True).start()

    def look_in(self, name: str, number: int, answer: str | None) -> dict[str, Any] | None:
        """Answer a question, if one is, and say how a login stands; None for one that another controller began."""
        with self._lock:
            login = self._logins.get(name)
        if login is None:
            return None
        if number:
            login.answer(number, answer)
        return login.document()

    def holds(self) -> bool:
        """Say whether a connection is open that would have to be logged in to again."""
        from workbench.controller.runtime.connections import SHARED

        with self._lock:
            kept, self._kept = self._kept, []
            for one in kept:
                if one.shared.is_lost:
                    SHARED.close(one.shared)
                else:
                    self._kept.append(one)
            return bool(self._kept)

    def place(self, connection: tuple[str, str, str]) -> Host | Cluster | None:
        """Return the place that one of them leads to; None where no such one is open."""
        with self._lock:
            found = (one.shared for one in self._kept if one.connection == connection)
            return next((shared.place for shared in found if not shared.is_lost), None)

    def _work(self, login: LoginAttempt, ref: TargetRef, done: Callable[[], None]) -> None:
        from backends.registry import load_backend
        from workbench.controller.runtime.connections import SHARED

        try:
            with CREDENTIALS.prompting(login.ask):
                options = BackendOptions(ref.backend, ref.type, ref.address, ref.options)
                backend = load_backend(options)
                shared = SHARED.open(ref, backend)
            backend.discover(shared.place)
        except FabricError as error:
            login.failure = error
        except Exception as error:  # a plug-in's; the person waits for a word
            login.failure = FabricError(f"{type(error).__name__}: {error}")
        else:
            self.holds()
            with self._lock:
                self._kept.append(_OpenConnection(connection_of(options), shared))
            CREDENTIALS.update({})  # places that were told to wait may be tried again
            login.is_done = True
            done()


LOGINS: Final = LoginSessions()
"""This process's."""
