"""Waits for searches: until they are over, until their trials have stopped, until they are deleted."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds
from workbench.errors import TryAgain
from workbench.job import EXIT_KILLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow
    from workbench.store.queries.members import UnmadeJob

EXIT_FAILED: Final = 1
_FOLDER_SECONDS: Final = 20.0
_FOLDER_POLL_SECONDS: Final = 0.02
_IGNORED_TURNS: Final = 3
"""So often in a row, once a second, a deletion is seen to go on no more before nobody waits for it any longer."""


def search_now(store: Store, row: ExperimentRow) -> ExperimentRow:
    """Return a search as it is now; one that was deleted counts as killed."""
    from workbench.store.queries.experiments import KILLED, experiment

    found = experiment(store, row.id)
    return replace(row, state=KILLED, reason="was deleted") if found is None else found


def exit_code_of_search(row: ExperimentRow) -> int:
    """Return what a command that waited for this search ends with."""
    from workbench.store.queries.experiments import COMPLETED, KILLED

    return {COMPLETED: 0, KILLED: EXIT_KILLED}.get(row.state, EXIT_FAILED)


def wait_until_over(
    store: Store,
    jobs: Sequence[JobRow],
    searches: Sequence[ExperimentRow],
    *,
    unmade: Sequence[UnmadeJob] = (),
    any_one: bool = False,
    timeout_seconds: float | None = None,
    is_left: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None],
) -> tuple[list[JobRow], list[ExperimentRow], bool]:
    """Wait until jobs and searches are over, or with ``any_one`` one of them.

    Returns them as they are then, and False when the time ran out first, or ``is_left``, which is asked all the time,
    says that nobody waits any more. ``warn`` gets what hinders the jobs, and once that a search is paused, which is
    over only after a person has it go on. Of the jobs that were not made at first nothing is returned.

    Raises:
        NotMade: one of them never is, since its array has ended.
    """
    from workbench.services.follow.full_disk import TroubleReport, check_every_second
    from workbench.services.follow.wait import wait_until
    from workbench.store.db.rows import is_over
    from workbench.store.queries.experiments import PAUSED, short_experiment_id
    from workbench.store.queries.members import NotMade, made_job, unmade_job

    warned: set[str] = set()

    def is_enough(now: list[JobRow]) -> bool:
        found = [search_now(store, each) for each in searches]
        over = [is_over(row) for row in now] + [not each.is_open for each in found]
        of_unmade = []
        for one in unmade:
            search, row = search_now(store, one.search), made_job(store, one.search, one.number)
            if row is None and not search.is_open:
                raise NotMade(unmade_job(store, search, one.number))
            over.append(row is not None and is_over(row))
            of_unmade += [search] if row is None else []
        if any(over) if any_one else all(over):
            return True
        for each in (*found, *of_unmade):
            if each.state == PAUSED and each.id not in warned:
                warned.add(each.id)
                resume = f"fabric experiment resume {short_experiment_id(each.id)}"
                warn(f"{each.name} is paused; `{resume}` has it go on")
        return False

    report = check_every_second(TroubleReport(store.home, warn).check)

    def check(now: Sequence[JobRow], trouble: str) -> None:
        if is_left():
            raise _Left
        report(now, trouble)

    try:
        rows, in_time = wait_until(store, jobs, is_enough, timeout_seconds=timeout_seconds, check=check)
    except _Left:
        rows, in_time = list(jobs), False
    return rows, [search_now(store, each) for each in searches], in_time


class _Left(Exception):
    """Nobody waits any more."""


def wait_for_first_trial(
    store: Store, row: ExperimentRow, *, warn: Callable[[str], None]
) -> tuple[ExperimentRow, JobRow | None]:
    """Wait until a search has made the job of its first trial; return both, None where it is over without one.

    ``warn`` gets what hinders it.
    """
    from workbench.services.follow.full_disk import TroubleReport, check_every_second
    from workbench.services.follow.wait import wait_until
    from workbench.store.queries.experiments import trial_job_ids, trial_jobs

    def is_enough(_: list[JobRow]) -> bool:
        return bool(trial_job_ids(store, row.id)) or not search_now(store, row).is_open

    wait_until(store, (), is_enough, check=check_every_second(TroubleReport(store.home, warn).check))
    jobs = trial_jobs(store, row.id)
    return search_now(store, row), jobs[0] if jobs else None


def wait_until_ended(
    store: Store,
    row: ExperimentRow,
    *,
    warn: Callable[[str], None] | None = None,
    report: Callable[[str], None] | None = None,
) -> ExperimentRow:
    """Wait until a search that was killed is over, and with it all its trials; return its row.

    ``warn`` and ``report``, and what is raised, are those of ``requests.wait_until_stopped``.
    """
    _wait(store, row, "kill", lambda _: not search_now(store, row).is_open, warn, report)
    return search_now(store, row)


def wait_until_halted(
    store: Store,
    row: ExperimentRow,
    *,
    warn: Callable[[str], None] | None = None,
    report: Callable[[str], None] | None = None,
) -> ExperimentRow:
    """Wait until the trials of a search that was paused have halted; return its row.

    ``warn`` and ``report``, and what is raised, are those of ``requests.wait_until_stopped``.
    """
    from workbench.store.db.rows import is_over
    from workbench.store.queries.experiments import PAUSED
    from workbench.store.queries.requests import pending_requests

    def have_halted(_: list[JobRow]) -> bool:
        if search_now(store, row).state != PAUSED:
            return True  # it has ended, or somebody has it go on
        jobs = _paused_jobs(store, row)
        # One that is over may have been asked to go on just before.
        asked = {each.job_id for each in pending_requests(store)}
        return all(is_over(each) and each.id not in asked for each in jobs)

    _wait(store, row, "halt", have_halted, warn, report)
    return search_now(store, row)


def _paused_jobs(store: Store, row: ExperimentRow) -> list[JobRow]:
    """List the jobs that a pause halts: a trial that has ended may have been resumed by a person, and goes on."""
    from workbench.store.db.rows import is_over
    from workbench.store.queries.experiments import (
        PAUSED,
        QUEUED,
        RUNNING,
        STOPPED,
        WAITING,
        trial_jobs,
        trials,
    )

    halted = (QUEUED, RUNNING, PAUSED, WAITING, STOPPED)
    halting = {one.job_id: one for one in trials(store, row.id) if one.state in halted}
    jobs = [each for each in trial_jobs(store, row.id) if each.id in halting]
    # Of one that was stopped only the history, which may be long, says whether it has ended.
    if not any(halting[each.id].state == STOPPED and not is_over(each) for each in jobs):
        return jobs
    ended = _ended_trials(store, row)
    return [each for each in jobs if halting[each.id].state != STOPPED or halting[each.id].trial not in ended]


def _ended_trials(store: Store, row: ExperimentRow) -> set[str]:
    from workbench.store.queries.experiments import events_of

    ended: set[str] = set()
    for event in events_of(store.home, row.id):
        if event["do"] == "end":
            ended.add(event["trial"])
        elif event["do"] == "continued":
            ended -= {each["trial"] for each in event["trials"]}
    return ended


def deletion_question(store: Store, row: ExperimentRow) -> str:
    """Ask whether a search is to be deleted, with what that stops."""
    from workbench.formats import count
    from workbench.store.queries.experiments import short_experiment_id, trials

    name, found = f"{short_experiment_id(row.id)} {row.name}", count(len(trials(store, row.id)), "trial")
    question = f"Delete the search {name} and its {found} with results and checkpoints?"
    return f"{question} It is {row.state}: it is ended first." if row.is_open else question


def wait_until_gone(
    store: Store, row: ExperimentRow, report: Callable[[str], None] | None = None
) -> Path | None:
    """Wait until the deletion of a search is confirmed; return its folder where that is still removed after a while.

    ``report``, and what is raised, are those of ``requests.wait_until_forgotten``.

    Raises:
        TryAgain: no controller goes on with it: an older one ended the search, or a person continued it.
    """
    from workbench.store.queries.experiments import experiment

    ignored = _IgnoredDeletion(store, row)
    _wait(store, row, "deletion", lambda _: experiment(store, row.id) is None, None, report, ignored.check)
    folder = store.home.deleted_experiments / row.id
    deadline = elapsed_seconds() + _FOLDER_SECONDS
    while folder.exists() and elapsed_seconds() < deadline:
        time.sleep(_FOLDER_POLL_SECONDS)
    return folder if folder.exists() else None


class _IgnoredDeletion:
    """Notices that the deletion of a search does not go on: an older fabric knows none, and ends the search."""

    def __init__(self, store: Store, row: ExperimentRow) -> None:
        self._store = store
        self._row = row
        self._turns = 0

    def check(self) -> None:
        """Look at the search; called once a second.

        Raises:
            TryAgain: its deletion has not gone on for a while, and will not.
        """
        from workbench.store.queries.experiments import deleted_experiments, experiment, short_experiment_id

        is_asked = self._row.id in deleted_experiments(self._store)
        now = experiment(self._store, self._row.id)
        # What is deleted is STOPPING until it is gone.
        is_ignored = now is not None and not (is_asked and now.is_open)
        self._turns = self._turns + 1 if is_ignored else 0
        if now is None or self._turns <= _IGNORED_TURNS:
            return
        short = short_experiment_id(now.id)
        if is_asked:
            raise TryAgain(
                f"{short} {now.name} is {now.state} and not deleted: its controller is of an older fabric",
                hint="`fabric controller restart` starts it again",
            )
        raise TryAgain(
            f"{short} {now.name} is {now.state}: its deletion was given up, since it was continued",
            hint=f"`fabric delete {short}` starts it again",
        )


def _wait(
    store: Store,
    row: ExperimentRow,
    kind: str,
    condition: Callable[[list[JobRow]], bool],
    warn: Callable[[str], None] | None,
    report: Callable[[str], None] | None,
    also: Callable[[], None] | None = None,
) -> None:
    """Wait for a search whose trials are being stopped, unless none of their backends confirms that.

    ``also`` is called once a second; it may raise.
    """
    from workbench.services.follow.full_disk import check_every_second
    from workbench.services.follow.wait import request_check, wait_until
    from workbench.store.db.rows import is_over
    from workbench.store.queries.experiments import trial_jobs

    found = _paused_jobs(store, row) if kind == "halt" else trial_jobs(store, row.id)
    jobs = [each for each in found if kind == "deletion" or not is_over(each)]
    of_requests = request_check(store.home, kind, warn=warn, report=report, name=row.name)

    def look(_: Sequence[JobRow], __: str) -> None:
        if also is not None:
            also()

    seldom = check_every_second(look)

    def check(rows: Sequence[JobRow], trouble: str) -> None:
        of_requests(rows, trouble)
        seldom(rows, trouble)

    wait_until(store, jobs, condition, check=check, stops=True)
