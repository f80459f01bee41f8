"""The overview of a job: where it stands and why, its times by phase, what it runs, where its results are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.content import Content

from screens.jobs.queries import JobPage
from screens.style import status, text
from screens.widgets.markup import fact, facts, heading, page, plain, table
from workbench.job import TERMINAL
from workbench.paths import Home
from workbench.spec import JobSpec
from workbench.store.db.rows import AttemptRow, JobRow, LearnerRow


def overview(shown: JobPage, home: Home, now_us: int) -> Content:
    """Return the page."""
    row, detail = shown.row, shown.detail
    recorded = detail.recorded if detail else {}
    return page(
        _state(shown, now_us),
        _metrics(shown),
        _attempts(shown, now_us),
        _learners(shown),
        _what(row, detail.spec) if detail else [plain(shown.trouble, "error")],
        _code(detail.code_hash, recorded) if detail else [],
        _places(row, home),
        [plain(f"  {note.level}: {note.text}", "warning") for note in shown.notes[-10:]],
    )


def _state(shown: JobPage, now_us: int) -> list[Content]:
    row = shown.row
    look = status.look(row.state)
    lines = [Content.styled(f"{look}", f"bold $role-{row.state.lower()}") + Content("  ") + plain(row.name)]
    if why := status.why(row, now_us):
        lines.append(fact("why", plain(why, "error" if status.is_problem(row) else "text")))
    seconds = status.run_seconds(row, now_us)
    progress = "" if shown.figures.fraction is None else f"{shown.figures.fraction:.0%} "
    code = (
        "" if row.exit_code is None else f"{row.exit_code}" + (f" (by {row.exit_by})" if row.exit_by else "")
    )
    took = "" if seconds is None else text.duration(seconds)
    return [
        *lines,
        *facts(
            (
                ("what to do", plain(row.reason.hint)),
                ("whose fault", status.fault_words(row)),
                ("exit code", code),
                ("progress", progress + shown.figures.progress),
                ("ran" if row.state in TERMINAL else "running for", took),
                ("submitted", f"{text.clock_time(row.submitted_us, now_us=now_us)} by {row.owner}"),
                ("id", row.id),
                ("tags", " ".join(row.tags)),
                ("note", row.note),
            )
        ),
    ]  # fmt: skip


def _metrics(shown: JobPage) -> list[Content]:
    values = [series for series in shown.metrics if series.learner == 1]
    if not values:
        return []
    rows = [
        (
            series.name,
            text.number(series.last),
            "" if series.minimum is None else text.number(series.minimum),
            "" if series.maximum is None else text.number(series.maximum),
            "" if series.last_step is None else str(series.last_step),
        )
        for series in values[:12]
    ]
    more = [plain(f"  and {len(values) - 12} more: see the charts", "dim")] if len(values) > 12 else []
    return [heading("Metrics"), *table(("metric", "last", "least", "most", "step"), rows), *more]


_PHASES = ("queued_us", "pending_us", "downloading_us", "processing_us", "storing_us", "ended_us")


def _attempts(shown: JobPage, now_us: int) -> list[Content]:
    rows = [_attempt(attempt, now_us) for attempt in reversed(shown.attempts[-8:])]
    titles = ("attempt", "state", "queued", "pending", "downloading", "processing", "storing", "exit", "node")
    return [heading("Attempts: time in each phase"), *table(titles, rows)] if rows else []


def _attempt(attempt: AttemptRow, now_us: int) -> tuple[str | Content, ...]:
    moments = [getattr(attempt, name) for name in _PHASES]
    spans = []
    for index, start in enumerate(moments[:-1]):
        later = [moment for moment in moments[index + 1 :] if moment is not None]
        end = later[0] if later else now_us
        spans.append("" if start is None else text.duration((end - start) / 1e6))
    look = status.look(attempt.state)
    code = "" if attempt.exit_code is None else str(attempt.exit_code)
    return (str(attempt.attempt), plain(str(look), attempt.state.lower()), *spans, code, attempt.node)


def _learners(shown: JobPage) -> list[Content]:
    current = [row for row in shown.learners if row.attempt == shown.row.attempt]
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
    asked = [text.count(spec.learners, "learner")]
    asked += [f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''}{per}"] if spec.gpus else []
    asked += [f"{spec.cpus:g} CPUs{per}"] if spec.cpus else []
    asked += [f"{text.size(spec.memory_bytes)} memory{per}"] if spec.memory_bytes else []
    params = " ".join(f"{name}={value}" for name, value in spec.params.items())
    return [
        heading("What"),
        *facts(
            (
                ("command", spec.framework.command),
                ("setup", spec.setup),
                ("framework", f"{spec.framework.name} {spec.framework.version}".strip()),
                ("image", spec.image),
                ("place", f"{row.place.backend} ({row.place.type}), as {row.place.runner}"),
                ("asked for", ", ".join(asked)),
                ("params", params),
                ("python", spec.python),
                ("seed", "" if spec.seed is None else str(spec.seed)),
                ("description", spec.description),
            )
        ),
    ]


def _code(code_hash: str, recorded: Mapping[str, Any]) -> list[Content]:
    git = recorded.get("git")
    said = ""
    if isinstance(git, Mapping) and git.get("commit"):
        dirty = " with uncommitted changes" if git.get("dirty") else ""
        said = f"{str(git['commit'])[:12]} on {git.get('branch') or 'no branch'}{dirty}"
    host = recorded.get("host")
    name = host.get("name") or host.get("hostname") if isinstance(host, Mapping) else host
    return [
        heading("Code"),
        *facts(
            (
                ("snapshot", code_hash[:12]),
                ("git", said),
                ("interpreter", str(recorded.get("python") or "")),
                ("submitted on", str(name or "")),
                ("from folder", str(recorded.get("cwd") or "")),
                ("fabric", str(recorded.get("fabric") or "")),
            )
        ),
    ]


def _places(row: JobRow, home: Home) -> list[Content]:
    folder = home.job(row.id)
    return [
        heading("Where"),
        *facts(
            (
                ("results", str(folder.results)),
                ("checkpoints", str(folder.checkpoints)),
                ("log", str(folder.attempt(row.attempt).learner(1).output)),
                ("job folder", str(folder.path)),
            )
        ),
    ]
