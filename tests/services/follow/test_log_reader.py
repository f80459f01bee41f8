"""What learners printed: whole, from a line or a time on, filtered, in order, and as it comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import START_US, folder_of, write_output
from tests.quick.logs.writing import Journal
from tests.services.stored import copied, now
from workbench.errors import HomeNotBound, InputMissing, UnknownName
from workbench.job import Reason, State
from workbench.logs.grep import Pattern
from workbench.paths import Home, SetupFolder
from workbench.services.follow.log_reader import (
    LogLine,
    LogQuery,
    follow_attempts,
    learner_lines,
    learners_of,
    read_lines,
    read_log,
    waiting_for_output,
)
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import NextAttempt, new_attempt, step

SECOND_US = 1_000_000
NASTY = b"plain\n\x1b]0;title\x07\x1b[31mred\x1b[0m\r\n\xff\xfe not text\x00\n\n\xe2\x82\xac\nno end of line"


@pytest.fixture
def one(store: Store) -> JobRow:
    """A job whose learner printed two pieces, a second apart."""
    row = add_job(store, "one", State.COMPLETED)
    write_output(folder_of(store.home, row), [b"first\nsecond\n", b"third\nlast\n"])
    return row


@pytest.fixture
def pair(store: Store) -> JobRow:
    """A job of two learners that printed by turns."""
    row = add_job(store, "pair", State.COMPLETED, learners=2)
    write_output(folder_of(store.home, row, learner=1), [b"a1\n", b"a2\n"])
    write_output(folder_of(store.home, row, learner=2), [b"b1\nb2", b"\nb3"], step_us=1_500_000)
    return row


@pytest.fixture
def running(store: Store, woken: list[Home]) -> tuple[JobRow, Journal]:
    """A job that runs and has printed nothing yet."""
    row = add_job(store, "running", State.PROCESSING)
    return row, Journal(store.home.job(row.id).attempt(1).learner(1).path)


def query(row: JobRow, **more: object) -> LogQuery:
    return replace(LogQuery(learners_of(row, None), row.attempt), **more)  # type: ignore[arg-type]


def log(store: Store, row: JobRow, **more: object) -> bytes:
    return b"".join(read_log(store, row, query(row, **more)))


# Which learners


def test_all_learners_of_a_job_or_one(pair: JobRow) -> None:
    assert learners_of(pair, None) == (1, 2)
    assert learners_of(pair, 2) == (2,)


@pytest.mark.parametrize("number", [0, -1, 3, 1 << 70])
def test_a_learner_that_there_is_not_is_named_with_those_there_are(pair: JobRow, number: int) -> None:
    with pytest.raises(UnknownName, match=f"there is no learner {number}") as refused:
        learners_of(pair, number)

    assert refused.value.hint == "learners are 1 to 2"


# Which lines


def test_what_is_there_is_read(store: Store, one: JobRow) -> None:
    assert log(store, one) == b"first\nsecond\nthird\nlast\n"


@pytest.mark.parametrize(
    ("lines", "output"),
    [(2, b"third\nlast\n"), (1, b"last\n"), (0, b""), (4, b"first\nsecond\nthird\nlast\n"), (1 << 62, None)],
)
def test_the_last_lines(store: Store, one: JobRow, lines: int, output: bytes | None) -> None:
    assert log(store, one, tail=lines) == (log(store, one) if output is None else output)


def test_what_was_printed_from_a_time_on(store: Store, one: JobRow) -> None:
    everything = log(store, one)

    assert log(store, one, since_us=START_US + 1) == b"third\nlast\n"
    assert log(store, one, since_us=START_US) == log(store, one, since_us=-1) == everything
    assert log(store, one, since_us=START_US + SECOND_US + 1) == b""
    assert log(store, one, since_us=1 << 63) == b""
    assert log(store, one, since_us=START_US, tail=1) == b"last\n"
    assert log(store, one, since_us=START_US + 1, tail=3) == b"third\nlast\n"


def test_lines_that_match_or_do_not(store: Store, one: JobRow) -> None:
    assert log(store, one, pattern=Pattern("st$")) == b"first\nlast\n"
    assert log(store, one, pattern=Pattern("st$"), invert=True) == b"second\nthird\n"
    assert log(store, one, pattern=Pattern("nothing")) == b""
    assert log(store, one, pattern=Pattern("ST", ignore_case=True), tail=1) == b"last\n"


def test_bytes_of_one_learner_are_given_as_they_are(store: Store, one: JobRow) -> None:
    write_output(folder_of(store.home, one), [NASTY[:50], NASTY[50:]])

    assert log(store, one) == NASTY


def test_lines_of_several_learners_are_whole_and_in_the_order_of_their_times(
    store: Store, pair: JobRow
) -> None:
    assert log(store, pair) == b"[1] a1\n[2] b1\n[1] a2\n[2] b2\n[2] b3\n"
    assert log(store, pair, prefix=False) == b"a1\nb1\na2\nb2\nb3\n"
    assert log(store, pair, learners=(2,)) == b"b1\nb2\nb3"


def test_lines_have_their_times_and_texts(store: Store, pair: JobRow) -> None:
    first, *_, last = read_lines(store, pair, query(pair))

    assert first == LogLine(1, 1, "2023-11-14T22:13:20.000Z", "a1")
    assert (last.learner, last.time, last.text) == (2, "2023-11-14T22:13:21.500Z", "b3")


def test_a_line_that_is_no_text_is_one_all_the_same(store: Store, one: JobRow) -> None:
    write_output(folder_of(store.home, one), [NASTY])

    assert [line.text for line in read_lines(store, one, query(one))] == [
        "plain",
        "\x1b]0;title\x07\x1b[31mred\x1b[0m\r",
        "\ufffd\ufffd not text\x00",
        "",
        "€",
        "no end of line",
    ]


def test_the_output_of_the_setup_is_another_one(store: Store, one: JobRow) -> None:
    setup = SetupFolder(store.home.job(one.id).attempt(1).learner(1).path)
    assert log(store, one, setup=True) == b""

    setup.output.parent.mkdir(parents=True, exist_ok=True)
    write_output(setup, [b"fetched\n"])

    assert log(store, one, setup=True) == b"fetched\n"


def test_what_is_not_published_is_not_read(store: Store, one: JobRow) -> None:
    with folder_of(store.home, one).output.open("ab") as stream:
        stream.write(b"a secret that is not overwritten yet")

    assert log(store, one).endswith(b"last\n")


# What is not there


def test_a_job_that_printed_nothing_has_no_output(store: Store) -> None:
    row = add_job(store, "silent", State.FAILED)

    assert log(store, row) == log(store, row, tail=5) == log(store, row, since_us=0) == b""
    assert list(read_lines(store, row, query(row))) == []


def test_an_attempt_that_there_is_not_has_no_output(store: Store, one: JobRow) -> None:
    assert log(store, one, attempt=7) == b""


def test_a_log_whose_output_has_vanished_is_empty(store: Store, one: JobRow) -> None:
    folder_of(store.home, one).output.unlink()

    assert log(store, one) == b""
    assert list(read_lines(store, one, query(one))) == []


def test_a_log_that_is_a_folder_is_reported(store: Store, one: JobRow) -> None:
    output = folder_of(store.home, one).output
    output.unlink()
    output.mkdir()

    with pytest.raises((InputMissing, OSError)):
        log(store, one)


# As it comes


def test_an_ended_attempt_is_followed_to_its_end_at_once(
    store: Store, one: JobRow, woken: list[Home]
) -> None:
    ((followed, _),) = list(follow_attempts(store, one, query(one, tail=1), to_the_end=True))

    assert (followed.attempt, followed.tail) == (1, 1)


def test_what_is_printed_while_it_is_followed_comes_once(
    store: Store, running: tuple[JobRow, Journal]
) -> None:
    row, journal = running
    journal.publish(b"first\nhal", START_US)
    got: list[bytes] = []

    with waiting_for_output(store) as wait:
        for data in read_log(store, row, query(row), wait):
            got.append(data)
            if len(got) == 1:
                journal.publish(b"f\n\xc3", START_US + SECOND_US)
            elif len(got) == 2:
                journal.publish(b"\xa4last", START_US + SECOND_US)
                journal.end()

    assert b"".join(got) == b"first\nhalf\n\xc3\xa4last"


def test_a_learner_that_is_lost_ends_when_the_store_says_so(
    store: Store, running: tuple[JobRow, Journal]
) -> None:
    row, journal = running
    journal.publish(b"first\n", START_US)
    got: list[bytes] = []

    with waiting_for_output(store) as wait:
        for data in read_log(store, row, query(row), wait):
            got.append(data)
            step(store, row.id, 1, State.FAILED, Reason("its host is gone"))

    assert got == [b"first\n"]


def test_following_ends_when_the_job_is_deleted(store: Store, running: tuple[JobRow, Journal]) -> None:
    row, journal = running
    journal.publish(b"first\n", START_US)
    got: list[bytes] = []

    for one, wait in follow_attempts(store, row, query(row), to_the_end=True):
        for data in read_log(store, row, one, wait):
            got.append(data)
            step(store, row.id, 1, State.HALTED, Reason("was deleted"))
            mark_deleted(store, row.id)

    assert got == [b"first\n"]


def test_attempts_are_followed_one_after_the_other_until_the_job_is_over(
    store: Store, running: tuple[JobRow, Journal]
) -> None:
    row, journal = running
    journal.publish(b"old\nfirst\n", START_US)
    got: list[tuple[int, bytes]] = []

    for one, wait in follow_attempts(store, row, query(row, tail=1), to_the_end=True):
        if one.attempt == 2:
            second = Journal(store.home.job(row.id).attempt(2).learner(1).path)
            second.publish(b"again\nsecond\n", START_US)
            step(store, row.id, 2, State.FAILED, Reason("x"))
        for data in read_log(store, row, one, wait):
            got.append((one.attempt, data))
            if one.attempt == 1:
                step(store, row.id, 1, State.STORING, Reason(""))
                due = NextAttempt(Reason("again"), 1, 0, 0)
                step(store, row.id, 1, State.FAILED, Reason("x"), then=due)

    assert got == [(1, b"first\n"), (2, b"again\nsecond\n")]


def test_one_attempt_is_followed_alone_where_it_is_meant(
    store: Store, running: tuple[JobRow, Journal]
) -> None:
    row, journal = running
    journal.publish(b"first\n", START_US)
    for state in (State.STORING, State.FAILED):
        step(store, row.id, 1, state, Reason(""))
    new_attempt(store, row.id, Reason("resumed"))

    followed = [one.attempt for one, _ in follow_attempts(store, row, query(row), to_the_end=False)]

    assert followed == [1]


def test_whoever_waits_keeps_a_controller_running_but_for_a_copy(
    store: Store, one: JobRow, woken: list[Home]
) -> None:
    copy = copied(store.home, store.home.path.with_name("copy"))

    with Store.open(copy) as elsewhere:
        assert log(elsewhere, one) == log(store, one)
        with pytest.raises(HomeNotBound), waiting_for_output(elsewhere):
            pytest.fail("nothing would come")


# One learner's lines, for who reads them in Python


def lines(row: JobRow, **more: object) -> Iterator[str]:
    options: dict[str, object] = {"learner": 1, "attempt": 1, "tail": None, "follow": False, **more}
    return learner_lines(row, **options)  # type: ignore[arg-type]


def test_lines_of_a_learner_are_texts(store: Store, one: JobRow) -> None:
    assert list(lines(one)) == ["first", "second", "third", "last"]
    assert list(lines(one, tail=2)) == ["third", "last"]
    assert list(lines(one, tail=0)) == list(lines(one, learner=2)) == list(lines(one, attempt=9)) == []
    write_output(folder_of(store.home, one), [NASTY])
    assert list(lines(one))[2:] == ["\ufffd\ufffd not text\x00", "", "€", "no end of line"]


def test_a_line_that_is_longer_than_what_is_read_at_once_is_whole(store: Store, one: JobRow) -> None:
    write_output(folder_of(store.home, one), ["ä".encode() * 1_100_000, b"\nend"])

    found = list(lines(one))

    assert [(len(line), line[-1]) for line in found] == [(1_100_000, "ä"), (3, "d")]


def test_lines_are_followed_to_the_end_of_the_attempt(store: Store, running: tuple[JobRow, Journal]) -> None:
    row, journal = running
    journal.publish(b"first\nhal", START_US)
    got: list[str] = []

    for line in lines(row, follow=True):
        got.append(line)
        if line == "first":
            journal.publish(b"f\nlast", START_US)
            step(store, row.id, 1, State.FAILED, Reason("x"))

    assert got == ["first", "half", "last"]


def test_lines_are_read_in_the_thread_that_asks_for_the_first(one: JobRow) -> None:
    reading = lines(one)
    got: list[str] = []

    thread = threading.Thread(target=lambda: got.extend(reading))
    thread.start()
    thread.join()

    assert got == ["first", "second", "third", "last"]


def test_a_row_of_before_is_read_as_the_job_is_now(store: Store, running: tuple[JobRow, Journal]) -> None:
    row, journal = running
    journal.publish(b"first\n", START_US)
    step(store, row.id, 1, State.FAILED, Reason("x"))

    assert now(store, row).state is State.FAILED
    assert list(lines(row, follow=True)) == ["first"]
