"""The end of a job whose results are in their store after all: what it would have been with them."""

from __future__ import annotations

from dataclasses import replace

from workbench.controller.decide.observations import seen_of
from workbench.controller.decide.outcome import RESUMES, UNSTORED, judge
from workbench.job import Intent, Reason, State
from workbench.learner.journal.reasons import without_unstored
from workbench.store.db.database import Store
from workbench.store.db.identity import home_uuid
from workbench.store.db.rows import JobDetail, LearnerRow
from workbench.store.jobs import mend_end
from workbench.store.queries.learners import learners, save_learner

SAID = "its results are in the store after all"


def put_right(store: Store, whole: JobDetail, origin: str) -> State:
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
        seen = {each.learner: seen_of(each, uuid) for each in mended}
        found = judge(seen, ends_when=whole.spec.ends_when, intent=Intent.NONE, asked_by="")
        state, reason, exit_code, exit_by = found.state, found.reason, found.exit_code, found.exit_by
    if (state, reason) == (row.state, row.reason):
        return state
    with store.atomic():
        for each in mended:
            save_learner(store, each)
        mend_end(
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
