from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.stored_jobs import add_job
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.job_fields import sort_keys
from workbench.store.queries.job_list import (
    JobList,
    Window,
    jobs_between,
    known_values,
    window,
)
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.where import parse
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import step

NOW_US = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that tests only read."""
    with Store.open(Home(tmp_path_factory.mktemp("listed") / "fabric")) as opened:
        yield filled(opened)


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    """The same for a test that changes it."""
    with Store.open(home) as opened:
        yield filled(opened)


def filled(opened: Store) -> Store:
    dice = random.Random(7)
    for number in range(57):
        job = add_job(
            opened, dice.choice(["Alpha", "beta", "gamma"]), backend=dice.choice(["local", "gpubox"])
        )
        if number % 3 == 0:
            step(opened, job.id, 1, State.FAILED, Reason("no"), exit_code=number % 5)
    return opened


def ids(found: Window) -> list[str]:
    return [row.id for row in found.rows]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", [*sort_keys(), '"loss"', "min(train/loss)", "params.lr", "label.team"])
def test_every_window_of_an_order_is_a_piece_of_the_whole(listed: Store, sort: str, descending: bool) -> None:
    listing = JobList(sort=sort, descending=descending)
    whole = window(listed, listing, now_us=NOW_US, limit=1000)
    assert len(whole.rows) == whole.total == whole.jobs == 57 and whole.start == 0

    for place in (0, 3, 28, 55, 56):
        found = window(listed, listing, now_us=NOW_US, anchor=whole.keys[place], limit=10)

        assert found.start == max(0, place - 5)
        assert ids(found) == ids(whole)[found.start : found.start + len(found.rows)]
        assert len(found.rows) >= 6
        assert found.total == 57


def test_newest_first_is_the_order_that_lists_have(listed: Store) -> None:
    assert ids(window(listed, JobList(), now_us=NOW_US, limit=1000)) == [job.id for job in list_jobs(listed)]


def test_names_are_sorted_without_regard_to_case(listed: Store) -> None:
    found = window(listed, JobList(sort="name", descending=False), now_us=NOW_US, limit=1000)

    assert [row.name.lower() for row in found.rows] == sorted(row.name.lower() for row in found.rows)


def test_rows_from_an_offset(listed: Store) -> None:
    whole = window(listed, JobList(), now_us=NOW_US, limit=1000)
    found = window(listed, JobList(), now_us=NOW_US, offset=40, limit=10)

    assert (found.start, ids(found)) == (40, ids(whole)[40:50])
    assert window(listed, JobList(), now_us=NOW_US, offset=999).rows == ()


def test_an_anchor_is_a_place_and_not_a_row(store: Store) -> None:
    whole = window(store, JobList(), now_us=NOW_US, limit=1000)
    gone = whole.rows[20]
    step(store, gone.id, 1, State.FAILED, Reason("no")) if gone.state is State.QUEUED else None
    mark_deleted(store, gone.id)

    found = window(store, JobList(), now_us=NOW_US, anchor=whole.keys[20], limit=10)

    assert gone.id not in ids(found)
    assert ids(found) == [one for one in ids(whole) if one != gone.id][15:25]
    assert found.jobs == 56


def test_a_filter_is_counted_apart_from_the_store(listed: Store) -> None:
    listing = replace(JobList(), where=parse("state:failed"))
    found = window(listed, listing, now_us=NOW_US, limit=5)

    assert (len(found.rows), found.total, found.jobs) == (5, 19, 57)
    assert found.states == {State.FAILED: 19, State.QUEUED: 38}


def test_what_jobs_have_in_fields_of_filters_is_known(home: Home) -> None:
    with Store.open(home) as store:
        assert not any(known_values(store).values())
        add_job(store, backend="gpubox", tags=("best", "again"), labels={"team": "vision"})
        add_job(store, backend="local", tags=("best",))
        gone = add_job(store, tags=("deleted",))
        step(store, gone.id, 1, State.FAILED, Reason("no"))
        mark_deleted(store, gone.id)

        found = known_values(store)

    assert found["backend"] == ["gpubox", "local"]
    assert found["tags"] == ["again", "best"]
    assert found["labels"] == ["team=vision"]
    assert found["owner"] and found["runner"]


def test_an_empty_store_has_an_empty_window(home: Home) -> None:
    found = window(Store.open(home), JobList(), now_us=NOW_US)

    assert (found.rows, found.start, found.total, found.jobs, found.states) == ((), 0, 0, 0, {})


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", [*sort_keys(), "params.lr"])
def test_the_jobs_between_two_are_those_of_the_list(listed: Store, sort: str, descending: bool) -> None:
    listing = JobList(sort=sort, descending=descending)
    whole = ids(window(listed, listing, now_us=NOW_US))

    for first, last in ((3, 9), (9, 3), (5, 5), (0, len(whole) - 1)):
        between = jobs_between(listed, listing, whole[first], whole[last], now_us=NOW_US)
        assert [row.id for row in between] == whole[min(first, last) : max(first, last) + 1]


def test_there_is_nothing_between_a_job_and_one_that_is_not_listed(listed: Store) -> None:
    whole = window(listed, JobList(), now_us=NOW_US).rows
    filtered = JobList(where=parse(f"!{whole[2].id}"))

    assert jobs_between(listed, filtered, whole[2].id, whole[5].id, now_us=NOW_US) == ()
    assert len(jobs_between(listed, filtered, whole[1].id, whole[5].id, now_us=NOW_US)) == 4
