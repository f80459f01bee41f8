"""What is reported of jobs that have ended: requirements, metrics, the end of the log; and the files of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.clock import now_us
from workbench.errors import CannotWrite, FabricError
from workbench.formats import duration, iso, number
from workbench.job import FaultOwner, State, short_id
from workbench.services.inspect.job_times import run_seconds
from workbench.services.inspect.why import why
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition, Verdict
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, SeriesRow

EXIT_NOT_MET: Final = 1
TAIL_LINES: Final = 50
"""So many of the last lines of a log go into a report."""
TAIL_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files that reports are written to; an empty name writes none."""

    junit: str = ""
    summary: str = ""
    """In Markdown; the file of ``GITHUB_STEP_SUMMARY`` is appended to."""

    def check(self) -> None:
        """Check that the files can be written, before anything starts.

        Raises:
            CannotWrite: a folder is not there, or cannot be written.
        """
        for option, name in (("--junit", self.junit), ("--summary", self.summary)):
            if name:
                _check_writable(option, name)

    def write(self, reports: Sequence[JobReport]) -> None:
        """Write the files.

        Raises:
            CannotWrite: one cannot be written.
        """
        if self.junit:
            _write(self.junit, junit(reports))
        if self.summary:
            _write(self.summary, summary(reports), append=_is_step_summary(self.summary))


@dataclass(frozen=True, slots=True)
class JobReport:
    """What is reported of one job."""

    row: JobRow
    exit_code: int
    """The command's own, requirements left out."""
    verdicts: tuple[Verdict, ...]
    series: tuple[SeriesRow, ...]
    tail: str
    """The last lines of its first learner's log."""
    results: str


def report_job(store: Store, row: JobRow, exit_code: int, require: Sequence[Condition] = ()) -> JobReport:
    """Return what is reported of a job that has ended, with a verdict on each requirement."""
    from workbench.metrics import series
    from workbench.metrics.conditions import judge

    found = tuple(each for each in series(store, row.id, kinds=("value",)) if each.points)
    results = str(store.home.job(row.id).results)
    return JobReport(row, exit_code, tuple(judge(require, found)), found, _tail(store, row), results)


def _tail(store: Store, row: JobRow) -> str:
    from workbench.logs.display import last_state
    from workbench.logs.journal import JournalReader
    from workbench.logs.sanitise import plain

    try:
        with JournalReader(store.home.job(row.id).attempt(row.attempt).learner(1)) as journal:
            start = journal.tail_offset(TAIL_LINES)
            data = journal.read(start, TAIL_BYTES)
    except FabricError:
        return ""
    return "\n".join(plain(last_state(line).decode(errors="replace")) for line in data.split(b"\n"))


def _is_step_summary(name: str) -> bool:
    """Say whether it is the file in which GitHub collects the summaries of all steps."""
    file = os.environ.get("GITHUB_STEP_SUMMARY")
    return bool(file) and Path(name).absolute() == Path(str(file)).absolute()


