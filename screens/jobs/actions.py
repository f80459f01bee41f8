"""Halt, kill, resume, delete jobs, and copy what is known of them, from the table and a job's screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.message import Message

from screens.base.base import BaseScreen
from screens.jobs.file_actions import FileActions
from screens.jobs.marks import Act, Targets
from screens.style.status import is_open
from screens.workers.background import TaskReport, post
from screens.workers.writer import Write
from workbench import formats
from workbench.errors import CannotWrite
from workbench.job import State
from workbench.paths import Home
from workbench.services.control.annotate import Annotations, annotate
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, is_running
from workbench.store.queries.jobs import jobs_by_id

if TYPE_CHECKING:
    from screens.base.dialogs import Choice
    from screens.core.app_protocol import AppProtocol
    from screens.jobs.files import FoundFile
    from screens.launch.draft import Draft
    from workbench.services.control.requests import RequestKind

_REQUESTED: Final = {
    "halt": "halt requested",
    "kill": "kill requested",
    "resume": "resume requested",
    "delete": "deletion requested",
}
NAMED: Final = 8
"""So many jobs are named in a question; fewer on a low terminal, where the answers must stay in view."""
NAMED_LOW: Final = 5
LOW_HEIGHT: Final = 30
AT_ONCE: Final = 50
"""Requests for more jobs than that are a background task, which is listed with its progress."""


def ask_for(kind: RequestKind, asked: Sequence[JobRow], take: Callable[[Sequence[JobRow]], object]) -> Write:
    """Return the write that requests something for each job as it was when the question about it was asked.

    Jobs that were deleted meanwhile are left out, and those for which it makes no sense any more. Where the question
    would be another one now, nothing is requested. ``take`` is called with the jobs for which it would be another one.
    """

    def work(store: Store) -> str:
        changed = _changed(store, kind, asked)
        take(changed)
        return "" if changed else _outcome(kind, asked, _request_some(store, kind, asked))

    return work


def request_all(
    home: Home,
    kind: RequestKind,
    asked: Sequence[JobRow],
    take: Callable[[Sequence[JobRow]], object],
    report: TaskReport,
) -> str:
    """Request something for many jobs, some at a time: each request is written to disk by itself, which takes long.

    Raises:
        CannotWrite: requests cannot be written; all that could be were, and the other jobs were told to stop.
    """
    ordered = sorted(asked, key=lambda job: job.seq, reverse=kind != "resume")
    done: list[JobRow] = []
    errors: list[CannotWrite] = []
    with Store.open(home) as store:
        changed = _changed(store, kind, asked)
        take(changed)
        if changed:
            return ""
        for start in range(0, len(ordered), AT_ONCE):
            report(f"{start:,} of {len(ordered):,} jobs", start / len(ordered))
            try:
                done += _request_some(store, kind, ordered[start : start + AT_ONCE])
            except CannotWrite as error:  # the rest is asked for all the same
                errors.append(error)
    if errors:
        raise errors[0]
    return _outcome(kind, asked, done)


def _request_some(store: Store, kind: RequestKind, asked: Sequence[JobRow]) -> list[JobRow]:
    """Request something for those of the jobs for which it makes sense now; return these."""
    from workbench.services.control.requests import request

    # The newest first: a job that waits must not begin because one before it has ended.
    fitting = _fitting(kind, jobs_by_id(store, [job.id for job in asked]))
    request(store, fitting[::-1] if kind == "resume" else fitting, kind, origin="tui")
    return fitting


def _give_all_tags(home: Home, jobs: Sequence[JobRow], tags: tuple[str, ...], report: TaskReport) -> str:
    with Store.open(home) as store:
        for start in range(0, len(jobs), AT_ONCE):
            report(f"{start:,} of {len(jobs):,} jobs", start / len(jobs))
            _give_tags(jobs[start : start + AT_ONCE], tags, store)
    return f"{_names(jobs)}: {' '.join(tags) or 'no tags'}"


def _give_tags(jobs: Sequence[JobRow], tags: tuple[str, ...], store: Store) -> str:
    """Give jobs these tags and no others; those that were deleted meanwhile are left out."""
    there = jobs_by_id(store, [job.id for job in jobs])
    for job in there:
        annotate(store, job, Annotations(tags=tags), origin="tui")
    return f"{_names(there or jobs)}: {(' '.join(tags) or 'no tags') if there else 'deleted already'}"


def _outcome(kind: RequestKind, asked: Sequence[JobRow], done: Sequence[JobRow]) -> str:
    return f"{_names(done)}: {_REQUESTED[kind]}" if done else f"{_names(asked)}: nothing to {kind} any more"


def _changed(store: Store, kind: RequestKind, asked: Sequence[JobRow]) -> list[JobRow]:
    """Return the jobs for which the question would be another one now, as they are now.

    These are those that run again, as another attempt, and those that run where a deletion was said to stop none.
    """
    before = {job.id: job for job in asked}
    return [
        job
        for job in jobs_by_id(store, list(before))
        if job.attempt != before[job.id].attempt
        or (kind == "delete" and is_running(job) and not is_running(before[job.id]))
    ]


def search_of(job: JobRow) -> str:
    """Return the id of the search that a job is a trial of; empty where it is none."""
    if job.parent is None:
        return ""
    from workbench.store.queries.experiments import ID_PREFIX

    return job.parent if job.parent.startswith(ID_PREFIX) else ""


def _names(jobs: Sequence[JobRow]) -> str:
    if len(jobs) == 1:
        return formats.printable(jobs[0].name)
    return formats.count(len(jobs), "job")


def _fitting(kind: RequestKind, jobs: Sequence[JobRow]) -> list[JobRow]:
    """Return those jobs that such a request makes sense for."""
    match kind:
        case "resume":
            return [job for job in jobs if job.state in (State.HALTED, State.FAILED)]
        case "delete":
            return list(jobs)
        case _:
            return [job for job in jobs if is_open(job)]


def _notes(kind: RequestKind, fitting: Sequence[JobRow], targets: Targets) -> list[str]:
    """Return what a question says about the marked jobs apart from their names."""
    notes = []
    if targets.changed:
        notes.append(f"{targets.changed:,} of them changed while this was asked")
    if unlisted := sum(job.id in targets.unlisted for job in fitting):
        verb = "is" if unlisted == 1 else "are"
        notes.append(f"{unlisted:,} of them {verb} not in this list")
    if targets.deleted:
        verb = "was" if targets.deleted == 1 else "were"
        notes.append(f"{formats.count(targets.deleted, 'marked job')} {verb} deleted")
    if skipped := len(targets.jobs) - len(fitting):
        notes.append(f"{formats.count(skipped, 'marked job')} skipped: nothing to {kind}")
    return notes


class Answered(Message, bubble=False):
    """A question was confirmed: it is requested now, unless jobs have changed meanwhile."""

    def __init__(
        self, kind: RequestKind, consequence: str, asked: Targets, changed: Sequence[JobRow]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.consequence = consequence
        self.asked = asked
        self.changed = changed
        """Those that have, as they are now; where there are any, nothing is requested."""


class Steering:
    """What is done with the jobs that a screen names, and which of their pages are opened."""

    def __init__(self, screen: JobActions) -> None:
        self.screen = screen

    @property
    def fabric(self) -> AppProtocol:
        """The app."""
        return self.screen.fabric

    def _steer(self, kind: RequestKind, consequence: str) -> None:
        if not self.screen.refused():
            self.screen.with_targets(partial(self._confirm, kind, consequence))

    def _confirm(self, kind: RequestKind, consequence: str, targets: Targets) -> None:
        """Ask before a request is made: for how many jobs, which these are, and which of them run."""
        from screens.base.dialogs import Confirm, Question
        from workbench.services.control.requests import running_first, stopped_first

        jobs = targets.jobs
        fitting = running_first(_fitting(kind, jobs))
        if not fitting:
            why = {"resume": "halted or failed", "delete": "there"}.get(kind, "running or waiting")
            message = (
                "no job is under the cursor"
                if not jobs
                else f"{_names(jobs)} {'is' if len(jobs) == 1 else 'are'} not {why}"
            )
            self.fabric.show_message(message, "warning")
            return
        typed = fitting[0].name if kind in ("kill", "delete") and len(fitting) > 1 else ""
        stops = stopped_first(fitting) if kind == "delete" else ""
        question = Question(
            f"{kind.capitalize()} {_names(fitting)}?",
            self._named(fitting, _notes(kind, fitting, targets)),
            " ".join(filter(None, (stops, consequence))),
            kind,
            typed,
        )

        def decided(yes: bool | None) -> None:
            if yes:
                self._request(kind, consequence, replace(targets, jobs=tuple(fitting)))

        self.screen.app.push_screen(Confirm(question), decided)

    def _request(self, kind: RequestKind, consequence: str, asked: Targets) -> None:
        """Have it requested as it was confirmed; where jobs have changed meanwhile, it is asked again."""

        def take(changed: Sequence[JobRow]) -> None:  # in another thread
            post(self.screen, Answered(kind, consequence, asked, changed))

        if len(asked.jobs) <= AT_ONCE:
            self.fabric.write(kind, ask_for(kind, asked.jobs, take))
            return
        self.fabric.background.begin(
            f"{kind} {_names(asked.jobs)}",
            partial(request_all, self.fabric.home, kind, asked.jobs, take),
            self._say,
            is_kept=True,
        )

    def _say(self, done: str) -> None:
        if done:
            self.fabric.show_message(done)

    def take_answer(self, answered: Answered) -> None:
        """Take note of what is requested, or ask again: the answer was one to another question."""
        if not answered.changed:
            self.screen.requested(answered.kind, answered.asked.jobs)
            return
        now = {job.id: job for job in answered.changed}
        jobs = tuple(now.get(job.id, job) for job in answered.asked.jobs)
        if self.screen.is_current:
            asked = replace(answered.asked, jobs=jobs, deleted=0, changed=len(now))
            self._confirm(answered.kind, answered.consequence, asked)
        else:
            message = f"{_names(answered.changed)} changed meanwhile: no {answered.kind} was requested"
            self.fabric.show_message(message, "warning")

    def _named(self, jobs: Sequence[JobRow], notes: Sequence[str]) -> tuple[str, ...]:
        most = NAMED_LOW if self.screen.app.size.height < LOW_HEIGHT else NAMED
        lines = [f"{formats.printable(job.name)}  {job.state.lower()}" for job in jobs[:most]]
        if len(jobs) > most:
            lines.append(f"and {len(jobs) - most:,} more")
        return (*lines, *([f"({'; '.join(notes)})"] if notes else []))

    def action_job_halt(self) -> None:
        """Ask to halt."""
        self._steer("halt", "The job saves and stops; it can be resumed.")

    def action_job_kill(self) -> None:
        """Ask to kill."""
        self._steer(
            "kill",
            "The job is stopped now, without time to save. It can be resumed from its last checkpoint.",
        )

    def action_job_resume(self) -> None:
        """Ask to resume."""
        self._steer("resume", "A new attempt starts from the results and checkpoints of the last one.")

    def action_job_delete(self) -> None:
        """Ask to delete."""
        self._steer("delete", "Logs, metrics, results and checkpoints are removed for good.")

    def action_job_rerun(self) -> None:
        """Open the form with the job as it was."""
        from screens.launch.draft_sources import draft_of_job

        self._begin_draft(draft_of_job)

    def action_job_new_search(self) -> None:
        """Open the form with a search around the job's hyper-parameters."""
        from screens.launch.draft_sources import draft_of_search

        self._begin_draft(draft_of_search)

    def _begin_draft(self, make: Callable[[Home, str], Draft]) -> None:
        if self.screen.refused():
            return
        from screens.launch.form_screen import open_form

        home = self.fabric.home
        if (job := self.screen.in_view()) is not None:
            self.fabric.background.run(partial(make, home, job.id), partial(open_form, self.fabric))

    def action_job_tags(self) -> None:
        """Ask for tags, and give them to the jobs."""
        if not self.screen.refused():
            self.screen.with_targets(self._ask_tags)

    def _ask_tags(self, targets: Targets) -> None:
        if jobs := targets.jobs:
            before = " ".join(jobs[0].tags)
            self.fabric.ask_line(f"tags of {_names(jobs)}", before, (), lambda line: self._tag(jobs, line))

    def _tag(self, jobs: Sequence[JobRow], line: str) -> None:
        tags = tuple(dict.fromkeys(line.replace(",", " ").split()))

        if len(jobs) <= AT_ONCE:
            self.fabric.write("tags", partial(_give_tags, jobs, tags))
            return
        self.fabric.background.begin(
            f"tags of {_names(jobs)}",
            partial(_give_all_tags, self.fabric.home, jobs, tags),
            self._say,
            is_kept=True,
        )

    def action_job_logs(self) -> None:
        """Open the job's log."""
        self.screen.show("logs")

    def action_job_charts(self) -> None:
        """Open the job's charts."""
        self.screen.show("charts")

    def action_job_overview(self) -> None:
        """Open the job's overview."""
        self.screen.show("overview")

    def action_job_search(self) -> None:
        """Open the search that the job is a trial of."""
        job = self.screen.in_view()
        found = search_of(job) if job is not None else ""
        if not found:
            what = "the job is not a trial of a search" if job is not None else "no job is under the cursor"
            self.fabric.show_message(what, "warning")
            return
        self.fabric.open_search(found)

    def action_job_copy(self) -> None:
        """Offer what can be copied."""
        self.screen.with_targets(self._offer_copies)

    def _offer_copies(self, targets: Targets) -> None:
        from screens.base.dialogs import Choice

        jobs = targets.jobs
        if not jobs:
            return
        folders = [str(self.fabric.home.job(job.id).path) for job in jobs]
        choices = (
            Choice("y", "name", "\n".join(job.name for job in jobs)),
            Choice("i", "id", "\n".join(job.id for job in jobs)),
            Choice("p", "folder", "\n".join(folders)),
            Choice("l", "log file", "\n".join(f"{folder}/attempt-{job.attempt}/learner-1/output.log" for
            folder, job in zip(folders, jobs, strict=True))), Choice("c", "show command",
            "\n".join(f"fabric show {job.id}" for job in jobs)),
        )  # fmt: skip
        self.screen.choose("Copy", choices, self._copied)

    def _copied(self, choice: Choice) -> None:
        self.screen.app.copy_to_clipboard(choice.value)
        self.fabric.show_message(f"copied the {choice.title}")


