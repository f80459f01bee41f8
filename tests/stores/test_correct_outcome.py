"""A job whose results are stored after all has the end that its command had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stored_jobs import add_job
from workbench.job import JobId, LearnerPhase, Reason, State
from workbench.paths import Home
from workbench.services.transfer.retry_upload import CORRECTION, correct_outcome
from workbench.store.db.database import Store
from workbench.store.db.rows import LearnerRow
from workbench.store.queries.jobs import detail, job, transitions
from workbench.store.queries.learners import learners, save_learner
from workbench.store.updates.jobs import step

UNSTORED = "2 of its files are not stored: the data store a cannot be written: refused;\nreally"


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def ended(store: Store, state: State, why: Reason, *, exit_code: int, learner: Reason | None = None) -> str:
    row = add_job(store)
    save_learner(
        store,
        LearnerRow(
            JobId(row.id), 1, 1, LearnerPhase.EXITED, 0 if exit_code == 75 else exit_code, None, learner or why,
            1, 2, True, "", "", (), 0,
        ),
    )  # fmt: skip
    for one in (State.PENDING, State.PROCESSING, State.STORING):
        step(store, row.id, 1, one, Reason(""))
    step(store, row.id, 1, state, why, exit_code=exit_code, exit_by="lost")
    return str(row.id)


def test_a_job_that_failed_for_its_results_alone_has_completed(store: Store) -> None:
    job_id = ended(store, State.FAILED, Reason(UNSTORED, "S303", "retry"), exit_code=75)

    assert correct_outcome(store, detail(store, job_id), "cli") is State.COMPLETED
    row = job(store, job_id)
    assert row is not None
    assert (row.state, row.reason.code, row.exit_code, row.exit_by) == (State.COMPLETED, "", 0, "job")
    assert row.ended_us is not None
    (learner,) = learners(store, job_id)
    assert learner.reason is None
    last = transitions(store, job_id)[-1]
    assert (last.kind, last.state, last.text, last.origin) == ("state", "COMPLETED", CORRECTION, "cli")


def test_a_command_that_failed_has_failed_all_the_same(store: Store) -> None:
    why = Reason(f"the command ended with exit code 3; {UNSTORED}", "C201", "fabric logs")
    job_id = ended(store, State.FAILED, why, exit_code=3)

    assert correct_outcome(store, detail(store, job_id), "cli") is State.FAILED
    row = job(store, job_id)
    assert row is not None
    assert row.reason == Reason("the command ended with exit code 3", "C201", "fabric logs")
    assert row.exit_code == 3


def test_a_job_that_was_halted_stays_so_and_may_go_on(store: Store) -> None:
    text = f"halted by me@box; {UNSTORED}"
    job_id = ended(
        store, State.HALTED, Reason(text, hint="retry"), exit_code=143, learner=Reason(text, "S303")
    )

    assert correct_outcome(store, detail(store, job_id), "cli") is State.HALTED
    row = job(store, job_id)
    assert row is not None
    assert (row.reason.text, row.exit_code) == ("halted by me@box", 143)
    assert "fabric resume" in row.reason.hint


def test_nothing_is_written_of_a_job_that_lacked_nothing(store: Store) -> None:
    job_id = ended(store, State.FAILED, Reason("the command ended with exit code 3", "C201"), exit_code=3)
    before = store.home.job(job_id).events.read_bytes()

    assert correct_outcome(store, detail(store, job_id), "cli") is State.FAILED
    assert store.home.job(job_id).events.read_bytes() == before
