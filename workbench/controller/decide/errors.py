"""Classifies errors of backends and runners: retry, give up, or a fault of the platform. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from workbench.controller.decide.model import BackendTrouble
from workbench.errors import (
    AnswerPending,
    BackendError,
    BackendUnreachable,
    CannotWrite,
    ConfigError,
    FabricError,
    InputMissing,
    LaunchRefused,
    ManifestError,
    NeedsLogin,
    NotAllowed,
    RightsMissing,
    RunnerError,
    SlotsBusy,
    TryAgain,
    UsageError,
    lacks,
)
from workbench.job import Reason

EXHAUSTED: Final = "S205"
"""The controller itself has too little of something."""

GIVE_MORE: Final = (
    "`fabric controller stop`, then a command in a shell with higher limits (ulimit -n, ulimit -v)."
)

NEEDS_LOGIN: Final = "needs login"
"""The reason of a backend that waits for a person begins so."""


def classify_error(error: BaseException, *, started: bool, secrets: Iterable[str] = ()) -> BackendTrouble:
    """Classify an error; ``started`` says whether the launch may have started something before it failed.

    An error that no plug-in should let out becomes a sentence, too. Values of secrets are struck out: the
    text goes into rows and logs.
    """
    text, hint = mask(sentence(error), secrets), mask(getattr(error, "hint", ""), secrets)
    if lacking := lacks(error):
        # A few tries later it ends the job with this reason: others may give back what they have.
        reason = Reason(f"the controller has {lacking} left: {text}", EXHAUSTED, GIVE_MORE)
        return BackendTrouble("fault", reason, started)
    match error:
        case SlotsBusy():
            return BackendTrouble("busy", Reason(text, "", hint))
        case LaunchRefused():
            return BackendTrouble("refused", Reason(text, error.code, hint), started)
        case NeedsLogin():
            # The job waits for a person to log in; it need not be submitted again.
            return BackendTrouble("unreachable", Reason(text, "S200", hint), started)
        case AnswerPending():
            return BackendTrouble("unreachable", Reason(text, "", hint), started)
        case BackendUnreachable() | TryAgain():
            return BackendTrouble("unreachable", Reason(text, "S200", hint), started)
        case CannotWrite():
            return BackendTrouble("unreachable", Reason(text, "S204", hint), started)
        case InputMissing():
            return BackendTrouble("refused", Reason(text, "S301", hint), started)
        case NotAllowed():
            began = started and not isinstance(error, RightsMissing)
            return BackendTrouble("refused", Reason(text, "C103", hint), began, error.exit_code)
        case ConfigError():
            return BackendTrouble("refused", Reason(text, "C101", hint), started, error.exit_code)
        case ManifestError() | UsageError():
            return BackendTrouble("refused", Reason(text, "C101", hint), started)
        case RunnerError():
            return BackendTrouble("fault", Reason(text, "S101", hint), started)
        case BackendError():
            return BackendTrouble("fault", Reason(text, "S200", hint), started)
    return BackendTrouble("fault", Reason(text, "S101", hint), started)


def sentence(error: BaseException) -> str:
    """Put an error into one line: ours as it is, another's with its kind: its text alone may say nothing."""
    if isinstance(error, FabricError):
        return error.message
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def mask(text: str, secrets: Iterable[str]) -> str:
    """Overwrite values of secrets by as many asterisks."""
    for value in sorted(secrets, key=len, reverse=True):
        if value:
            text = text.replace(value, "*" * len(value))
    return text
