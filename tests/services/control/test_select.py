"""Which jobs names, labels and filters mean: the list that a client confirms."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cli.jobs import add_job
from workbench.errors import AmbiguousName, FabricError, UnknownName, UsageError
from workbench.job import Reason, State, short_id
from workbench.services.control.select import JobSelector, select, select_all
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import NextAttempt, step


@pytest.fixture
def rows(store: Store) -> dict[str, JobRow]:
    """Jobs of a sweep, the middle one of which is over, and another that is open."""
    return {
        "one": add_job(store, "one", labels={"sweep": "lr", "team": "größe"}),
        "two": add_job(store, "two", State.COMPLETED, labels={"sweep": "lr"}),
        "three": add_job(store, "three", State.PROCESSING, labels={"sweep": "lr", "gpu": ""}),
        "other": add_job(store, "other"),
    }


def names(store: Store, *words: str, **more: object) -> list[str]:
    return [row.name for row in select(store, JobSelector(words, **more))]  # type: ignore[arg-type]


def test_jobs_come_in_the_order_of_their_names(store: Store, rows: dict[str, JobRow]) -> None:
    two = rows["two"].id

    assert names(store, "three", short_id(two), "@last", "@last~3") == ["three", "two", "other", "one"]
    assert select(store, JobSelector((two,))) == (rows["two"],)


def test_a_job_that_several_names_stand_for_comes_once(store: Store, rows: dict[str, JobRow]) -> None:
    one = rows["one"]

    assert names(store, "one", "two", one.id, short_id(one.id), "@last~3", "one") == ["one", "two"]


def test_a_name_that_is_that_of_two_jobs_means_the_newest_and_says_so(
    store: Store, rows: dict[str, JobRow]
) -> None:
    newer = add_job(store, "one")
    notes: list[str] = []
    store.note_by(notes.append)

    assert select(store, JobSelector(("one",))) == (newer,)
    assert notes == [f"2 jobs have the name 'one'; this is the newest, {short_id(newer.id)}"]


def test_a_name_that_is_that_of_two_jobs_is_refused_where_one_is_meant(
    store: Store, rows: dict[str, JobRow]
) -> None:
    newer = add_job(store, "one")

    with pytest.raises(AmbiguousName, match="'one' fits 2 jobs: ") as refused:
        select(store, JobSelector(("one",), one=True))

    assert f"{short_id(newer.id)} (one, QUEUED)" in refused.value.message
    assert refused.value.hint == "give more characters of the id"


def test_numbers_of_a_sweep_mean_several_of_its_jobs(store: Store) -> None:
    for number in range(1, 5):
        add_job(store, f"digits-{number}", labels={"sweep": "lr"})

    selector = JobSelector(("lr[1..2,4]", "digits[2]"))
    assert names(store, *selector.names) == ["digits-1", "digits-2", "digits-4"]
    assert [row.name for row in select_all(store, selector).jobs] == ["digits-1", "digits-2", "digits-4"]


def test_a_label_means_all_jobs_that_have_it_the_oldest_first(store: Store, rows: dict[str, JobRow]) -> None:
    assert names(store, label="sweep=lr") == ["one", "two", "three"]
    assert names(store, label="sweep") == ["one", "two", "three"]
    assert names(store, label="team=größe") == ["one"]
    assert names(store, label="gpu=") == ["three"]


def test_a_filter_means_all_jobs_that_fit_the_oldest_first(store: Store, rows: dict[str, JobRow]) -> None:
    assert names(store, where=("state:completed or name:other",)) == ["two", "other"]
    assert names(store, where=("label.sweep:lr", "is:open")) == ["one", "three"]
    assert names(store, where=("name:nobody",)) == []


def test_named_jobs_come_first_and_none_comes_twice(store: Store, rows: dict[str, JobRow]) -> None:
    assert names(store, "three", label="sweep=lr", where=("name:o",)) == ["three", "one", "two", "other"]


def test_jobs_that_have_ended_are_left_out_unless_they_are_named(
    store: Store, rows: dict[str, JobRow]
) -> None:
    assert names(store, label="sweep=lr", only_open=True) == ["one", "three"]
    assert names(store, where=("label.sweep:lr",), only_open=True) == ["one", "three"]
    assert names(store, "two", label="sweep=lr", only_open=True) == ["two", "one", "three"]


def test_a_job_that_is_tried_again_has_not_ended(store: Store, rows: dict[str, JobRow]) -> None:
    three = rows["three"]
    step(store, three.id, 1, State.STORING, Reason(""))
    step(store, three.id, 1, State.FAILED, Reason("x"), then=NextAttempt(Reason("again"), 1, 0, 1 << 60))

    assert names(store, label="sweep=lr", only_open=True) == ["one", "three"]


def test_a_deleted_job_is_none(store: Store, rows: dict[str, JobRow]) -> None:
    mark_deleted(store, rows["one"].id)

    assert names(store, label="sweep=lr") == ["two", "three"]
    assert names(store, where=("name:one",)) == []
    for name in ("one", rows["one"].id):
        with pytest.raises(UnknownName, match="there is no job"):
            select(store, JobSelector((name,)))


WRONG: Sequence[tuple[JobSelector, type[FabricError], str, str]] = (
    (JobSelector(), UsageError, "which job?", "@last, --label KEY=VALUE, or --where"),
    (JobSelector(("",)), UnknownName, "there is no job ''", "fabric list shows the jobs there are"),
    (JobSelector(("thre",)), UnknownName, "there is no job 'thre'", "did you mean three"),
    (JobSelector(("one", "nobody-here")), UnknownName, "there is no job 'nobody-here'", ""),
    (JobSelector(("@last~9",)), UnknownName, "there is no job @last~9", "the oldest is @last~3"),
    (JobSelector(("\x1b[2J",)), UnknownName, r"there is no job '\x1b[2J'", ""),
    (
        JobSelector(label="sweep=rl"),
        UnknownName,
        "no job has the label sweep=rl",
        "did you mean sweep=lr?",
    ),
    (
        JobSelector(label="x"),
        UnknownName,
        "no job has the label x",
        "`fabric list --columns id,name,labels`",
    ),
    (JobSelector(where=("stat:x",)), UsageError, "there is no field 'stat'", ""),
    (JobSelector(("one",), where=("los<1",)), UsageError, "no job has a metric 'los'", ""),
)


def test_what_means_no_job_is_reported_with_what_helps(store: Store, rows: dict[str, JobRow]) -> None:
    for selector, error, message, hint in WRONG:
        with pytest.raises(error) as refused:
            select(store, selector)
        assert message in refused.value.message
        assert hint in refused.value.hint


def test_an_empty_store_says_how_to_start_a_job(store: Store) -> None:
    with pytest.raises(UnknownName, match="there are no jobs yet") as refused:
        select(store, JobSelector(("@last",)))
    assert refused.value.hint == "fabric run starts one"

    assert select(store, JobSelector(where=("is:open",))) == ()
    with pytest.raises(UnknownName, match="no job has the label a"):
        select(store, JobSelector(label="a"))
