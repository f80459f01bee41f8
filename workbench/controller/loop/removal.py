"""The end of a deleted job: tombstone, secrets, folder, in this order, so that nothing is left unknown."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import JobPurged, TidiedUp
from workbench.controller.decide.observations import status_of
from workbench.controller.decide.outcome import RESUMES, UNSTORED, judge
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.runtime.secrets import forget_secrets
from workbench.controller.targets.worker_pool import Post
from workbench.job import Intent, Reason, State
from workbench.learner.journal.reasons import without_unstored
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.identity import home_uuid
from workbench.store.db.rows import JobDetail, LearnerRow
from workbench.store.jobs import correct_end, deleted_jobs, mark_deleted
from workbench.store.queries.learners import learners, save_learner

TRIES = 5
TRY_AGAIN_SECONDS = 0.2


def purge(home: Home, job_id: str, who: str, post: Post) -> None:
    """Remove all that there is of a deleted job but its tombstone, and tell so. For a thread of its own."""
    try:
        with Store.open(home, makes=False) as store:
            mark_deleted(store, job_id, who=who, origin="controller")
        forget_secrets(home, job_id)
        remove_folder(home.job(job_id).path)
    except Exception as error:
        post(JobPurged(job_id, sentence(error)))
        return
    post(JobPurged(job_id))


def tidy_up(home: Home, log: ControllerLog, post: Post) -> None:
    """Bring in order what crashes left: histories ahead of rows, folders of deleted jobs. For a thread of its own."""
    from workbench.store.updates.rebuild import reconcile

    try:
        with Store.open(home, makes=False) as store:
            report = reconcile(store)
            removed = remove_leftovers(home, store)
    except Exception as error:
        log.say(f"the home was not brought in order: {sentence(error)}")
        return
    for problem in report.problems:
        log.say(problem)
    if report.jobs or report.tombstones or removed:
        log.say(
            f"brought in order after a crash: {report.jobs + report.tombstones} jobs, {removed} folders removed"
        )
        post(TidiedUp())


def remove_leftovers(home: Home, store: Store) -> int:
    """Remove folders of jobs whose tombstone is there already; return how many there were."""
    try:
        there = {path.name for path in home.jobs.iterdir()}
    except OSError:
        return 0
    found = [row.id for row in deleted_jobs(store) if row.id in there] if there else []
    for job_id in found:
        forget_secrets(home, job_id)
        remove_folder(home.job(job_id).path)
    return len(found)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all in it, also what its owner made read-only.

    Raises:
        OSError: something in it cannot be removed.
    """
    import shutil

    def make_room(function: Any, path: str, _: Any) -> None:
        parent = Path(path).parent
        for one in (parent, Path(path)):
            if one.is_dir() and not one.is_symlink():
                one.chmod(stat.S_IRWXU)
        if function in (os.open, os.scandir, os.listdir):
            shutil.rmtree(path)
        else:
            function(path)

    for left in reversed(range(TRIES)):
        try:
            if folder.exists():
                shutil.rmtree(folder, onerror=make_room)
            return
        except OSError:
            # An agent that is about to end may have written one more file meanwhile.
            if not left:
                raise
            time.sleep(TRY_AGAIN_SECONDS)


SAID = "its results are in the store after all"


def correct_outcome(store: Store, whole: JobDetail, origin: str) -> State:
    """Take out of a job's end that its results were not stored; return the state that it has now.

    One that failed for that alone has the state of its command's own exit. Nothing is written where nothing was said.
    """
    row = whole.row
    state, reason, exit_code, exit_by = row.state, _without(row.reason), row.exit_code, row.exit_by
    if state is State.HALTED and reason != row.reason:
        reason = Reason(reason.text, hint=RESUMES)
    mended = [_mended(each) for each in learners(store, row.id, row.attempt)]
    if mended and state is State.FAILED and row.reason.code == UNSTORED:
        uuid = home_uuid(store.home)
        statuses = {each.learner: status_of(each, uuid) for each in mended}
        found = judge(statuses, ends_when=whole.spec.ends_when, intent=Intent.NONE, asked_by="")
        state, reason, exit_code, exit_by = found.state, found.reason, found.exit_code, found.exit_by
    if (state, reason) == (row.state, row.reason):
        return state
    with store.atomic():
        for each in mended:
            save_learner(store, each)
        correct_end(
            store, row.id, row.attempt, state, reason, exit_code=exit_code, exit_by=exit_by, text=SAID, origin=origin
        )  # fmt: skip
    return state


def _without(reason: Reason) -> Reason:
    text = without_unstored(reason.text)
    if text == reason.text:
        return reason
    return Reason(text) if reason.code == UNSTORED else replace(reason, text=text)


def _mended(learner: LearnerRow) -> LearnerRow:
    if learner.reason is None:
        return learner
    reason = _without(learner.reason)
    return replace(learner, reason=reason if reason.text else None)
