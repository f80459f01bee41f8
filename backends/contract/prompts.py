"""What a person types to log in at a backend: asked for once, and held in this process's memory alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Prompter = Callable[["LoginPrompt"], str | None]
"""Asks a person; returns None when nobody answers."""


@dataclass(frozen=True, slots=True)
class LoginPrompt:
    """One thing that a backend asks a person before it lets anybody in: a password, a passphrase, a code."""

    text: str
    """In words, and the same whenever it is the same question: ``Password of me@gpubox``."""
    shown: bool = False
    """Whether the answer may be seen while it is typed."""


class CredentialCache:
    """What a person has typed, by prompt, for the life of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, str] = {}
        self._answerer: Prompter | None = None
        self._mine = threading.local()
        self.generation = 0
        """Grows whenever there is something new: what needed an answer may be tried again."""

    def be_asked_by(self, answerer: Prompter | None) -> None:
        """Name who can be asked from now on."""
        self._answerer = answerer

    @contextlib.contextmanager
    def asking(self, answerer: Prompter) -> Iterator[None]:
        """Name who can be asked by what this thread does."""
        self._mine.answerer = answerer
        try:
            yield
        finally:
            self._mine.answerer = None

    def answerer(self) -> Prompter | None:
        """Return who can be asked by what this thread does; None when nobody is there."""
        return getattr(self._mine, "answerer", None) or self._answerer

    @property
    def someone_is_there(self) -> bool:
        """Whether a person can be asked."""
        return self.answerer() is not None

    def held(self) -> Mapping[str, str]:
        """Return all that is known."""
        with self._lock:
            return dict(self._held)

    def hold(self, answers: Mapping[str, str]) -> None:
        """Keep what was answered elsewhere."""
        with self._lock:
            self._held.update(answers)
            self.generation += 1

    def known(self, question: LoginPrompt) -> str | None:
        """Return what is known already."""
        with self._lock:
            return self._held.get(question.text)

    def ask(self, question: LoginPrompt) -> str | None:
        """Ask a person, whatever is known; None when nobody is there."""
        answerer = self.answerer()
        return None if answerer is None else answerer(question)

    def keep(self, question: LoginPrompt, answer: str) -> None:
        """Keep an answer that was right."""
        with self._lock:
            if self._held.get(question.text) != answer:
                self._held[question.text] = answer
                self.generation += 1

    def drop(self, question: LoginPrompt) -> None:
        """Forget an answer that was wrong."""
        with self._lock:
            self._held.pop(question.text, None)


CREDENTIALS = CredentialCache()
"""This process's."""
