"""Halt, kill, resume, delete jobs, and copy what is known of them, from the table and a job's screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from screens.jobs.file_actions import FileActions
from screens.style.status import is_open
from screens.workers.background import TaskReport
from screens.workers.writer import Write
from workbench import formats
from workbench.job import State
from workbench.paths import Home
from workbench.services.control.annotate import Annotations, annotate
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import jobs_by_id

if TYPE_CHECKING:
    from screens.base.dialogs import Choice
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


def ask_for(kind: RequestKind, jobs: Sequence[JobRow]) -> Write:
    """Return the write that requests something for each job; those that were deleted meanwhile are left out."""

    def work(store: Store) -> str:
        from workbench.services.control.requests import request

        # The newest first: a job that waits must not begin because one before it has ended.
        there = jobs_by_id(store, [job.id for job in jobs])
        request(store, there[::-1] if kind == "resume" else there, kind, origin="tui")
        return f"{_names(there or jobs)}: {_REQUESTED[kind] if there else 'deleted already'}"

    return work


def request_all(home: Home, kind: RequestKind, jobs: Sequence[JobRow], report: TaskReport) -> str:
    """Request something for many jobs, some at a time: each request is written to disk by itself, which takes long."""
    ordered = sorted(jobs, key=lambda job: job.seq, reverse=kind != "resume")
    with Store.open(home) as store:
        for start in range(0, len(ordered), AT_ONCE):
            report(f"{start:,} of {len(ordered):,} jobs", start / len(ordered))
            ask_for(kind, ordered[start : start + AT_ONCE])(store)
    return f"{_names(jobs)}: {_REQUESTED[kind]}"


def search_of(job: JobRow) -> str:
    """Return the id of the search that a job is a trial of; empty where it is none."""
    if job.parent is None:
        return ""
    from workbench.store.updates.experiments import ID_PREFIX

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


class JobActions(FileActions):
    """A screen on which jobs are acted upon: those that :meth:`targets` names."""

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

    def with_targets(self, then: Callable[[Sequence[JobRow]], None]) -> None:
        """Call ``then`` with the jobs that an action concerns, as they are now."""
        then(self.targets())

    def requested(self, kind: RequestKind, jobs: Sequence[JobRow]) -> None:
        """Take note of what was confirmed for which jobs."""

    def _steer(self, kind: RequestKind, consequence: str) -> None:
        if not self.refused():
            self.with_targets(partial(self._confirm, kind, consequence))

    def _confirm(self, kind: RequestKind, consequence: str, jobs: Sequence[JobRow]) -> None:
        """Ask before a request is made: for how many jobs, which these are, and which of them run."""
        from screens.base.dialogs import Confirm, Question
        from workbench.services.control.requests import running_first, stopped_first

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
            self._named(kind, fitting, left_out=len(jobs) - len(fitting)),
            " ".join(filter(None, (stops, consequence))),
            kind,
            typed,
        )

        def decided(yes: bool | None) -> None:
            if yes:
                self._request(kind, fitting)
                self.requested(kind, fitting)

        self.app.push_screen(Confirm(question), decided)

    def _request(self, kind: RequestKind, jobs: Sequence[JobRow]) -> None:
        if len(jobs) <= AT_ONCE:
            self.fabric.write(kind, ask_for(kind, jobs))
            return
        home = self.fabric.home
        self.fabric.background.begin(
            f"{kind} {_names(jobs)}",
            lambda report: request_all(home, kind, jobs, report),
            self.fabric.show_message,
        )

    def _named(self, kind: RequestKind, jobs: Sequence[JobRow], *, left_out: int) -> tuple[str, ...]:
        most = NAMED_LOW if self.app.size.height < LOW_HEIGHT else NAMED
        lines = [f"{formats.printable(job.name)}  {job.state.lower()}" for job in jobs[:most]]
        if len(jobs) > most:
            lines.append(f"and {len(jobs) - most:,} more")
        if left_out:
            lines.append(f"({formats.count(left_out, 'marked job')} skipped: nothing to {kind})")
        return tuple(lines)

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
        if self.refused():
            return
        from screens.launch.draft_sources import draft_of_job
        from screens.launch.form_screen import open_form

        home = self.fabric.home
        for job in self.targets()[:1]:
            self.fabric.background.run(partial(draft_of_job, home, job.id), partial(open_form, self.fabric))

    def action_job_tags(self) -> None:
        """Ask for tags, and give them to the jobs."""
        if not self.refused():
            self.with_targets(self._ask_tags)

    def _ask_tags(self, jobs: Sequence[JobRow]) -> None:
        if jobs:
            before = " ".join(jobs[0].tags)
            self.fabric.ask_line("tags", before, (), lambda line: self._tag(jobs, line))

    def _tag(self, jobs: Sequence[JobRow], line: str) -> None:
        tags = tuple(dict.fromkeys(line.replace(",", " ").split()))

        def work(store: Store) -> str:
            for job in jobs:
                annotate(store, job, Annotations(tags=tags), origin="tui")
            return f"{_names(jobs)}: {' '.join(tags) or 'no tags'}"

        self.fabric.write("tags", work)

    def action_job_logs(self) -> None:
        """Open the job's log."""
        self.show("logs")

    def action_job_charts(self) -> None:
        """Open the job's charts."""
        self.show("charts")

    def action_job_overview(self) -> None:
        """Open the job's overview."""
        self.show("overview")

    def show(self, tab: str) -> None:
        """Show a tab of the job in view."""

    def action_job_search(self) -> None:
        """Open the search that the job is a trial of."""
        jobs = self.targets()
        found = next(filter(None, map(search_of, jobs)), "")
        if not found:
            what = "the job is no trial of a search" if jobs else "no job is under the cursor"
            self.fabric.show_message(what, "warning")
            return
        self.fabric.open_search(found)

    def action_job_copy(self) -> None:
        """Offer what can be copied."""
        from screens.base.dialogs import Choice

        jobs = self.targets()
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
        self.choose("Copy", choices, self._copied)

    def _copied(self, choice: Choice) -> None:
        self.app.copy_to_clipboard(choice.value)
        self.fabric.show_message(f"copied the {choice.title}")
