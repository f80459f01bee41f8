"""Logs in with what a person has to type: passwords, and the questions that a host asks one by one."""

from __future__ import annotations

import re
from typing import Any, Final

from backends.contract.prompts import ANSWERS, Question
from backends.ssh.config import Hop
from workbench.errors import PlaceUnreachable

TRIES: Final = 3
"""How often a person is asked the same before it is given up, as ssh does."""

TYPED: Final = ("keyboard-interactive", "password")

TYPING_SECONDS: Final = 300.0
"""How long a person may take to type; the host gives up sooner, as a rule."""

ONE_TIME: Final = re.compile(
    r"\b(code|otp|token|passcode|one-time|verification|duo|authenticator)\b", re.IGNORECASE
)
"""Questions whose answer is worth nothing the next time: it is not kept, and a wrong try less is made."""


class _Unanswered(Exception):
    """Nobody answers: nothing is sent, since an empty answer counts as a wrong one, and locks accounts."""


def methods_of(transport: Any, hop: Hop) -> tuple[str, ...]:
    """Ask a host what it would take.

    Raises:
        PlaceUnreachable: it hung up.
    """
    import paramiko

    try:
        return tuple(transport.auth_none(hop.user)) or ("none",)
    except paramiko.BadAuthenticationType as error:
        return tuple(error.allowed_types)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise PlaceUnreachable(f"{hop.words} hung up while we logged in: {error}.") from error


def log_in_typed(transport: Any, hop: Hop, methods: tuple[str, ...]) -> bool:
    """Log in with what is known or a person types; False when there is no right answer.

    Raises:
        PlaceUnreachable: the host hung up, as it does after too many tries.
    """
    import paramiko

    if ANSWERS.someone_is_there:
        transport.auth_timeout = TYPING_SECONDS
    for method in (one for one in TYPED if one in methods):
        log_in = _interactive if method == TYPED[0] else _password
        for number in range(TRIES):
            round_ = _Round(hop, use_known=number == 0)
            try:
                missing = log_in(transport, hop, round_)
            except _Unanswered:
                return False
            except paramiko.AuthenticationException:
                round_.was_wrong()
                if not transport.is_active() or not (round_.asked or round_.was_known):
                    break
                continue
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise PlaceUnreachable(f"{hop.words} hung up while we logged in: {error}.") from error
            round_.was_right()
            return not missing or log_in_typed(transport, hop, tuple(missing))
    return False


def _interactive(transport: Any, hop: Hop, round_: _Round) -> list[str]:
    def answer(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        return [round_.answer(prompt.strip().rstrip(":"), shown) for prompt, shown in prompts]

    found: list[str] = transport.auth_interactive(hop.user, answer)
    return found


def _password(transport: Any, hop: Hop, round_: _Round) -> list[str]:
    found: list[str] = transport.auth_password(hop.user, round_.answer("Password", False), fallback=False)
    return found


class _Round:
    """One try, and what was answered in it."""

    def __init__(self, hop: Hop, *, use_known: bool) -> None:
        self._hop = hop
        self._use_known = use_known
        # Questions come in a thread of paramiko's.
        self._ask = ANSWERS.answerer()
        self._given: list[tuple[Question, str]] = []
        self.asked = False
        self.was_known = False

    def answer(self, prompt: str, shown: bool) -> str:
        """Answer a prompt by what is known, else by asking."""
        question = Question(f"{prompt} of {self._hop.user}@{self._hop.alias}", shown)
        found = ANSWERS.known(question) if self._use_known else None
        self.was_known |= found is not None
        if found is None:
            found = None if self._ask is None else self._ask(question)
            self.asked |= found is not None
        if found is None:
            raise _Unanswered
        self._given.append((question, found))
        return found

    def was_right(self) -> None:
        """Keep what was answered, but for codes that work once: they are asked for so, or may be seen when typed."""
        for question, answer in self._given:
            if not question.shown and not ONE_TIME.search(question.text):
                ANSWERS.keep(question, answer)

    def was_wrong(self) -> None:
        """Forget it."""
        for question, _ in self._given:
            ANSWERS.drop(question)


def passphrase_of(path: str) -> Question:
    """Return what is asked for a key file."""
    return Question(f"Passphrase of {path}")
