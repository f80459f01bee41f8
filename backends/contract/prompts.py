"""Prompts of backends for passwords, passphrases and codes; answers are kept in this process's memory only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

from workbench.values import dataclass

Prompter = Callable[["LoginPrompt"], str | None]
"""Shows a prompt to a person and returns the answer, None when nobody answers."""


@dataclass(frozen=True, slots=True)
class LoginPrompt:
    """A question that a login asks: for a password, a passphrase or a one-time code."""

    text: str
    """The question as it is shown, e.g. ``Password of me@gpubox``. Answers are cached under this text."""
    shown: bool = False
    """Whether the answer is echoed while it is typed."""
    refused: bool = False
    """Whether the last answer to it was not accepted."""


class CredentialCache:
    """The answers of a person by prompt, for the life of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, str] = {}
        self._prompter: Prompter | None = None
        self._thread = threading.local()
        self.generation = 0
        """Grows with each new answer: a login that failed for want of one can be tried again."""

    def set_prompter(self, prompter: Prompter | None) -> None:
        """Set who is asked in threads that have no prompter of their own; None for nobody."""
        self._prompter = prompter

    @contextlib.contextmanager
    def prompting(self, prompter: Prompter) -> Iterator[None]:
        """Set who is asked in this thread, for the body of the ``with`` statement."""
        self._thread.prompter = prompter
        try:
            yield
        finally:
            self._thread.prompter = None

    def prompter(self) -> Prompter | None:
        """Return the prompter of this thread, else the process's; None without one."""
        return getattr(self._thread, "prompter", None) or self._prompter

    @property
    def can_prompt(self) -> bool:
        """Whether this thread can ask a person."""
        return self.prompter() is not None

    def answers(self) -> Mapping[str, str]:
        """Return a copy of all answers, by the text of their prompts."""
        with self._lock:
            return dict(self._answers)

    def update(self, answers: Mapping[str, str]) -> None:
        """Add answers that another process has collected."""
        with self._lock:
            self._answers.update(answers)
            self.generation += 1

    def answer_to(self, prompt: LoginPrompt) -> str | None:
        """Return the cached answer to a prompt, None if there is none."""
        with self._lock:
            return self._answers.get(prompt.text)

    def ask(self, prompt: LoginPrompt) -> str | None:
        """Ask a person even if an answer is cached; None without a prompter."""
        prompter = self.prompter()
        return None if prompter is None else prompter(prompt)

    def remember(self, prompt: LoginPrompt, answer: str) -> None:
        """Cache an answer that the backend accepted."""
        with self._lock:
            if self._answers.get(prompt.text) != answer:
                self._answers[prompt.text] = answer
                self.generation += 1

    def forget(self, prompt: LoginPrompt) -> None:
        """Remove an answer that the backend refused."""
        with self._lock:
            self._answers.pop(prompt.text, None)


CREDENTIALS = CredentialCache()
"""The one instance of this process."""
