from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stored_jobs import add_job, make_detail
from workbench.errors import AmbiguousName, UnknownName
from workbench.job import JobId, short_id
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.experiments import ExperimentRow
from workbench.store.queries.resolve import resolve, resolve_any
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.experiments import insert_experiment, new_experiment_id
from workbench.store.updates.jobs import insert_job


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def named(store: Store, body: str, name: str) -> JobRow:
    from dataclasses import replace

    detail = make_detail(name)
    return insert_job(store, replace(detail, row=replace(detail.row, id=JobId(f"training-{body}"))))


def test_ids_prefixes_names_and_last_all_stand_for_a_job(store: Store) -> None:
    first = named(store, "abcdefghj", "mnist")
    second = named(store, "abxyz2345", "digits run")

    for text in ("training-abcdefghj", "abcdefghj", "abc", "training-abc", "mnist", " ABC ", "mnist "):
        assert resolve(store, text).id == first.id, text
    for text in ("@last", "digits run", "abx"):
        assert resolve(store, text).id == second.id, text


def test_a_search_goes_by_its_name_before_a_job_by_the_beginning_of_its_id(store: Store) -> None:
    job = named(store, "lrcdefghj", "precious")
    experiment_id = new_experiment_id()
    document = {"spec": {"name": "lr", "search": {"method": "random"}}}
    insert_experiment(store, experiment_id, document)

    found = resolve_any(store, "lr", one=True)
    assert isinstance(found, ExperimentRow) and found.id == experiment_id
    assert resolve_any(store, "lrc") == job
    assert resolve_any(store, experiment_id[:16]) == found


def test_an_ambiguous_prefix_names_the_candidates(store: Store) -> None:
    named(store, "abcdefghj", "mnist")
    named(store, "abxyz2345", "digits")

    with pytest.raises(
        AmbiguousName, match=r"'ab' fits 2 jobs: abxyz2345 \(digits, QUEUED\), abcdefghj"
    ) as caught:
        resolve(store, "ab")
    assert caught.value.exit_code == 64


def test_a_name_of_several_jobs_means_the_newest_with_a_note(store: Store) -> None:
    rows = [add_job(store, "mnist") for _ in range(7)]
    notes: list[str] = []
    store.note_by(notes.append)

    assert resolve(store, "mnist").id == rows[-1].id
    assert notes == [f"7 jobs have the name 'mnist'; this is the newest, {short_id(rows[-1].id)}"]


def test_a_name_of_several_jobs_is_refused_where_one_must_be_meant(store: Store) -> None:
    rows = [add_job(store, "mnist") for _ in range(7)]

    with pytest.raises(AmbiguousName, match="'mnist' fits 7 jobs") as caught:
        resolve(store, "mnist", one=True)
    assert short_id(rows[-1].id) in caught.value.message
    assert "and 2 more" in caught.value.message


def test_a_whole_id_goes_before_a_name_and_a_name_before_a_prefix(store: Store) -> None:
    first = named(store, "abcdefghj", "plain")
    second = named(store, "xyz234567", "abcdefghj")
    third = named(store, "cat222222", "other")
    fourth = named(store, "dog222222", "cat")

    assert resolve(store, "abcdefghj").id == first.id
    assert resolve(store, "cat").id == fourth.id
    assert resolve(store, "cat2").id == third.id
    assert second.name == "abcdefghj"


@pytest.mark.parametrize(
    "text", ["abcdefghk", "training-", "", "  ", "%", "_________", "@last~1", "training-%"]
)
def test_what_stands_for_nothing_is_unknown(store: Store, text: str) -> None:
    named(store, "abcdefghj", "mnist")

    with pytest.raises(UnknownName, match="there is no job"):
        resolve(store, text)


def test_an_unknown_name_hints_at_the_nearest(store: Store) -> None:
    named(store, "abcdefghj", "mnist-large")

    with pytest.raises(UnknownName) as caught:
        resolve(store, "mnist-lrage")
    assert caught.value.hint == "did you mean mnist-large?"
    with pytest.raises(UnknownName) as caught:
        resolve(store, "abcdefghk")
    assert "abcdefghj" in caught.value.hint


def test_deleted_jobs_are_not_meant(store: Store) -> None:
    row = named(store, "abcdefghj", "mnist")
    mark_deleted(store, row.id)

    for text in ("abc", "mnist", row.id, "@last"):
        with pytest.raises(UnknownName):
            resolve(store, text)


def test_last_of_an_empty_store_says_how_to_begin(store: Store) -> None:
    with pytest.raises(UnknownName, match="no jobs yet"):
        resolve(store, "@last")


def test_jobs_are_counted_back_from_the_last(store: Store) -> None:
    first, second = add_job(store, "one"), add_job(store, "two")

    assert [resolve(store, text).id for text in ("@last", "@last~0", "@last~1")] == [
        second.id, second.id, first.id,
    ]  # fmt: skip
    with pytest.raises(UnknownName, match="no job @last~2") as caught:
        resolve(store, "@last~2")
    assert "@last~1" in caught.value.hint
