"""Logs in to a backend that needs a password or a code: asks the person here, for the controller in the background.

The answers go to the controller over its socket, which only the user reaches, and stay in memory. Where a login is
valid for one connection only, the controller logs in itself and its questions are asked here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from uuid import uuid4

from backends import registry
from backends.contract.host import Ask, BackendOptions
from backends.contract.prompts import CREDENTIALS, LoginPrompt, Prompter
from workbench.controller.client.connect import ensure_controller, send_message
from workbench.controller.client.hang import RESTART, unanswering
from workbench.errors import BackendUnreachable, ConfigError, NotAllowed, TryAgain
from workbench.paths import Home
from workbench.store.db.home_folder import is_home
from workbench.store.db.identity import make_home
from workbench.store.db.rows import TargetRef

ANSWERED_WITHIN_SECONDS: Final = 15.0
"""How long a controller that is just being started may take to answer."""

BUSY_TRIES: Final = 3
"""How often a message to a running controller is repeated when it does not answer in time."""

_AGAIN_SECONDS: Final = 0.1


def log_in(home: Home, options: BackendOptions, answer: Prompter, accept: Ask) -> None:
    """Connect to a backend, ask a person for what it needs, and pass the answers to the controller.

    Args:
        home: whose controller.
        options: the backend.
        answer: asks one question; None gives up.
        accept: asks whether a key that nobody knows is the right one.

    Raises:
        NotAllowed: the login was refused.
        BackendUnreachable: the backend does not answer.
        TryAgain: no controller answers.
    """
    backend = registry.load_backend(options)
    session_options = backend.session_options()
    if session_options is not None and _log_in_there(home, session_options, answer):
        # This process may connect, too: the screens read the backend themselves.
        CREDENTIALS.update(_send_until_answered(home, "recall").get("answers") or {})
        return
    with_person(home, answer)
    try:
        backend.introduce(accept)
    finally:
        CREDENTIALS.set_prompter(None)  # what connects later on, in the background, asks nobody
    hand_over(home)
    if session_options is not None:
        _log_in_there(home, session_options, answer)


def _log_in_there(home: Home, options: BackendOptions, answer: Prompter) -> bool:
    """Have the controller log in and ask its questions here; False when the backend is not known yet."""
    target = TargetRef(options.name, options.type, "", options.address, options.options)  # no runner logs in
    name = uuid4().hex
    _send_until_answered(home, "login", name=name, place=asdict(target))
    number, typed = 0, None
    while True:
        reply = _send(home, "asked", name=name, number=number, answer=typed)
        status = (reply or {}).get("login")
        if status is None:
            raise TryAgain("The controller ended in the middle of the login.", hint="try again")
        number, typed = 0, None
        if status["done"]:
            return True
        if failure := status["failure"]:
            if failure["exit_code"] == ConfigError.exit_code:
                return False
            kind = BackendUnreachable if failure["exit_code"] == BackendUnreachable.exit_code else NotAllowed
            raise kind(failure["message"], hint=failure["hint"])
        if question := status["question"]:
            refused = bool(question.get("refused"))
            prompt = LoginPrompt(question["text"], question["shown"], refused=refused)
            number, typed = status["asked"], answer(prompt)
        else:
            time.sleep(_AGAIN_SECONDS)


def with_person(home: Home, answer: Prompter) -> None:
    """Have prompts of this process answered: by what the controller holds, then by a person."""
    recalled: dict[str, str] = {}
    is_recalled: list[bool] = []
    lock = threading.Lock()  # several backends may log in at once

    def find(question: LoginPrompt) -> str | None:
        with lock:
            if not is_recalled:
                is_recalled.append(True)
                # A busy controller is asked again, before a person has to type what it knows.
                reply = _send(home, "recall") or {}
                recalled.update(reply.get("answers") or {})
            # An answer that was wrong is not offered again.
            known = recalled.pop(question.text, None)
        return known or answer(question)

    CREDENTIALS.set_prompter(find)


def hand_over(home: Home) -> None:
    """Pass the answers that this process holds to the controller; one is started where none runs.

    Raises:
        TryAgain: none answers.
    """
    answers = dict(CREDENTIALS.answers())
    if answers and is_home(home):
        _send_until_answered(home, "hold", answers=answers)
        send_message(home, "wake")


def _send(home: Home, command: str, **arguments: Any) -> Mapping[str, Any] | None:
    """Send a command to the controller, again if it is busy; return its answer, None when there is none."""
    for _ in range(BUSY_TRIES):
        reply = send_message(home, command, **arguments)
        if reply is not None:
            return reply
        time.sleep(_AGAIN_SECONDS)
    return None


def _send_until_answered(home: Home, command: str, **arguments: Any) -> Mapping[str, Any]:
    """Send a command until a controller answers, starting one where none runs; return the answer.

    A login may be the first thing that is done in a home, which the controller does not make.
    """
    make_home(home)
    until = time.monotonic() + ANSWERED_WITHIN_SECONDS
    while True:
        ensure_controller(home)
        reply = send_message(home, command, **arguments)
        if reply is not None and reply.get("ok"):
            return reply
        if time.monotonic() > until:
            if found := unanswering(home):
                raise TryAgain(f"{found.text}, and takes no answers", hint=RESTART)
            raise TryAgain("No controller takes the answers.", hint="fabric doctor")
        time.sleep(_AGAIN_SECONDS)
