"""What a person types to be let in at a place: asked for once, and kept in this process's memory alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Answerer = Callable[["Question"], str | None]
"""Asks a person; None when nobody answers."""


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a place wants to be told."""

    text: str
    """In words, and the same whenever it is the same question: ``Password of me@gpubox``."""
    shown: bool = False
    """Whether the answer may be seen while it is typed."""


class Answers:
    """Answers by question. Threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, str] = {}
        self._answerer: Answerer | None = None
        self._mine = threading.local()
        self.generation = 0
        """Grows whenever there is something new: what needed an answer may be tried again."""

    def be_asked_by(self, answerer: Answerer | None) -> None:
        """Name who can be asked from now on."""
        self._answerer = answerer

    @contextlib.contextmanager
    def asking(self, answerer: Answerer) -> Iterator[None]:
        """Name who can be asked by what this thread does."""
        self._mine.answerer = answerer
        try:
            yield
        finally:
            self._mine.answerer = None

    def answerer(self) -> Answerer | None:
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

    def known(self, question: Question) -> str | None:
        """Return what is known already."""
        with self._lock:
            return self._held.get(question.text)

    def ask(self, question: Question) -> str | None:
        """Ask a person, whatever is known; None when nobody is there."""
        answerer = self.answerer()
        return None if answerer is None else answerer(question)

    def keep(self, question: Question, answer: str) -> None:
        """Keep an answer that was right."""
        with self._lock:
            if self._held.get(question.text) != answer:
                self._held[question.text] = answer
                self.generation += 1

    def drop(self, question: Question) -> None:
        """Forget an answer that was wrong."""
        with self._lock:
            self._held.pop(question.text, None)


ANSWERS = Answers()
"""This process's."""
