"""Questions of backends, asked at the terminal: passwords, codes, and whether a host key is the right one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from workbench.terminal.console import confirm, is_terminal, narrate, person_present
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.prompts import LoginPrompt


@dataclass(frozen=True, slots=True)
class HostKeyPrompt:
    """Asks whether an unknown host key is accepted; the accepted one may be named beforehand."""

    accepted: str = ""
    """A fingerprint, ``SHA256:...``; empty asks a person."""

    def __call__(self, what: str, fingerprint: str) -> bool:
        """Return whether the key is accepted; False where nobody sits at a terminal."""
        if self.accepted:
            return self.accepted == fingerprint
        if not _can_type():
            return False
        narrate(f"{what} is not a known host. Its key is {fingerprint}")
        return confirm("Is this the right key?", yes=False)


def type_answer(question: LoginPrompt) -> str | None:
    """Ask for a password or a code; None where nobody sits at a terminal."""
    if not _can_type():
        return None
    if question.refused:
        narrate("the last answer was not accepted")
    if question.shown:
        sys.stderr.write(f"{question.text}: ")
        sys.stderr.flush()
        return sys.stdin.readline().rstrip("\n") or None
    from getpass import getpass

    return getpass(f"{question.text}: ", stream=sys.stderr) or None


def _can_type() -> bool:
    return person_present() and sys.stdin is not None and is_terminal(sys.stdin)
