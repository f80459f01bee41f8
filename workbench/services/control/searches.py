"""Waits for searches: until they are over, until their trials have stopped, until they are deleted."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds
from workbench.job import EXIT_KILLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow

EXIT_FAILED: Final = 1
_FOLDER_SECONDS: Final = 20.0
_FOLDER_POLL_SECONDS: Final = 0.02


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
    any_one: bool = False,
    timeout_seconds: float | None = None,
    warn: Callable[[str], None],
) -> tuple[list[JobRow], list[ExperimentRow], bool]:
    """Wait until jobs and searches are over, or with ``any_one`` one of them.

    Returns them as they are then, and False when the time ran out first. ``warn`` gets what hinders the jobs.
    """
    from workbench.services.follow.full_disk import TroubleReport, check_every_second
    from workbench.services.follow.wait import wait_until
    from workbench.store.db.rows import is_over

    def is_enough(now: list[JobRow]) -> bool:
        over = [is_over(row) for row in now] + [not search_now(store, each).is_open for each in searches]
        return any(over) if any_one else all(over)

    check = check_every_second(TroubleReport(store.home, warn).check)
    rows, in_time = wait_until(store, jobs, is_enough, timeout_seconds=timeout_seconds, check=check)
    return rows, [search_now(store, each) for each in searches], in_time


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
    from workbench.store.queries.experiments import PAUSED, trial_jobs
    from workbench.store.queries.requests import pending_requests

    def have_halted(_: list[JobRow]) -> bool:
        if search_now(store, row).state != PAUSED:
            return True  # it has ended, or somebody has it go on
        jobs = trial_jobs(store, row.id)
        # One that is over may have been asked to go on just before.
        asked = {each.job_id for each in pending_requests(store)}
        return all(is_over(each) and each.id not in asked for each in jobs)

    _wait(store, row, "halt", have_halted, warn, report)
    return search_now(store, row)


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
    """
    from workbench.store.queries.experiments import experiment

    _wait(store, row, "deletion", lambda _: experiment(store, row.id) is None, None, report)
    folder = store.home.deleted_experiments / row.id
    deadline = elapsed_seconds() + _FOLDER_SECONDS
    while folder.exists() and elapsed_seconds() < deadline:
        time.sleep(_FOLDER_POLL_SECONDS)
    return folder if folder.exists() else None


def _wait(
    store: Store,
    row: ExperimentRow,
    kind: str,
    condition: Callable[[list[JobRow]], bool],
    warn: Callable[[str], None] | None,
    report: Callable[[str], None] | None,
) -> None:
    """Wait for a search whose trials are being stopped, unless none of their backends confirms that."""
    from workbench.services.follow.wait import request_check, wait_until
    from workbench.store.db.rows import is_over
    from workbench.store.queries.experiments import trial_jobs

    jobs = [each for each in trial_jobs(store, row.id) if kind == "deletion" or not is_over(each)]
    check = request_check(store.home, kind, warn=warn, report=report)
    wait_until(store, jobs, condition, check=check, stops=True)
