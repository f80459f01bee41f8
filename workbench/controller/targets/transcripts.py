"""Makes the index and the records of a learner with the ``sh`` agent from its output, and masks secrets in it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds
from workbench.paths import LearnerFolder
from workbench.store.db.errors import write_failure

if TYPE_CHECKING:
    from workbench.learner.scribe.masking import Mask
    from workbench.learner.scribe.transcriber import Transcriber

STEP_SECONDS: Final = 0.2
"""How long one learner's output is worked on while others wait."""

IDLE_SECONDS: Final = 1.0
"""How often its files are read while it prints nothing."""


class Transcript:
    """Transcribes the output of one such learner. Only the controller does so: there is one controller a home."""

    def __init__(self, folder: LearnerFolder, secrets: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._folder = folder
        self._secrets = secrets
        self._say = say
        self._open_transcribers: list[Transcriber] = []
        self.due = 0.0
        """When to read its files even if no change was reported, on the clock of :func:`elapsed_seconds`."""

    @staticmethod
    def is_needed(folder: LearnerFolder) -> bool:
        """Say whether a learner's agent is the ``sh`` one: it reads its launch document as shell text."""
        return folder.launch_sh.exists()

    def step(self) -> bool:
        """Transcribe what is new; return whether there is more to do at once.

        Raises:
            CannotWrite: the disk takes no more; the same call works later.
        """
        until = elapsed_seconds() + STEP_SECONDS
        more = True
        while more and elapsed_seconds() < until:
            more = any(self._each(lambda one: one.step()))
        self.due = elapsed_seconds() + (0.0 if more else IDLE_SECONDS)
        return more

    def finish(self) -> None:
        """Transcribe all that is left, once the learner is over.

        Raises:
            CannotWrite: the disk takes no more; the same call works later.
        """
        while not all(self._each(lambda one: one.finish_step(STEP_SECONDS))):
            pass

    def close(self) -> None:
        """Close the descriptors."""
        while self._open_transcribers:
            with contextlib.suppress(OSError):
                self._open_transcribers.pop().close()

    def _each(self, do: Callable[[Transcriber], bool]) -> list[bool]:
        try:
            return [do(one) for one in self._transcribers()]
        except OSError as error:
            self.close()  # they start again from the files, wherever they were
            raise write_failure(error, self._folder.path) from error
        except Exception as error:
            # A foreign collector may raise anything: the output matters more than its metrics.
            self._say(f"{self._folder.path}: collects no more: {type(error).__name__}: {error}")
            for one in self._open_transcribers:
                one.give_up_collecting()
            return []

    def _transcribers(self) -> list[Transcriber]:
        if not self._open_transcribers:
            from workbench.learner.scribe.masking import Mask, secret_texts
            from workbench.learner.scribe.transcriber import Transcriber

            launch = json.loads(self._folder.launch.read_bytes())
            mask: Mask = Mask(secret_texts(self._secrets))
            folder = str(self._folder.path)
            if launch.get("setup"):
                self._open_transcribers.append(
                    Transcriber(folder, launch, mask=mask, name="setup", collect=False)
                )
            self._open_transcribers.append(Transcriber(folder, launch, mask=mask))
        return self._open_transcribers
