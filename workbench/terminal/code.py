"""Asks a person whether a very large folder is taken as code, and shows progress where that takes long."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.errors import UsageError
from workbench.formats import code_progress
from workbench.terminal.console import confirm, is_terminal, narrate, person_present

if TYPE_CHECKING:
    from workbench.data.code.bounds import CodeExcess
    from workbench.data.code.snapshot import SnapshotOptions

SILENT_SECONDS: Final = 3.0
"""The time before the first line of progress, and between two lines."""

_agreed: set[Path] = set()
"""Folders that a person has agreed to take: the jobs of a sweep do not ask again."""


def terminal_code_options(*, quiet: bool, asks: bool = True) -> SnapshotOptions:
    """Return how code is taken with a person at the terminal.

    Args:
        quiet: whether no progress is shown.
        asks: whether the person may be asked.
    """
    from workbench.data.code.snapshot import SnapshotOptions

    plain = SnapshotOptions()
    return SnapshotOptions(
        agree=_agree if asks else plain.agree,
        progress=plain.progress if quiet else _CodeProgress(),
    )


def _agree(found: CodeExcess) -> bool:
    from workbench.data.code.bounds import INSTEAD

    if found.source in _agreed:
        return True
    if not (person_present() and sys.stdin is not None and is_terminal(sys.stdin)):
        return False
    narrate(str(found))
    if not confirm("Take all of it?", yes=False):
        raise UsageError("the code is not taken", hint=INSTEAD)
    _agreed.add(found.source)
    return True


class _CodeProgress:
    """Prints a line of progress every few seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SILENT_SECONDS

    def __call__(self, step: str, done: int, total: int) -> None:
        """Print a line, if it is time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + SILENT_SECONDS
        narrate(code_progress(step, done, total))
