"""Every error that a user can meet, each with a sentence, a hint and an exit code.

The tree::

    FabricError                     70   a bug of ours, or a family below
      UsageError                    64   the words of the command are wrong
        UnknownName                 64   no such job, backend, runner, learner, metric; names those there are
        AmbiguousName               64   a prefix that fits several
        PatternTooSlow              64   a regular expression that takes too long on some text
      ManifestError                 65   the manifest is at fault; carries every fault found
      InputMissing                  66   a file or folder that is not there, or is not what it should be
      BackendUnreachable            69   a backend cannot be reached
      CannotWrite                   73   a home, folder or disk that takes no more
        NoSpaceLeft                    73   for want of room, or of quota: it works again once there is some
      TryAgain                      75   busy now, may work later
      NotMade                       75   a job of an array whose turn has not come; 64 where it never does
      NotAllowed                    77   rights are missing
        NeedsLogin                  77   a person has to type something first
        RightsMissing               77   rights without which nothing was started
      ConfigError                   78   the configuration is at fault, or too new or old for this version
        HomeNotBound                78   the home is a copy, or was moved: it only reads
      BackendError                  69   anything that a backend raises (root of that family)
      RunnerError                   70   anything that a runner raises (root of that family)
        LaunchRefused               70   this launch cannot work however often it is tried
        NotRunning                  69   a job that does not run is asked for what only a running one has
        SlotsBusy                   75   slots or CPUs are taken now; carries the reason in words

Foreign exceptions are wrapped where they come in; none reaches a user as a traceback. Exit codes are those of
``sysexits.h`` (design, section 3, decision 11).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from workbench.values import dataclass


class FabricError(Exception):
    """Root of all errors of ours: a sentence for the user, and a hint that says what to do."""

    exit_code: int = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(FabricError):
    """The words of a command are wrong."""

    exit_code = 64


def is_utf8(text: str) -> bool:
    """Say whether a text can be written as UTF-8; an argument that holds other bytes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def not_utf8(text: str) -> UsageError:
    """Return the error of an argument that is not UTF-8, which no name, value or filter is."""
    return UsageError(
        f"{text!a} is not UTF-8", hint="use a terminal and a locale with UTF-8, such as LANG=C.UTF-8"
    )


class UnknownName(UsageError):
    """A name that stands for nothing here; the hint names what there is."""


class AmbiguousName(UsageError):
    """A prefix or a name that fits more than one thing."""


@dataclass(frozen=True, slots=True)
class ManifestFault:
    """One thing that is wrong in a manifest, as exactly as it can be said."""

    file: str
    line: int
    """From 1; 0 when the fault has no position (an option, a missing file)."""
    column: int
    key: str
    """Dotted path of the key, ``data_stores.0.type``; empty for the whole document."""
    problem: str
    """What was found and what would be right, one sentence."""
    hint: str = ""

    def __str__(self) -> str:
        position = self.file + (f":{self.line}:{self.column}" if self.line else "")
        key = f" {self.key}:" if self.key else ""
        return f"{position}:{key} {self.problem}" + (f" ({self.hint})" if self.hint else "")


class PatternTooSlow(UsageError):
    """A regular expression that took too long on some line or value, and was given up."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"the regular expression /{pattern}/ takes too long and was given up",
            hint="repeat less than anything: [^ ]* ends sooner than .*; or look for a plain text",
        )
        self.pattern = pattern


class ManifestError(FabricError):
    """A manifest that cannot be used; ``faults`` holds every fault, in the order of the file."""

    exit_code = 65

    def __init__(
        self, faults: Sequence[ManifestFault], *, hint: str = "", warnings: Sequence[ManifestFault] = ()
    ) -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint=hint)
        self.faults = tuple(faults)
        self.warnings = tuple(warnings)


class InputMissing(FabricError):
    """A file or folder that is not there, cannot be read, or is of the wrong kind."""

    exit_code = 66


class BackendUnreachable(FabricError):
    """A backend that does not answer."""

    exit_code = 69


class AnswerPending(BackendUnreachable):
    """A call that a backend has not answered yet, and that goes on: it may be reached all the same."""


class CannotWrite(FabricError):
    """A home, folder or disk that takes no more."""

    exit_code = 73


class NoSpaceLeft(CannotWrite):
    """A disk without room, or a quota that is used up."""


class TryAgain(FabricError):
    """Busy now; the same may work later."""

    exit_code = 75


class NotAllowed(FabricError):
    """Rights are missing."""

    exit_code = 77


class NeedsLogin(NotAllowed):
    """A backend that lets nobody in before a person has typed a password, a passphrase or a code."""


class RightsMissing(NotAllowed):
    """Rights are missing that a launch needs; it has started nothing."""


class ConfigError(FabricError):
    """The configuration is at fault, or a file is from a newer version of fabric."""

    exit_code = 78


class HomeNotBound(ConfigError):
    """A home that is a copy of another one, or was moved: it can be read, and steers no learner."""


class BackendError(FabricError):
    """Raised when a backend fails for any reason; backends must raise this or a subclass, never a foreign one."""

    exit_code = 69


class RunnerError(FabricError):
    """Raised when a runner fails for any reason; runners must raise this or a subclass, never a foreign one."""

    exit_code = 70


class LaunchRefused(RunnerError):
    """A launch that cannot work however often it is tried (memory the machine does not have, no such command)."""

    def __init__(self, message: str, *, hint: str = "", code: str = "C104") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class NotRunning(RunnerError):
    """A job that does not run (yet, or any more) is asked for what only a running one has."""

    exit_code = 69


class SlotsBusy(RunnerError):
    """Slots or CPUs that are taken now; the message is the reason that a waiting job shows."""

    exit_code = 75


_UNMAPPED: Final = ("failed to map segment", "cannot allocate memory")
"""What the loader says of a library that there is no memory for."""


def lacks(error: BaseException) -> str:
    """Say what this process had too little of for what failed; empty where it failed for another reason."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return "no file descriptors"
        if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM):
            return "no memory"
        if isinstance(cause, ImportError) and any(words in str(cause).lower() for words in _UNMAPPED):
            return "no memory"
        if isinstance(cause, RuntimeError) and "start new thread" in str(cause):
            return "no memory or threads"
        cause = cause.__cause__ or cause.__context__
    return ""
