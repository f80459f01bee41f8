"""The pages of a job that are text: its facts, and two tabs: its configuration with its native plan, its history."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from textual.content import Content

from screens.base.job_tab import JobPage, JobTab
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.notices import EmptyNotice
from screens.widgets.markup import facts, flow, heading, page, path_fact, plain, table
from screens.widgets.text_page import TextPage
from workbench import formats
from workbench.errors import FabricError
from workbench.job import State
from workbench.metrics.short_names import shared_folder
from workbench.paths import Home
from workbench.services.inspect.job_overview import AttemptOverview, JobOverview, RecordedCode
from workbench.services.inspect.job_times import known_until_us, phase_times
from workbench.services.inspect.settings import flatten, origin_of
from workbench.spec import JobSpec, spec_to_json
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, LearnerRow
from workbench.store.queries.jobs import detail


def facts_page(shown: JobOverview, now_us: int, width: int) -> Content:
    """Return the facts for so many columns; times are as of ``now_us``, later than what was read."""
    row, detail = shown.row, shown.detail
    return page(
        _state(shown, now_us),
        _metrics(shown),
        _attempts(shown, now_us, width),
        _learners(shown),
        _what(row, detail.spec) if detail else [plain(str(shown.error), "error")],
        _code(shown.code) if detail else [],
        _paths(shown, width),
        [plain(f"  {note.level}: {note.text}", "warning") for note in shown.notes[-10:]],
    )


def _state(shown: JobOverview, now_us: int) -> list[Content]:
    row = shown.row
    why = status.why(row, now_us)
    code = (
        "" if row.exit_code is None else f"{row.exit_code}" + (f" (by {row.exit_by})" if row.exit_by else "")
    )
    return [
        heading("Job"),
        *facts(
            (
                ("name", row.name),
                ("why", plain(why if len(why) > LONG_WHY else "")),
                ("what to do", plain(row.reason.hint)),
                ("fault", status.fault_words(row)),
                ("exit code", code),
                ("submitted", f"{formats.clock_time(row.submitted_us, now_us=now_us)} by {row.owner}"),
                ("id", row.id),
                ("tags", " ".join(row.tags)),
                ("note", row.note),
            )
        ),
    ]


def _metrics(shown: JobOverview) -> list[Content]:
    values = shown.metrics
    if not values:
        return []
    shared = shared_folder(series.name for series in values)
    rows = [
        (
            formats.printable(series.name.removeprefix(shared)) + shown.learner_mark(series),
            formats.compact_number(series.last),
            "" if series.minimum is None else formats.compact_number(series.minimum),
            "" if series.maximum is None else formats.compact_number(series.maximum),
            "" if series.last_step is None else str(series.last_step),
        )
        for series in values[:12]
    ]
    more = [plain(f"  and {len(values) - 12} more: see charts", "dim")] if len(values) > 12 else []
    return [heading("Metrics"), *table(("metric", "last", "min", "max", "step"), rows), *more]


LONG_WHY: Final = 200
"""A longer reason is cut in the head of the dashboard, and stands here as well."""
TABLE_LEAST_WIDTH: Final = 78
"""Columns that the table of attempts takes; where there are fewer each attempt has two lines."""
PHASES: Final = ("queued", "pending", "downloading", "processing", "storing")


def _attempts(shown: JobOverview, now_us: int, width: int) -> list[Content]:
    now_us = known_until_us(shown.row, now_us)
    newest = list(reversed(shown.attempts[-8:]))
    if not newest:
        return []
    titled = heading("Attempts: time in each phase")
    if width < TABLE_LEAST_WIDTH:
        return [titled, *[line for attempt in newest for line in _attempt_lines(attempt, now_us, width)]]
    titles = ("attempt", "state", *PHASES, "exit", "node")
    return [titled, *table(titles, [_attempt(attempt, now_us) for attempt in newest])]


def _attempt_lines(attempt: AttemptOverview, now_us: int, width: int) -> list[Content]:
    row = attempt.row
    head = f"  {row.attempt:<3} "
    exited = "" if row.exit_code is None else f"  exit {row.exit_code}"
    state = _outcome(attempt) + plain(f"{exited}  {row.node}".rstrip())
    spans = [
        plain(f"{phase.phase} {formats.duration(phase.seconds)}")
        for phase in phase_times(row, now_us)
        if phase.phase in PHASES
    ]
    between = f" {glyphs().dot} "
    return [plain(head, "dim") + state, *flow(spans, between, width, " " * len(head), " " * len(head))]


def _outcome(attempt: AttemptOverview) -> Content:
    """Draw how an attempt ended; one that made room for another job looks like one that was halted."""
    state = State.HALTED if attempt.outcome != attempt.row.state.lower() else attempt.row.state
    return plain(f"{status.look(state).shape} {attempt.outcome}", state.lower())


def _attempt(attempt: AttemptOverview, now_us: int) -> tuple[str | Content, ...]:
    row = attempt.row
    spans = {phase.phase: formats.duration(phase.seconds) for phase in phase_times(row, now_us)}
    code = "" if row.exit_code is None else str(row.exit_code)
    state = _outcome(attempt)
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
                ("interpreter", code.interpreter),
                ("submitted on", code.host),
                ("from folder", code.folder),
                ("fabric", code.fabric),
            )
        ),
    ]


def _paths(shown: JobOverview, width: int) -> list[Content]:
    paths = (
        ("results", shown.results),
        ("checkpoints", str(shown.paths.checkpoints)),
        ("log", str(shown.paths.log)),
        ("job folder", str(shown.paths.folder)),
    )
    return [
        heading("Where"),
        *[path_fact(name, path, width) for name, path in paths if path],
        *facts([("ports", shown.port_forward)]),
    ]


LINES: Final = 600
"""So many lines of a plan are shown."""


def native_plan(home: Home, job_id: str) -> Content:
    """Return the plan of a job's last attempt as it is sent to its backend; its first learner's in full.

    Raises:
        FabricError: the backend does not answer, or refuses the job now.
    """
    from workbench.services.submit.preview import plan_of

    with Store.open(home) as store:
        job = detail(store, job_id)
    made = plan_of(job, home)
    learners = made.learners[:1]
    more = len(made.learners) - len(learners)
    lines = [
        line
        for one in learners
        for line in json.dumps(dict(one.native), indent=2, sort_keys=True).split("\n")
    ]
    return page(
        [
            heading(f"Native plan: {made.runner} at {job.row.target.backend}"),
            *[plain(f"  {warning}", "warning") for warning in made.warnings],
        ],
        [plain(f"  {line}") for line in lines[:LINES]],
        [plain(f"  and {formats.count(more, 'more learner')} like it", "dim")] if more else [],
    )


def config(shown: JobPage, native: Content) -> Content:
    """Return every value that was set with where it came from, the manifest as it was written, and the native plan."""
    if shown.detail is None:
        return plain(str(shown.overview.error), "error")
    rows = [
        (key, _shown(value), plain(origin_of(shown.detail.origins, key), "dim"))
        for key, value in flatten(spec_to_json(shown.detail.spec)).items()
        if origin_of(shown.detail.origins, key) != "default" or value not in (None, "", [], {})
    ]
    return page(
        [heading("Values and their origins"), *table(("key", "value", "from"), rows)],
        [heading("Manifest"), *[plain(f"  {line}") for line in shown.detail.manifest_text.splitlines()]],
        [native],
    )


def _shown(value: Any) -> str:  # any JSON value
    line = (str(value).lower() if isinstance(value, bool) else str(value)).replace("\n", " ")
    return text.shorten(line, 60)


class ConfigTab(TextPage, JobTab):
    """What a job was asked to be."""

    TAB: ClassVar = "config"
    PANE: ClassVar = "config"
    BINDINGS: ClassVar = actions.bindings("config")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.native = plain("loading the native plan", "dim")
        self._native_for = 0
        """The attempt whose plan was asked for."""
        self._page: JobPage | None = None

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Write the page."""
        self._page = page
        self.show(config(page, self.native))

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show the notice instead."""
        self.job = self._page = None
        self.say(notice)

    def opened(self) -> None:
        """Have the native plan made, once an attempt."""
        if self.job is None or self._native_for == self.job.attempt:
            return

        self._native_for = self.job.attempt
        home, job_id = fabric_app(self).home, self.job.id

        def ask() -> Content:
            try:
                return native_plan(home, job_id)
            except FabricError as error:
                return page([heading("Native plan")], [plain(f"  not available: {error}", "warning")])

        fabric_app(self).background.run(ask, self._take_plan, owner=self, newest="plan")

    def _take_plan(self, shown: Content) -> None:
        self.native = shown
        if self._page is not None:
            self.show(config(self._page, shown))


def events(shown: JobPage, now_us: int) -> Content:
    """Return every step, request and intent, the newest first."""
    rows = [
        (
            formats.clock_time(one.time_us, now_us=now_us),
            str(one.attempt),
            plain(one.state.lower() or one.kind, one.state.lower() if one.state else "dim"),
            f"{one.code} {one.text}".strip(),
            plain(one.who if one.who == one.origin else f"{one.who} {one.origin}", "dim"),
        )
        for one in reversed(shown.transitions)
    ]
    asked = [
        (
            formats.clock_time(one.time_us, now_us=now_us),
            one.kind,
            one.outcome or "waits for the backend to confirm",
            plain(f"{one.who} {one.origin}", "dim"),
        )
        for one in reversed(shown.requests)
    ]
    return page(
        [heading("History"), *table(("time", "attempt", "state", "what", "who"), rows)]
        if rows
        else [plain("no events yet", "dim")],
        [heading("Requests"), *table(("time", "request", "outcome", "who"), asked)] if asked else [],
    )


class EventsTab(TextPage, JobTab):
    """What has happened to a job."""

    TAB: ClassVar = "events"
    PANE: ClassVar = "events"
    BINDINGS: ClassVar = actions.bindings("events")

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Write the page."""
        if page.transitions or page.requests:
            self.show(events(page, now_us))
        else:
            self.say(EmptyNotice("no events yet", "every step of the job and every request is listed here"))

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show the notice instead."""
        self.say(notice)
