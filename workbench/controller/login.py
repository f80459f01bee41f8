"""Logs in to a place that wants something typed: where a person is, for the controller that works without one.

What was typed goes to the controller over its socket, which is the user's alone, and is kept in memory only.
"""

from __future__ import annotations

import time
from typing import Final

from backends.answers import ANSWERS, Answerer, Question
from backends.interface import Ask, BackendOptions
from backends.registry import load_backend
from workbench.controller.reaching import ensure_controller, say
from workbench.errors import TryAgain
from workbench.paths import Home

HOLD_SECONDS: Final = 15.0
"""How long a controller that is just being started may take to hear."""

_AGAIN_SECONDS: Final = 0.1


def log_in(home: Home, options: BackendOptions, answer: Answerer, accept: Ask) -> None:
    """Reach a place, asking a person for what has to be typed, and let the controller have that.

    Args:
        home: whose controller.
        options: the place.
        answer: asks one question; None gives up.
        accept: asks whether a key that nobody knows is the right one.

    Raises:
        NotAllowed: it does not let us in.
        PlaceUnreachable: it does not answer.
        TryAgain: no controller could be told.
    """
    with_person(home, answer)
    try:
        load_backend(options).introduce(accept)
    finally:
        ANSWERS.be_asked_by(None)  # what connects later on, in the background, asks nobody
    hand_over(home)


def with_person(home: Home, answer: Answerer) -> None:
    """Let this process ask: the controller for what it holds, then a person."""
    recalled: dict[str, str] = {}
    asked: list[bool] = []

    def find(question: Question) -> str | None:
        if not asked:
            asked.append(True)
            told = say(home, "recall") or {}
            recalled.update(told.get("answers") or {})
        # One that was wrong is not offered again.
        return recalled.pop(question.text, None) or answer(question)

    ANSWERS.be_asked_by(find)


def hand_over(home: Home) -> None:
    """Let the controller hold what this process was told, if anything; one is started where none runs.

    Raises:
        TryAgain: none answers.
    """
    answers = dict(ANSWERS.held())
    if not answers:
        return
    until = time.monotonic() + HOLD_SECONDS
    while True:
        ensure_controller(home)
        told = say(home, "hold", answers=answers)
        if told is not None and told.get("ok"):
            say(home, "wake")
            return
        if time.monotonic() > until:
            raise TryAgain("No controller could be told what was typed.", hint="fabric doctor")
        time.sleep(_AGAIN_SECONDS)
