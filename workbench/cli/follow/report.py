"""Reports of jobs that have ended: verdicts on stderr, files, and the exit code of the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.follow.options import FollowOptions
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


def finish(store: Store, rows: Sequence[tuple[JobRow, int]], options: FollowOptions) -> int:
    """Check the requirements of jobs that have ended, write the reports, and return the exit code."""
    from workbench.services.inspect.job_report import exit_code, report_job

    reports = [report_job(store, row, code, options.require) for row, code in rows]
    for report in reports:
        for verdict in report.verdicts:
            whose = f"{report.row.name}: " if len(reports) > 1 else ""
            narrate(f"{'met' if verdict.holds else 'not met'}: {whose}{verdict.sentence}")
    options.report_files.write(reports)
    return exit_code(reports)
