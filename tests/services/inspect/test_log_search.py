"""Logs of jobs searched for a pattern: which jobs, attempts and lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from workbench.errors import InputMissing, UsageError
from workbench.job import Reason, State
from workbench.logs import parallel_search
from workbench.logs.grep import Pattern
from workbench.services.inspect.log_search import search_logs
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import new_attempt


@pytest.fixture
def rows(store: Store) -> list[JobRow]:
    """Three jobs, each with a log; the second has two learners, the third another attempt."""
    good = add_job(store, "good", State.COMPLETED, labels={"team": "a"})
    pair = add_job(store, "pair", State.FAILED, learners=2)
    again = add_job(store, "again", State.FAILED)
    write_output(folder_of(store.home, good), [b"step 1\nstep 2\nError: out\n"])
    write_output(folder_of(store.home, pair, learner=1), [b"Error: one\n"])
    write_output(folder_of(store.home, pair, learner=2), [b"fine\nError: two"])
    write_output(folder_of(store.home, again, attempt=1), [b"Error: first\n"])
    new_attempt(store, again.id, Reason("resumed"))
    write_output(folder_of(store.home, again, attempt=2), [b"\nError: second\n"])
    return [good, pair, again]


def hits(store: Store, text: str, **more: object) -> list[tuple[str, int, int, int, bytes]]:
    found = search_logs(store, Pattern(text), **more)  # type: ignore[arg-type]
    return [(hit.row.name, hit.attempt, hit.learner, hit.offset, hit.line) for hit in found]


def test_lines_that_match_come_the_newest_jobs_first(store: Store, rows: list[JobRow]) -> None:
    assert hits(store, "Error") == [
        ("again", 2, 1, 1, b"Error: second"),
        ("pair", 1, 1, 0, b"Error: one"),
        ("pair", 1, 2, 5, b"Error: two"),
        ("good", 1, 1, 14, b"Error: out"),
    ]
    assert hits(store, "nothing of that") == []


def test_logs_of_earlier_attempts_are_searched_where_that_is_asked_for(
    store: Store, rows: list[JobRow]
) -> None:
    assert [(name, attempt) for name, attempt, *_ in hits(store, "Error: [fs]", all_attempts=True)] == [
        ("again", 1), ("again", 2),
    ]  # fmt: skip


def test_only_jobs_that_fit_are_searched(store: Store, rows: list[JobRow]) -> None:
    assert [hit[0] for hit in hits(store, "Error", where=("state:failed", "name:pair"))] == ["pair", "pair"]
    assert [hit[0] for hit in hits(store, "Error", where=("label.team:a",))] == ["good"]
    assert hits(store, "Error", where=("name:nobody",)) == []


@pytest.mark.parametrize(("most", "found"), [(0, 0), (1, 3), (2, 4), (1 << 62, 4)])
def test_of_each_job_so_many_lines_are_enough(
    store: Store, rows: list[JobRow], most: int, found: int
) -> None:
    assert len(hits(store, "Error", hits_per_job_max=most)) == found


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("stat:x", "there is no field 'stat'"),
        ("los<1", "no job has a metric 'los'"),
        ("(a", r"( is not closed"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused_before_a_log_is_read(
    store: Store, rows: list[JobRow], where: str, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        search_logs(store, Pattern("x"), where=(where,))


def test_an_empty_store_and_jobs_without_logs_have_no_lines(store: Store) -> None:
    assert hits(store, "") == []
    add_job(store, "silent")
    assert hits(store, "") == []


def test_a_job_that_is_deleted_is_not_searched(store: Store, rows: list[JobRow]) -> None:
    mark_deleted(store, rows[0].id)

    assert [hit[0] for hit in hits(store, "step")] == []


def test_a_log_that_vanishes_while_others_are_searched_has_no_lines(store: Store, rows: list[JobRow]) -> None:
    found = search_logs(store, Pattern("Error"))
    first = next(found)
    folder_of(store.home, rows[0]).output.unlink()

    assert [hit.row.name for hit in (first, *found)] == ["again", "pair", "pair"]


def test_a_log_that_cannot_be_read_is_named(store: Store, rows: list[JobRow]) -> None:
    output = folder_of(store.home, rows[0]).output
    output.unlink()
    output.mkdir()

    with pytest.raises(InputMissing, match=r"output\.log"):
        hits(store, "Error")


def test_bytes_that_are_no_text_and_letters_of_any_script_are_found(store: Store, rows: list[JobRow]) -> None:
    write_output(folder_of(store.home, rows[0]), ["GRÖSSE \x1b[31m".encode() + b"\xff\n"])

    assert hits(store, "größe") == []
    assert [hit[4] for hit in hits(store, "GRÖSSE")] == ["GRÖSSE \x1b[31m".encode() + b"\xff"]
    found = search_logs(store, Pattern("gröSSe", ignore_case=True))
    assert [hit.row.name for hit in found] == ["good"]


def test_lines_longer_than_what_is_read_at_once_are_whole(store: Store, rows: list[JobRow]) -> None:
    long = b"x" * 1_200_000 + b" needle"
    write_output(folder_of(store.home, rows[0]), [long, b"\nnext\nlast needle without end"])

    assert [(offset, line) for _, _, _, offset, line in hits(store, "needle")] == [
        (0, long), (len(long) + 6, b"last needle without end"),
    ]  # fmt: skip


def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have so little searched by several processes, as much is."""
    monkeypatch.setattr(parallel_search, "PARALLEL_BYTES_MIN", 1)


def test_several_processes_find_the_same_in_the_same_order(
    store: Store, rows: list[JobRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: Sequence[dict[str, object]] = ({}, {"all_attempts": True}, {"hits_per_job_max": 1})
    alone = [hits(store, "r", **more) for more in kinds]

    several_processes(monkeypatch)

    assert [hits(store, "r", **more) for more in kinds] == alone


def test_who_has_found_enough_ends_them(
    store: Store, rows: list[JobRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    several_processes(monkeypatch)
    write_output(folder_of(store.home, rows[2], attempt=2), [b"Error\n" * 200_000])
    found = search_logs(store, Pattern("Error"))

    assert next(found).line == b"Error"
    found.close()  # type: ignore[attr-defined] # it is a generator, whose end waits for theirs
