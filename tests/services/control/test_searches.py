"""Waiting for searches that no controller looks after: what ends the waiting, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.screens import seeding
from workbench.errors import TryAgain
from workbench.job import State
from workbench.paths import Home
from workbench.services.control.annotate import Annotations, annotate_search_and_trials
from workbench.services.control.searches import wait_until_gone, wait_until_halted, wait_until_over
from workbench.services.controller_watch import is_unattended
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.experiments import (
    ExperimentRow,
    annotations_of,
    experiment,
    short_experiment_id,
    trial_jobs,
)
from workbench.store.queries.jobs import has_open_searches
from workbench.store.queries.members import NotMade, member, unmade_job
from workbench.store.updates.experiments import record_event

DELETION = {"do": "delete", "who": "me@box", "state": "STOPPING", "reason": "is being deleted by me@box"}
ENDED = {"do": "over", "state": "FAILED", "reason": "an older fabric ended it"}


@pytest.fixture
def search(store: Store) -> ExperimentRow:
    """A search that runs, with two trials that do."""
    return now(store, seeding.search(store))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, woken: list[Home]) -> Iterator[None]:
    """Who waits looks without a pause at what is otherwise looked at once a second."""
    monkeypatch.setattr("workbench.services.follow.full_disk.check_every_second", lambda check: check)
    yield
    assert woken


def now(store: Store, experiment_id: str) -> ExperimentRow:
    found = experiment(store, experiment_id)
    assert found is not None
    return found


def test_a_halt_does_not_wait_for_a_trial_that_a_person_resumed(
    store: Store, search: ExperimentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it waits")

    stopped, _, completed, *_, eleventh, twelfth = trial_jobs(store, search.id)
    resumed = (stopped.id, completed.id)
    store.execute("UPDATE jobs SET state = 'PROCESSING' WHERE id IN (?, ?)", resumed)
    record_event(store, search.id, {"do": "pause", "who": "me@box", "state": "PAUSED"})
    monkeypatch.setattr("workbench.services.follow.wait.Keeper", fail)

    with pytest.raises(AssertionError, match="it waits"):
        wait_until_halted(store, search)
    for each in (eleventh, twelfth):
        seeding.go(store, each, State.HALTED)

    assert wait_until_halted(store, search).state == "PAUSED"


def test_a_trial_that_is_made_while_its_search_is_tagged_gets_the_tag_too(
    store: Store, search: ExperimentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trials_so_far(store: Store, experiment_id: str) -> list[JobRow]:
        is_tagged = bool(annotations_of(store, experiment_id).tags)
        return trial_jobs(store, experiment_id)[: None if is_tagged else -1]

    monkeypatch.setattr("workbench.store.queries.experiments.trial_jobs", trials_so_far)

    tagged = annotate_search_and_trials(store, search, Annotations(add_tags=("good",)), origin="cli")

    assert [row.id for row in tagged] == [row.id for row in trial_jobs(store, search.id)]
    assert {row.tags for row in tagged} == {("good",)}


def test_waiting_for_a_paused_search_warns_once_how_it_goes_on(
    store: Store, search: ExperimentRow, woken: list[Home]
) -> None:
    warnings: list[str] = []
    record_event(store, search.id, {"do": "pause", "who": "me@box", "state": "PAUSED"})

    for any_one in (False, True):
        *_, in_time = wait_until_over(
            store, (), (search,), any_one=any_one, timeout_seconds=0.1, warn=warnings.append
        )
        assert not in_time
    assert len(warnings) == 2
    resume = f"fabric experiment resume {short_experiment_id(search.id)}"
    assert warnings[0] == f"digits is paused; `{resume}` has it go on"
    record_event(store, search.id, ENDED)
    wait_until_over(store, (), (search,), warn=warnings.append)
    assert len(warnings) == 2


def test_a_trial_that_is_not_made_yet_is_waited_for_until_its_job_is_over(
    store: Store, search: ExperimentRow, woken: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    twelfth = trial_jobs(store, search.id)[-1]
    store.execute("UPDATE trials SET number = 13 WHERE number = 12")  # nobody has begun the twelfth
    store.execute("UPDATE jobs SET state = 'COMPLETED' WHERE id = ?", (twelfth.id,))
    with pytest.raises(NotMade) as caught:
        member(store, search, 12)
    looks: list[float] = []

    def make_it(seconds: float) -> None:
        looks.append(seconds)
        with Store.open(store.home) as other:
            number = 12 if len(looks) == 3 else 14
            other.execute("UPDATE trials SET number = ? WHERE job_id = ?", (number, twelfth.id))

    monkeypatch.setattr("workbench.services.follow.wait.time.sleep", make_it)

    *_, in_time = wait_until_over(store, (), (), unmade=(caught.value.unmade,), warn=print)

    assert in_time and len(looks) == 3
    assert woken


def test_a_trial_that_is_never_made_is_not_waited_for(
    store: Store, search: ExperimentRow, woken: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    unmade = unmade_job(store, search, 14)

    def end_it(_: float) -> None:
        with Store.open(store.home) as other:
            record_event(other, search.id, ENDED)

    monkeypatch.setattr("workbench.services.follow.wait.time.sleep", end_it)

    with pytest.raises(NotMade, match="was never made: the search is FAILED: an older fabric ended it"):
        wait_until_over(store, (), (), unmade=(unmade,), warn=print)
    assert woken


def test_a_trial_that_a_paused_search_has_not_made_is_waited_for_with_a_warning(
    store: Store, search: ExperimentRow, woken: list[Home]
) -> None:
    warnings: list[str] = []
    unmade = unmade_job(store, search, 14)
    record_event(store, search.id, {"do": "pause", "who": "me@box", "state": "PAUSED"})

    *_, in_time = wait_until_over(store, (), (), unmade=(unmade,), timeout_seconds=0.1, warn=warnings.append)

    assert not in_time and len(warnings) == 1 and "digits is paused" in warnings[0]
    assert woken


@pytest.mark.usefixtures("at_once")
def test_a_deletion_that_an_older_controller_knows_nothing_of_is_not_waited_for(
    store: Store, search: ExperimentRow
) -> None:
    record_event(store, search.id, DELETION)
    record_event(store, search.id, ENDED)

    with pytest.raises(TryAgain, match="digits is FAILED and not deleted") as failure:
        wait_until_gone(store, search)

    assert failure.value.hint == "`fabric controller restart` starts it again"


@pytest.mark.usefixtures("at_once")
def test_a_deletion_that_was_given_up_is_not_waited_for(store: Store, search: ExperimentRow) -> None:
    record_event(store, search.id, DELETION)
    record_event(store, search.id, {"do": "note", "state": "RUNNING", "reason": ""})
    store.execute("DELETE FROM deleted_experiments")

    with pytest.raises(TryAgain, match="its deletion was given up") as failure:
        wait_until_gone(store, search)

    assert failure.value.hint == f"`fabric delete {short_experiment_id(search.id)}` starts it again"


def test_a_controller_is_started_for_a_search_that_is_to_be_deleted(
    store: Store, search: ExperimentRow
) -> None:
    store.execute("UPDATE jobs SET state = 'COMPLETED', next_try_us = NULL, intent = ''")
    record_event(store, search.id, DELETION)
    record_event(store, search.id, ENDED)
    assert has_open_searches(store) and is_unattended(store)

    store.execute("DELETE FROM deleted_experiments")
    assert not has_open_searches(store)
    store.execute("DROP TABLE deleted_experiments")  # as an older version leaves it
    assert not has_open_searches(store)