class JobActions(BaseScreen):
    """A screen on which jobs are acted upon: those that :meth:`targets` names.

    What is done with them is not the screen's own: it has an object for steering and one for files, whose ``action_``
    methods are the actions that ``jobs`` own in the table.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steering = Steering(self)
        self.file_actions = FileActions(self)

    def action_jobs(self, method: str) -> None:
        """Do with the jobs what the table names."""
        name = f"action_{method}"
        getattr(self.steering if hasattr(self.steering, name) else self.file_actions, name)()

    def on_answered(self, answered: Answered) -> None:
        """Take note of what is requested, or ask again: the answer was one to another question."""
        self.steering.take_answer(answered)

    def can_do(self, action_id: str) -> bool:
        """Offer what makes sense for the jobs that it concerns: halt for one that is under way, and so on."""
        jobs = self.targets()
        match action_id:
            case "job.halt" | "job.kill":
                return any(is_open(job) for job in jobs)
            case "job.resume":
                return any(job.state in (State.HALTED, State.FAILED) and not is_open(job) for job in jobs)
            case "job.search":
                return any(search_of(job) for job in jobs)
            case "runs.open" | "runs.mark":
                return bool(jobs)
            case _:
                return bool(jobs) or not action_id.startswith("job.")

    def targets(self) -> list[JobRow]:
        """Return the jobs that an action concerns: the marked ones, or the one in view."""
        return []

    def with_targets(self, then: Act) -> None:
        """Call ``then`` with the jobs that an action concerns, as they are now."""
        then(Targets(tuple(self.targets())))

    def requested(self, kind: RequestKind, jobs: Sequence[JobRow]) -> None:
        """Take note of what is requested for which jobs."""

    def in_view(self) -> JobRow | None:
        """Return the job that an action concerns which is done with one alone, whichever are marked."""
        return next(iter(self.targets()), None)

    def show(self, tab: str) -> None:
        """Show a tab of the job in view."""

    def chosen_file(self) -> FoundFile | None:
        """Return the file under the cursor, on a screen that shows files."""
        return None

    def manifest_text(self) -> str:
        """Return the manifest of the job in view where it is at hand."""
        return ""

    def refused(self) -> bool:
        """Say that nothing is changed here, where that is so."""
        if self.fabric.readonly:
            self.fabric.show_message("read-only: the screens were started with --readonly", "warning")
        return self.fabric.readonly