def _write(name: str, text: str, *, append: bool = False) -> None:
    try:
        with Path(name).open("a" if append else "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise CannotWrite(f"{name} cannot be written: {error.strerror}") from error


def _check_writable(option: str, name: str) -> None:
    file = Path(name)
    if file.is_dir():
        raise CannotWrite(f"{option} {name} is a folder", hint="name a file")
    if not file.absolute().parent.is_dir():
        raise CannotWrite(f"{option} {name}: there is no folder {file.absolute().parent}")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise CannotWrite(f"{option} {name} cannot be written")


_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(reports: Sequence[JobReport]) -> str:
    """Return the document: a suite for each job, a case for the job and one for each requirement."""
    suites = [_suite(report) for report in reports]
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "".join(suites) + "</testsuites>\n"


def _suite(report: JobReport) -> str:
    row = report.row
    cases = list(_cases(report))
    failures = sum("<failure" in case for case in cases)
    errors = sum("<error" in case for case in cases)
    head = _attributes(
        name=row.name,
        tests=str(len(cases)),
        failures=str(failures),
        errors=str(errors),
        time=_seconds(report),
        timestamp=(iso(row.submitted_us) or "").removesuffix("Z"),
        hostname=row.target.backend,
    )
    pairs = [("id", row.id), ("state", row.state), ("results", report.results)]
    pairs += [(each.name, number(each.last)) for each in report.series if each.learner == 1]
    properties = "".join(f"<property {_attributes(name=name, value=value)}/>" for name, value in pairs)
    output = f"<system-out>{_text(report.tail)}</system-out>"
    return f"<testsuite {head}><properties>{properties}</properties>\n{''.join(cases)}{output}</testsuite>\n"


def _cases(report: JobReport) -> Iterator[str]:
    row = report.row
    inner = ""
    if report.exit_code:
        kind = "error" if row.reason.fault is FaultOwner.PLATFORM else "failure"
        what = _attributes(message=row.reason.text or row.state, type=row.reason.code or row.state)
        inner = f"<{kind} {what}>{_text(row.reason.hint)}</{kind}>"
    elif row.state is not State.COMPLETED:
        inner = f"<skipped {_attributes(message=row.state)}/>"
    yield f"<testcase {_attributes(classname='fabric', name=row.name, time=_seconds(report))}>{inner}</testcase>\n"
    for verdict in report.verdicts:
        failure = (
            "" if verdict.holds else f"<failure {_attributes(message=verdict.sentence, type='require')}/>"
        )
        head = _attributes(classname=f"fabric.{row.name}", name=verdict.condition.text, time="0")
        yield f"<testcase {head}>{failure}</testcase>\n"


def _seconds(report: JobReport) -> str:
    return f"{_ran(report.row) or 0.0:.3f}"


def _ran(row: JobRow) -> float | None:
    return run_seconds(row, row.ended_us) if row.ended_us else None


def _attributes(**pairs: str) -> str:
    from xml.sax.saxutils import quoteattr

    return " ".join(f"{name}={quoteattr(_NOT_XML.sub('?', value))}" for name, value in pairs.items())


def _text(text: str) -> str:
    from xml.sax.saxutils import escape  # it loads http and ssl, which every command would pay for

    return escape(_NOT_XML.sub("?", text))


MARKS: Final = {State.COMPLETED: "✅", State.FAILED: "❌", State.HALTED: "⏹️"}


def summary(reports: Sequence[JobReport]) -> str:
    """Return the page: a section for each job."""
    return "\n".join(line for report in reports for line in _section(report)) + "\n"


def _section(report: JobReport) -> Iterator[str]:
    row = report.row
    met = all(verdict.holds for verdict in report.verdicts)
    mark = MARKS.get(row.state, "") if met else "❌"
    yield f"## {mark} {_cell(row.name)}: {row.state.lower()}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| job | `{short_id(row.id)}` |"
    if row.reason.text and row.state is not State.COMPLETED:
        yield f"| why | {_cell(why(row, now_us()))} |"
    if row.reason.hint:
        yield f"| what to do | {_cell(row.reason.hint)} |"
    yield f"| exit code | {report.exit_code} |"
    if (seconds := _ran(row)) is not None:
        yield f"| ran | {duration(seconds)} |"
    yield f"| backend | {_cell(row.target.backend)}, as {row.target.runner} |"
    if row.attempt > 1:
        yield f"| attempts | {row.attempt} |"
    yield ""
    if report.verdicts:
        yield from (f"- {'✅' if each.holds else '❌'} {_cell(each.sentence)}" for each in report.verdicts)
        yield ""
    metrics = [each for each in report.series if each.learner == 1]
    if metrics:
        yield "| metric | last | min | max | step |"
        yield "|---|---:|---:|---:|---:|"
        for each in metrics:
            step = "" if each.last_step is None else str(each.last_step)
            cells = (number(each.last), number(each.minimum), number(each.maximum), step)
            yield f"| {_cell(each.name)} | {' | '.join(cells)} |"
        yield ""
    if report.tail.strip():
        fence = "`" * (3 + max((len(run) for run in _ticks(report.tail)), default=0))
        yield "<details><summary>Last lines of the log</summary>"
        yield ""
        yield fence + "text"
        yield report.tail.strip("\n")
        yield fence
        yield ""
        yield "</details>"
        yield ""


def _ticks(text: str) -> list[str]:
    return re.findall(r"`+", text)


def _cell(text: str) -> str:
    """Return a text that stays in its cell and marks nothing up."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\|`*_[]<>" else c for c in plain)
