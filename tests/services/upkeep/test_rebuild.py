"""A database is made again of the job folders, while no controller runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, points, write_records
from tests.services.stored import copied
from tests.support.controllers import alive, answers, controller, end_all
from tests.support.waiting import until
from workbench.controller.client.connect import status
from workbench.controller.runtime.lock import ControllerLock
from workbench.errors import TryAgain
from workbench.job import State
from workbench.metrics import series
from workbench.paths import Home
from workbench.services.upkeep import rebuild as service
from workbench.services.upkeep.rebuild import RebuiltDatabase, rebuild_database, take_controller_lock
from workbench.store.db.database import Store, home_uuid
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.resolve import resolve
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import annotate


@pytest.fixture
def filled(home: Home) -> Iterator[Home]:
    """A home with a job that is over, one that was deleted, and one that is open; no controller is left."""
    with Store.open(home) as store:
        over = add_job(store, "größe \U0001f680", State.COMPLETED)
        annotate(store, over.id, tags=["best"], note="first\nsecond")
        write_records(folder_of(home, over), over, [points([1, 2], loss=[0.5, 0.25])], home=home_uuid(home))
        gone = add_job(store, "gone", State.HALTED)
        mark_deleted(store, gone.id)
        add_job(store, "open")
    yield home
    end_all(home)


def lose(home: Home) -> None:
    for file in home.path.glob(f"{home.database.name}*"):
        file.unlink()


def names(home: Home) -> list[str]:
    with Store.open(home) as store:
        return [row.name for row in list_jobs(store)]


def test_a_lost_database_is_restored_with_what_people_noted_and_what_was_measured(
    filled: Home, woken: list[Home]
) -> None:
    with Store.open(filled) as store:
        before = list_jobs(store)
    lose(filled)

    found = rebuild_database(filled)

    assert (found.jobs, found.deleted_jobs, found.open_jobs, found.problems, found.kept) == (2, 1, 1, (), "")
    assert found.events > found.jobs
    assert woken == [filled]
    with Store.open(filled) as store:
        again = list_jobs(store)
        (loss,) = series(store, again[1].id)
    assert [(row.id, row.name, row.state, row.tags, row.note) for row in again] == [
        (row.id, row.name, row.state, row.tags, row.note) for row in before
    ]
    assert (loss.name, loss.points, loss.last) == ("loss", 2, 0.25)


def test_a_database_that_is_there_is_kept_beside_the_new_one(filled: Home, woken: list[Home]) -> None:
    found = rebuild_database(filled)

    assert Path(found.kept).is_file()
    assert Path(found.kept).parent == filled.path
    assert names(filled) == ["open", "größe \U0001f680"]


def test_a_database_that_cannot_be_read_is_made_again(filled: Home, woken: list[Home]) -> None:
    lose(filled)
    filled.database.write_bytes(b"not a database" * 1000)

    found = rebuild_database(filled)

    assert found.jobs == 2
    assert Path(found.kept).read_bytes().startswith(b"not a database")


@pytest.mark.unmade_home
def test_a_home_without_jobs_gets_an_empty_one(home: Home, woken: list[Home]) -> None:
    assert rebuild_database(home) == RebuiltDatabase(0, 0, 0, 0, (), "")
    assert names(home) == []
    assert woken == []


def test_what_cannot_be_restored_is_reported_and_the_rest_is(filled: Home, woken: list[Home]) -> None:
    with Store.open(filled) as store:
        damaged = filled.job(resolve(store, "@last~1").id).path
    (damaged / "job.json").write_text("{")
    lose(filled)

    found = rebuild_database(filled)

    assert len(found.problems) == 1
    assert damaged.name in found.problems[0]
    assert names(filled) == ["open"]


def test_a_line_that_was_torn_by_a_crash_costs_only_itself(filled: Home, woken: list[Home]) -> None:
    for path in filled.jobs.iterdir():
        with (path / "events.jsonl").open("ab") as stream:
            stream.write(b'{"do": "annotate", "note": "to')
    lose(filled)

    assert rebuild_database(filled).problems == ()
    assert len(names(filled)) == 2


def test_twice_is_as_good_as_once(filled: Home, woken: list[Home]) -> None:
    lose(filled)
    first, second = rebuild_database(filled), rebuild_database(filled)

    assert (second.jobs, second.events, second.deleted_jobs) == (first.jobs, first.events, first.deleted_jobs)


def test_no_controller_starts_for_a_copy(filled: Home, woken: list[Home]) -> None:
    copy = copied(filled, filled.path.with_name("copy"))
    lose(copy)

    assert rebuild_database(copy).open_jobs == 1
    assert woken == []


def test_a_controller_that_runs_steps_down_first_and_another_one_follows(filled: Home) -> None:
    first = controller(filled)
    answers(filled)

    found = rebuild_database(filled)

    assert found.jobs == 2
    until(lambda: not alive(first.pid), "the end of the one that has given its lock back")
    assert answers(filled).pid != first.pid


def test_one_that_does_not_step_down_is_reported(filled: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOCK_SECONDS", 0.1)
    held = ControllerLock.take(filled)
    assert held is not None
    before = filled.database.read_bytes()
    try:
        with pytest.raises(TryAgain, match="does not step down") as refused:
            rebuild_database(filled)
    finally:
        held.release()

    assert refused.value.hint == "fabric controller stop"
    assert filled.database.read_bytes() == before


def test_the_lock_keeps_every_other_from_starting(filled: Home) -> None:
    lock = take_controller_lock(filled)
    try:
        assert ControllerLock.take(filled) is None
        assert status(filled) is None
    finally:
        lock.release()
    again = ControllerLock.take(filled)
    assert again is not None
    again.release()
