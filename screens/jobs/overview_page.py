"""The overview of a job: where it stands and why, its times by phase, what it runs, where its results are."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from screens.style import status
from screens.widgets.markup import fact, facts, heading, page, plain, table
from workbench import formats
from workbench.job import TERMINAL
from workbench.services.inspect.job_overview import AttemptOverview, JobOverview, RecordedCode
from workbench.services.inspect.job_times import known_until_us, phase_times, run_seconds
from workbench.spec import JobSpec
from workbench.store.db.rows import JobRow, LearnerRow


def overview_page(shown: JobOverview, now_us: int) -> Content:
    """Return the page; its times are as of ``now_us``, later than what was read."""
    row, detail = shown.row, shown.detail
    return page(
        _state(shown, now_us),
        _metrics(shown),
        _attempts(shown, now_us),
        _learners(shown),
        _what(row, detail.spec) if detail else [plain(str(shown.error), "error")],
        _code(shown.code) if detail else [],
        _paths(shown),
        [plain(f"  {note.level}: {note.text}", "warning") for note in shown.notes[-10:]],
    )


def _state(shown: JobOverview, now_us: int) -> list[Content]:
    row = shown.row
    look = status.look(row.state)
    lines = [Content.styled(f"{look}", f"bold $role-{row.state.lower()}") + Content("  ") + plain(row.name)]
    if why := status.why(row, now_us):
        lines.append(fact("why", plain(why, "error" if status.is_problem(row) else "text")))
    seconds = run_seconds(row, now_us)
    progress = _progress(shown)
    code = (
        "" if row.exit_code is None else f"{row.exit_code}" + (f" (by {row.exit_by})" if row.exit_by else "")
    )
    took = "" if seconds is None else formats.duration(seconds)
    return [
        *lines,
        *facts(
            (
                ("what to do", plain(row.reason.hint)),
                ("fault", status.fault_words(row)),
                ("exit code", code),
                ("progress", progress),
                ("ran" if row.state in TERMINAL else "running for", took),
                ("submitted", f"{formats.clock_time(row.submitted_us, now_us=now_us)} by {row.owner}"),
                ("id", row.id),
                ("tags", " ".join(row.tags)),
                ("note", row.note),
            )
        ),
    ]  # fmt: skip


def _progress(shown: JobOverview) -> str:
    if shown.progress is None:
        return ""
    fraction = "" if shown.progress.fraction is None else f"{shown.progress.fraction:.0%}"
    return " ".join(filter(None, (fraction, shown.progress.text)))


def _metrics(shown: JobOverview) -> list[Content]:
    values = shown.metrics
    if not values:
        return []
    rows = [
        (
            series.name + shown.learner_mark(series),
            formats.compact_number(series.last),
            "" if series.minimum is None else formats.compact_number(series.minimum),
            "" if series.maximum is None else formats.compact_number(series.maximum),
            "" if series.last_step is None else str(series.last_step),
        )
        for series in values[:12]
    ]
    more = [plain(f"  and {len(values) - 12} more: see charts", "dim")] if len(values) > 12 else []
    return [heading("Metrics"), *table(("metric", "last", "min", "max", "step"), rows), *more]


PHASES: Final = ("queued", "pending", "downloading", "processing", "storing")


def _attempts(shown: JobOverview, now_us: int) -> list[Content]:
    now_us = known_until_us(shown.row, now_us)
    rows = [_attempt(attempt, now_us) for attempt in reversed(shown.attempts[-8:])]
    titles = ("attempt", "state", *PHASES, "exit", "node")
    return [heading("Attempts: time in each phase"), *table(titles, rows)] if rows else []


def _attempt(attempt: AttemptOverview, now_us: int) -> tuple[str | Content, ...]:
    row = attempt.row
    spans = {phase.phase: formats.duration(phase.seconds) for phase in phase_times(row, now_us)}
    code = "" if row.exit_code is None else str(row.exit_code)
    state = plain(str(status.look(row.state)), row.state.lower())
    return (str(row.attempt), state, *(spans.get(phase, "") for phase in PHASES), code, row.node)


def _learners(shown: JobOverview) -> list[Content]:
    attempts = [attempt for attempt in shown.attempts if attempt.row.attempt == shown.row.attempt]
    current = attempts[-1].learners if attempts else ()
    if len(current) < 2 and not any(row.reason for row in current):
        return []
    titles = ("learner", "phase", "exit", "node", "gpus", "why")
    return [heading("Learners"), *table(titles, [_learner(row) for row in current])]


def _learner(row: LearnerRow) -> tuple[str, ...]:
    end = (
        f"signal {row.signal}"
        if row.signal is not None
        else ""
        if row.exit_code is None
        else str(row.exit_code)
    )
    why = row.reason.text if row.reason else f"stopped: {row.stopped}" if row.stopped else ""
    decided = " (decided)" if row.decided else ""
    return (str(row.learner), row.phase.value, end + decided, row.node, str(len(row.slots) or ""), why)


def _what(row: JobRow, spec: JobSpec) -> list[Content]:
    per = " each" if spec.learners > 1 else ""
    asked = [formats.count(spec.learners, "learner")]
    asked += [f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''}{per}"] if spec.gpus else []
    asked += [f"{spec.cpus:g} CPUs{per}"] if spec.cpus else []
    asked += [f"{formats.size(spec.memory_bytes)} memory{per}"] if spec.memory_bytes else []
    params = " ".join(f"{name}={value}" for name, value in spec.params.items())
    return [
        heading("What"),
        *facts(
            (
                ("command", spec.framework.command),
                ("setup", spec.setup),
                ("framework", f"{spec.framework.name} {spec.framework.version}".strip()),
                ("image", spec.image),
                ("backend", f"{row.target.backend} ({row.target.type}), runner {row.target.runner}"),
                ("resources", ", ".join(asked)),
                ("params", params),
                ("python", spec.python),
                ("seed", "" if spec.seed is None else str(spec.seed)),
                ("description", spec.description),
            )
        ),
    ]


def _code(code: RecordedCode) -> list[Content]:
    dirty = " with uncommitted changes" if code.uncommitted else ""
    git = f"{code.commit[:12]} on {code.branch or 'no branch'}{dirty}" if code.commit else ""
    return [
        heading("Code"),
        *facts(
            (
                ("snapshot", code.hash[:12]),
                ("git", git),
                ("interpreter", code.python),
                ("submitted on", code.host),
                ("from folder", code.folder),
                ("fabric", code.fabric),
            )
        ),
    ]


def _paths(shown: JobOverview) -> list[Content]:
    return [
        heading("Where"),
        *facts(
            (
                ("results", shown.results),
                ("checkpoints", str(shown.paths.checkpoints)),
                ("log", str(shown.paths.log)),
                ("job folder", str(shown.paths.folder)),
                ("ports", shown.port_forward),
            )
        ),
    ]
