"""A Markdown summary of jobs that have ended, for a CI system's page or a merge request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.formats import MICROSECONDS, duration, number
from workbench.job import State, nine

if TYPE_CHECKING:
    from workbench.cli.follow.report import Report

MARKS = {State.COMPLETED: "✅", State.FAILED: "❌", State.HALTED: "⏹️"}


def summary(reports: Sequence[Report]) -> str:
    """Return the page: a section for each job."""
    return "\n".join(line for report in reports for line in _section(report)) + "\n"


def _section(report: Report) -> Iterator[str]:
    row = report.row
    met = all(verdict.holds for verdict in report.verdicts)
    mark = MARKS.get(row.state, "") if met else "❌"
    yield f"## {mark} {_cell(row.name)}: {row.state.lower()}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| job | `{nine(row.id)}` |"
    if row.reason.text and row.state is not State.COMPLETED:
        code = f" ({row.reason.code})" if row.reason.code else ""
        yield f"| why | {_cell(row.reason.text)}{code} |"
    if row.reason.hint:
        yield f"| what to do | {_cell(row.reason.hint)} |"
    yield f"| exit code | {report.exit_code} |"
    if row.started_us and row.ended_us:
        yield f"| ran | {duration((row.ended_us - row.started_us) / MICROSECONDS)} |"
    yield f"| place | {_cell(row.place.backend)}, as {row.place.runner} |"
    if row.attempt > 1:
        yield f"| attempts | {row.attempt} |"
    yield ""
    if report.verdicts:
        yield from (f"- {'✅' if each.holds else '❌'} {_cell(each.sentence)}" for each in report.verdicts)
        yield ""
    metrics = [each for each in report.series if each.learner == 1]
    if metrics:
        yield "| metric | last | least | greatest | step |"
        yield "|---|---:|---:|---:|---:|"
        for each in metrics:
            step = "" if each.last_step is None else str(each.last_step)
            cells = (number(each.last), number(each.minimum), number(each.maximum), step)
            yield f"| {_cell(each.name)} | {' | '.join(cells)} |"
        yield ""
    if report.tail.strip():
        fence = "`" * (3 + max((len(run) for run in _ticks(report.tail)), default=0))
        yield "<details><summary>the last lines of its log</summary>"
        yield ""
        yield fence + "text"
        yield report.tail.strip("\n")
        yield fence
        yield ""
        yield "</details>"
        yield ""


def _ticks(text: str) -> list[str]:
    import re

    return re.findall(r"`+", text)


def _cell(text: str) -> str:
    """Return a text that stays in its cell and marks nothing up."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\|`*_[]<>" else c for c in plain)
