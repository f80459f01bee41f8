from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.stored_jobs import add_job
from workbench.job import JobId, LearnerPhase, Reason
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import LearnerRow
from workbench.store.queries.jobs import transitions
from workbench.store.queries.learners import learners, save_learner
from workbench.store.queries.ui_state import get_state, set_state


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def a_learner(job_id: str) -> LearnerRow:
    return LearnerRow(
        JobId(job_id),
        1,
        1,
        LearnerPhase.RUNNING,
        None,
        None,
        None,
        5,
        None,
        False,
        "",
        "box",
        ("GPU-1", "GPU-2"),
        0,
    )


def test_a_learner_comes_back_as_it_was_found(store: Store) -> None:
    job_id = add_job(store).id
    ended = replace(
        a_learner(job_id), learner=2, phase=LearnerPhase.EXITED, signal=9, ended_us=9, decided=True, slots=(),
        reason=Reason("out of memory: used 3 GiB of 2 GiB", "C203", "ask for more"), stopped="memory",
    )  # fmt: skip

    assert save_learner(store, a_learner(job_id))
    assert save_learner(store, ended)

    assert learners(store, job_id) == [a_learner(job_id), ended]
    assert learners(store, job_id, 2) == []
    assert learners(store, job_id, 1, learner=2) == [ended]


def test_a_learner_that_is_found_as_before_is_no_news(store: Store) -> None:
    job_id = add_job(store).id
    save_learner(store, a_learner(job_id))
    before = store.counter("learners"), store.home.job(job_id).events.read_bytes()

    assert not save_learner(store, replace(a_learner(job_id), records_offset=77))

    assert (store.counter("learners"), store.home.job(job_id).events.read_bytes()) == before


def test_the_history_tells_each_phase_once_in_words(store: Store) -> None:
    job_id = add_job(store).id
    found = a_learner(job_id)
    save_learner(store, found)
    save_learner(store, replace(found, node="other"))
    save_learner(
        store, replace(found, phase=LearnerPhase.EXITED, exit_code=3, reason=Reason("the command failed"))
    )

    texts = [entry.text for entry in transitions(store, job_id) if entry.kind == "learner"]
    assert texts == ["learner 1 running", "learner 1 exited with 3: the command failed"]


def test_screens_remember_values_by_key(store: Store) -> None:
    assert get_state(store, "runs.sort") is None
    assert get_state(store, "runs.sort", "age") == "age"
    before = store.counter("ui_state")

    set_state(store, "runs.sort", {"column": "age", "down": True})

    assert get_state(store, "runs.sort") == {"column": "age", "down": True}
    assert store.counter("ui_state") > before
    set_state(store, "runs.sort", None)
    assert get_state(store, "runs.sort") is None


def test_garbage_in_what_screens_remember_counts_as_nothing(store: Store) -> None:
    store.execute("INSERT INTO ui_state VALUES ('theme', '{')")

    assert get_state(store, "theme", "dark") == "dark"
