"""A JUnit file of jobs that have ended, as CI systems show test results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

from workbench.formats import MICROSECONDS, iso, number
from workbench.job import Fault, State

if TYPE_CHECKING:
    from workbench.cli.follow.report import Report

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(reports: Sequence[Report]) -> str:
    """Return the document: a suite for each job, a case for the job and one for each requirement."""
    suites = [_suite(report) for report in reports]
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n' + "".join(suites) + "</testsuites>\n"


def _suite(report: Report) -> str:
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
        hostname=row.place.backend,
    )
    pairs = [("id", row.id), ("state", row.state), ("results", report.results)]
    pairs += [(each.name, number(each.last)) for each in report.series if each.learner == 1]
    properties = "".join(f"<property {_attributes(name=name, value=value)}/>" for name, value in pairs)
    output = f"<system-out>{_text(report.tail)}</system-out>"
    return f"<testsuite {head}><properties>{properties}</properties>\n{''.join(cases)}{output}</testsuite>\n"


def _cases(report: Report) -> Iterator[str]:
    row = report.row
    inner = ""
    if report.exit_code:
        kind = "error" if row.reason.fault is Fault.PLATFORM else "failure"
        what = _attributes(message=row.reason.text or row.state, type=row.reason.code or row.state)
        inner = f"<{kind} {what}>{_text(row.reason.hint)}</{kind}>"
    elif row.state is not State.COMPLETED:
        inner = f"<skipped {_attributes(message=row.state)}/>"
    yield f"<testcase {_attributes(classname='fabric', name=row.name, time=_seconds(report))}>{inner}</testcase>\n"
    for verdict in report.verdicts:
        said = "" if verdict.holds else f"<failure {_attributes(message=verdict.sentence, type='require')}/>"
        head = _attributes(classname=f"fabric.{row.name}", name=verdict.condition.text, time="0")
        yield f"<testcase {head}>{said}</testcase>\n"


def _seconds(report: Report) -> str:
    row = report.row
    took = (row.ended_us - row.started_us) / MICROSECONDS if row.ended_us and row.started_us else 0.0
    return f"{took:.3f}"


def _attributes(**pairs: str) -> str:
    return " ".join(f"{name}={quoteattr(_NOT_XML.sub('?', value))}" for name, value in pairs.items())


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("?", text))
