"""Who answers when a backend asks for a password or a code: a front end names that once for its process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from backends.contract.prompts import LoginPrompt, Prompter

_answerer: Prompter | None = None
_may_ask = True
_turn: Final = threading.Lock()


def answer_by(ask: Prompter) -> None:
    """Let a function answer all later questions of backends; it returns None when nobody answers."""
    global _answerer, _may_ask
    _answerer, _may_ask = ask, True


def ask_nobody() -> None:
    """Let backends ask nothing while a job is prepared: the screens log in by a window of their own."""
    global _answerer, _may_ask
    _answerer, _may_ask = None, False


def may_ask() -> bool:
    """Say whether a backend may ask a person, or the controller for what a person has answered before."""
    return _may_ask


def answer(question: LoginPrompt) -> str | None:
    """Ask whoever the front end has named; None where there is nobody.

    One question is asked at a time: several backends may be reached at once, and a person has one terminal.
    """
    if _answerer is None:
        return None
    with _turn:
        return _answerer(question)


def is_asking() -> bool:
    """Say whether a question is open at this moment."""
    return _turn.locked()
