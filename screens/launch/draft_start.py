"""Starts what a draft describes, as the command line beside the form would, in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench import formats

if TYPE_CHECKING:
    from screens.launch.draft import Draft
    from screens.launch.preview_page import RunOptionsReader
    from screens.workers.background import TaskReport


def start_draft(draft: Draft, read_options: RunOptionsReader, report: TaskReport) -> list[str]:
    """Start a draft; return the ids of its jobs, search or schedule.

    Raises:
        Cancelled: the task was ended.
        FabricError: it cannot be started like that.
    """
    from workbench.services.submit.start import StartReport, start_again, start_run

    def progress(step: str, done: int, total: int) -> None:
        report(formats.code_progress(step, done, total), done / total if total and step != "look" else None)

    words = draft.arguments()
    told = StartReport(report, progress, report.cancel)
    if draft.is_exactly_again:
        return [start_again(draft.again, origin="tui", argv=("fabric", *words), report=told)]
    return start_run(read_options(words[1:]), origin="tui", report=told)
