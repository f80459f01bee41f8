"""Tells a task of the screens what a transfer reports, in the words of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from screens.workers.background import TaskReport
    from workbench.services.transfer.events import Report, TransferEvent


def transfer_report(task: TaskReport) -> Report:
    """Return what takes a transfer's events for a task."""
    from workbench.services.transfer.events import CopyProgress, event_text

    def report(event: TransferEvent) -> None:
        share = None
        if isinstance(event, CopyProgress) and event.progress.total_bytes:
            share = event.progress.done_bytes / event.progress.total_bytes
        task(event_text(event), share)

    return report
