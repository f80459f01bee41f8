"""Makes the journal of a learner whose agent is the ``sh`` one: index, records and masked secrets, from its files."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from workbench.paths import LearnerFolder
from workbench.store.db.errors import write_failure

if TYPE_CHECKING:
    from workbench.learner.scribe.masking import Mask
    from workbench.learner.scribe.transcriber import Transcriber

STEP_SECONDS: Final = 0.2
"""How long one learner's output may be worked on while others wait."""

IDLE_SECONDS: Final = 1.0
"""How often its files are looked at while it prints nothing."""


class Transcript:
    """The journal of one such learner in the making. The controller is its only reader, so nobody else makes it."""

    def __init__(self, folder: LearnerFolder, secrets: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._folder = folder
        self._secrets = secrets
        self._say = say
        self._made: list[Transcriber] = []
        self.due = 0.0
        """When to look at its files though none has told of a change, on the monotonic clock."""

    @staticmethod
    def is_needed(folder: LearnerFolder) -> bool:
        """Say whether a learner's agent is the ``sh`` one: it reads its launch document as shell text."""
        return folder.launch_sh.exists()

    def step(self) -> bool:
        """Transcribe what is new; return whether there is more to do at once.

        Raises:
            CannotWrite: the disk takes no more; the same call works later.
        """
        until = time.monotonic() + STEP_SECONDS
        more = True
        while more and time.monotonic() < until:
            more = any(self._each(lambda one: one.step()))
        self.due = time.monotonic() + (0.0 if more else IDLE_SECONDS)
        return more

    def finish(self) -> None:
        """Transcribe all that is left; nothing comes any more.

        Raises:
            CannotWrite: the disk takes no more; the same call works later.
        """
        while not all(self._each(lambda one: one.finish_step(STEP_SECONDS))):
            pass

    def close(self) -> None:
        """Give the descriptors back."""
        while self._made:
            with contextlib.suppress(OSError):
                self._made.pop().close()

    def _each(self, do: Callable[[Transcriber], bool]) -> list[bool]:
        try:
            return [do(one) for one in self._transcribers()]
        except OSError as error:
            self.close()  # made anew from the files, wherever this one was
            raise write_failure(error, self._folder.path) from error
        except Exception as error:
            # A foreign collector may raise anything: what is printed matters more than what it makes of it.
            self._say(f"{self._folder.path}: collects no more: {type(error).__name__}: {error}")
            for one in self._made:
                one.give_up_collecting()
            return []

    def _transcribers(self) -> list[Transcriber]:
        if not self._made:
            from workbench.learner.scribe.masking import Mask
            from workbench.learner.scribe.transcriber import Transcriber

            launch = json.loads(self._folder.launch.read_bytes())
            mask: Mask = Mask(self._secrets.values())
            folder = str(self._folder.path)
            if launch.get("setup"):
                self._made.append(Transcriber(folder, launch, mask=mask, name="setup", collect=False))
            self._made.append(Transcriber(folder, launch, mask=mask))
        return self._made
