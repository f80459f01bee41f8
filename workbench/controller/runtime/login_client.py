"""Logs in to a place that wants something typed: where a person is, for the controller that works without one.

What was typed goes to the controller over its socket, which is the user's alone, and is kept in memory only. Where
a login serves one connection alone, the controller makes that itself, and what it is asked is asked here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from uuid import uuid4

from backends.contract.host import Ask, BackendOptions
from backends.contract.prompts import CREDENTIALS, LoginPrompt, Prompter
from backends.registry import load_backend
from workbench.controller.runtime.connect import ensure_controller, say
from workbench.errors import BackendUnreachable, ConfigError, NotAllowed, TryAgain
from workbench.paths import Home
from workbench.store.db.home_folder import is_home
from workbench.store.db.rows import TargetRef

HOLD_SECONDS: Final = 15.0
"""How long a controller that is just being started may take to hear."""

BUSY_TRIES: Final = 3
"""How often a controller that runs is asked again where it does not answer in time."""

_AGAIN_SECONDS: Final = 0.1


def log_in(home: Home, options: BackendOptions, answer: Prompter, accept: Ask) -> None:
    """Reach a place, asking a person for what has to be typed, and let the controller have that.

    Args:
        home: whose controller.
        options: the place.
        answer: asks one question; None gives up.
        accept: asks whether a key that nobody knows is the right one.

    Raises:
        NotAllowed: it does not let us in.
        BackendUnreachable: it does not answer.
        TryAgain: no controller could be told.
    """
    backend = load_backend(options)
    kept = backend.session_options()
    if kept is not None and _log_in_there(home, kept, answer):
        # Whoever asked may reach the place from here too: the screens look at it themselves.
        CREDENTIALS.update(_tell(home, "recall").get("answers") or {})
        return
    with_person(home, answer)
    try:
        backend.introduce(accept)
    finally:
        CREDENTIALS.set_prompter(None)  # what connects later on, in the background, asks nobody
    hand_over(home)
    if kept is not None:
        _log_in_there(home, kept, answer)


def _log_in_there(home: Home, options: BackendOptions, answer: Prompter) -> bool:
    """Have the controller log in, and ask what it wants to know; False when the place is not known yet."""
    place = TargetRef(options.name, options.type, "process", options.address, options.options)
    name = uuid4().hex
    _tell(home, "login", name=name, place=asdict(place))
    number, typed = 0, None
    while True:
        told = _say_again(home, "asked", name=name, number=number, answer=typed)
        stands = (told or {}).get("login")
        if stands is None:
            raise TryAgain("The controller ended in the middle of the login.", hint="try again")
        number, typed = 0, None
        if stands["done"]:
            return True
        if failure := stands["failure"]:
            if failure["exit_code"] == ConfigError.exit_code:
                return False
            kind = BackendUnreachable if failure["exit_code"] == BackendUnreachable.exit_code else NotAllowed
            raise kind(failure["message"], hint=failure["hint"])
        if question := stands["question"]:
            number, typed = stands["asked"], answer(LoginPrompt(question["text"], question["shown"]))
        else:
            time.sleep(_AGAIN_SECONDS)


def with_person(home: Home, answer: Prompter) -> None:
    """Let this process ask: the controller for what it holds, then a person."""
    recalled: dict[str, str] = {}
    asked: list[bool] = []

    def find(question: LoginPrompt) -> str | None:
        if not asked:
            asked.append(True)
            # A person would be asked in the place of one that is busy.
            told = _say_again(home, "recall") or {}
            recalled.update(told.get("answers") or {})
        # One that was wrong is not offered again.
        return recalled.pop(question.text, None) or answer(question)

    CREDENTIALS.set_prompter(find)


def hand_over(home: Home) -> None:
    """Let the controller hold what this process was told, if anything; one is started where none runs.

    Raises:
        TryAgain: none answers.
    """
    answers = dict(CREDENTIALS.answers())
    if answers and is_home(home):
        _tell(home, "hold", answers=answers)
        say(home, "wake")


def _say_again(home: Home, what: str, **more: Any) -> Mapping[str, Any] | None:
    """Say a word to the controller that may be busy; None when it is so for long, or there is none."""
    for _ in range(BUSY_TRIES):
        told = say(home, what, **more)
        if told is not None:
            return told
        time.sleep(_AGAIN_SECONDS)
    return None


def _tell(home: Home, what: str, **more: Any) -> Mapping[str, Any]:
    """Say a word until a controller has heard it, and return what that answers."""
    until = time.monotonic() + HOLD_SECONDS
    while True:
        ensure_controller(home)
        told = say(home, what, **more)
        if told is not None and told.get("ok"):
            return told
        if time.monotonic() > until:
            raise TryAgain("No controller could be told what was typed.", hint="fabric doctor")
        time.sleep(_AGAIN_SECONDS)
