"""Shows a transfer: its progress in a line at the foot of the terminal, everything else in sentences on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.terminal.console import is_terminal, narrate
from workbench.terminal.status_line import StatusLine

if TYPE_CHECKING:
    from workbench.services.transfer.events import Report, TransferEvent


@contextmanager
def shown_transfer(*, progress: bool = True) -> Iterator[Report]:
    """Give what takes a transfer's events; progress is shown on a terminal only, unless it is switched off."""
    from workbench.services.transfer.events import CopyProgress, event_text

    line = StatusLine() if progress and is_terminal(sys.stderr) else None

    def report(event: TransferEvent) -> None:
        if isinstance(event, CopyProgress):
            if line:
                line.draw(event_text(event))
            return
        (line.say if line else narrate)(event_text(event))

    try:
        yield report
    finally:
        if line:
            line.clear()
