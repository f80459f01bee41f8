"""What a CI run does with jobs that have ended: requirements, a JUnit file, a Markdown summary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.errors import CannotWrite
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition, Verdict
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, SeriesRow

EXIT_NOT_MET: Final = 1
TAIL_LINES: Final = 50
"""So many of the last lines of a log go into a report."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported of one job."""

    row: JobRow
    exit_code: int
    """The command's own, requirements left out."""
    verdicts: tuple[Verdict, ...]
    series: tuple[SeriesRow, ...]
    tail: str
    """The last lines of its first learner's log."""
    results: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be done at the end."""

    require: tuple[Condition, ...] = ()
    junit: str = ""
    summary: str = ""

    def __bool__(self) -> bool:
        return bool(self.require or self.junit or self.summary)


def check(wishes: Wishes) -> None:
    """See before anything starts that the reports can be written.

    Raises:
        CannotWrite: a folder is not there, or cannot be written.
    """
    for option, name in (("--junit", wishes.junit), ("--summary", wishes.summary)):
        if not name:
            continue
        file = Path(name)
        if file.is_dir():
            raise CannotWrite(f"{option} {name} is a folder", hint="name a file")
        if not file.absolute().parent.is_dir():
            raise CannotWrite(f"{option} {name}: there is no folder {file.absolute().parent}")
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise CannotWrite(f"{option} {name} cannot be written")


def finish(store: Store, rows: Sequence[tuple[JobRow, int]], wishes: Wishes) -> int:
    """Hold requirements against the jobs, write the reports, and return the exit code.

    A job's own failure goes before a requirement that is not met, of several jobs the first one's.
    """
    reports = [_report(store, row, code, wishes.require) for row, code in rows]
    for report in reports:
        for verdict in report.verdicts:
            whose = f"{report.row.name}: " if len(reports) > 1 else ""
            narrate(f"{'met' if verdict.holds else 'not met'}: {whose}{verdict.sentence}")
    if wishes.junit:
        from workbench.cli.follow.x_junit import junit

        _write(wishes.junit, junit(reports))
    if wishes.summary:
        from workbench.cli.follow.x_summary import summary

        _write(wishes.summary, summary(reports), append=_is_step_summary(wishes.summary))
    code = next((report.exit_code for report in reports if report.exit_code), 0)
    met = all(verdict.holds for report in reports for verdict in report.verdicts)
    return code or (0 if met else EXIT_NOT_MET)


def _report(store: Store, row: JobRow, code: int, require: Sequence[Condition]) -> Report:
    from workbench.metrics import series
    from workbench.metrics.conditions import judge

    found = tuple(series(store, row.id, kinds=("value",)))
    results = str(store.home.job(row.id).results)
    return Report(row, code, tuple(judge(require, found)), found, _tail(store, row), results)


def _tail(store: Store, row: JobRow) -> str:
    from workbench.errors import FabricError
    from workbench.logs.display import last_state
    from workbench.logs.journal import JournalReader
    from workbench.logs.sanitise import plain

    try:
        with JournalReader(store.home.job(row.id).attempt(row.attempt).learner(1)) as journal:
            start = journal.tail_offset(TAIL_LINES)
            data = journal.read(start, 1 << 16)
    except FabricError:
        return ""
    return "\n".join(plain(last_state(line).decode(errors="replace")) for line in data.split(b"\n"))


def _is_step_summary(name: str) -> bool:
    """Say whether it is the file that GitHub collects summaries in, which other steps write to as well."""
    told = os.environ.get("GITHUB_STEP_SUMMARY")
    return bool(told) and Path(name).absolute() == Path(str(told)).absolute()


def _write(name: str, text: str, *, append: bool = False) -> None:
    try:
        with Path(name).open("a" if append else "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise CannotWrite(f"{name} cannot be written: {error.strerror}") from error
