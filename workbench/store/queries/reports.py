"""Which points were reported together, as far as it was written down."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right

from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class ReportRuns:
    """The reports that the points of a series come from."""

    firsts: tuple[int, ...] = ()
    """The number of the point that each run begins with, ascending."""
    counts: tuple[int, ...] = ()
    reports: tuple[int, ...] = ()
    """The report of each run's first point; those of the others follow it."""

    def report_of(self, seq: int) -> int | None:
        """Return the number of a point's report in its attempt; None where it is not known."""
        at = bisect_right(self.firsts, seq) - 1
        if at < 0 or seq >= self.firsts[at] + self.counts[at]:
            return None
        return self.reports[at] + seq - self.firsts[at]


def has_reports(connection: sqlite3.Connection) -> bool:
    """Say whether anything is known of reports: an older version's home knows nothing."""
    sql = "SELECT 1 FROM main.sqlite_master WHERE name = 'report_runs'"
    return connection.execute(sql).fetchone() is not None


def report_runs(connection: sqlite3.Connection, job_id: str, series_id: int) -> ReportRuns:
    """Return the reports of a series' points."""
    if not has_reports(connection):
        return ReportRuns()
    sql = "SELECT first, count, report FROM main.report_runs WHERE job_id = ? AND series = ? ORDER BY first"
    found = connection.execute(sql, (job_id, series_id)).fetchall()
    return ReportRuns(*zip(*found, strict=True)) if found else ReportRuns()
