"""A person and a job's code: asked whether very much is taken, and told how far it is where that takes long."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.errors import UsageError
from workbench.formats import count, size
from workbench.terminal.console import confirm, is_terminal, narrate, person_present

if TYPE_CHECKING:
    from workbench.data.code.bounds import CodeExcess
    from workbench.data.code.snapshot import SnapshotOptions

SILENT_SECONDS: Final = 3.0
"""So long nothing is said of work that goes on, first and between two lines."""

_agreed: set[Path] = set()
"""Of which code a person has said that all of it is taken: the jobs of a sweep do not ask again."""


def taking_code(*, quiet: bool, asks: bool = True) -> SnapshotOptions:
    """Return how code is taken where a person may sit at the terminal.

    Args:
        quiet: whether nothing is told.
        asks: whether that person may be asked.
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
    """Says every few seconds how far it is."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SILENT_SECONDS

    def __call__(self, step: str, done: int, total: int) -> None:
        """Say it, if it is time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + SILENT_SECONDS
        if step == "look":
            narrate(f"scanning the code: {count(done, 'entry', 'entries')} so far")
        else:
            narrate(f"{step}s the code: {size(done)} of {size(total)}")
