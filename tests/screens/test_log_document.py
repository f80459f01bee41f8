from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from screens.logs.document import HitCount, LogDocument, Sieve
from screens.logs.order import Order
from screens.logs.search import pattern_of
from tests.screens.seeding import JournalWriter
from workbench.errors import UsageError
from workbench.logs.grep import Pattern
from workbench.logs.levels import Level
from workbench.paths import LearnerFolder

START_US = 1_700_000_000_000_000


def never() -> bool:
    return False


def settle(document: LogDocument) -> None:
    while document.update(never):
        pass


def shown(document: LogDocument) -> list[str]:
    return [document.line(row).text for row in range(document.count)]


def writer(folder: Path, learner: int = 1) -> JournalWriter:
    return JournalWriter(LearnerFolder(folder / f"learner-{learner}"), START_US)


RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=30)


@given(runs=RUNS)
def test_an_order_says_the_same_in_both_directions(runs: list[tuple[int, int]]) -> None:
    order, model, lines = Order(3), list[tuple[int, int]](), [0, 0, 0]
    for source, count in runs:
        order.add(source, lines[source], count)
        model += [(source, lines[source] + extra) for extra in range(count)]
        lines[source] += count

    assert order.count == len(model)
    assert [order.locate(position) for position in range(len(model))] == model
    assert [order.position(*place) for place in model] == list(range(len(model)))
    for source in range(3):
        for position in range(len(model)):
            before = [line for at, (owner, line) in enumerate(model) if owner == source and at <= position]
            assert order.last_line(source, position) == max(before, default=-1)
    for start in range(len(model) + 1):
        walked = [(owner, line + i) for at, owner, line, count in order.runs(start) for i in range(count)]
        assert walked == model[start:]


LINES = st.lists(
    st.sampled_from([b"keep", b"drop", b"ERROR keep", b"\x1b[31mkeep", b"a\rkeep", b"", b"\xff"]), max_size=6
)


@settings(deadline=None, max_examples=60)
@given(pieces=st.lists(st.tuples(st.integers(1, 2), LINES), max_size=12), steps=st.integers(1, 3))
def test_learners_are_merged_by_time_whenever_one_looks(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, list[bytes]]], steps: int
) -> None:
    folder = tmp_path_factory.mktemp("journals")
    writers = {learner: writer(folder, learner) for learner in (1, 2)}
    document = LogDocument([(learner, one.folder) for learner, one in writers.items()])
    filtered = LogDocument([(learner, one.folder) for learner, one in writers.items()])
    filtered.sift(Sieve(Pattern("keep", literal=True)))
    model: list[tuple[int, bytes]] = []
    for number, (learner, lines) in enumerate(pieces):
        one = writers[learner]
        one.time_us = START_US + number * 1_000_000
        one.write(b"".join(line + b"\n" for line in lines), seconds=0)
        model += [(learner, line) for line in lines]
        if number % steps == 0:
            settle(document)
            settle(filtered)
    settle(document)
    settle(filtered)

    found = [
        (line.learner, document.raw(row, 99)) for row in range(document.count) if (line := document.line(row))
    ]
    assert found == model
    kept = [(learner, line) for learner, line in model if b"keep" in line]
    assert [(filtered.line(row).learner, filtered.raw(row, 99)) for row in range(filtered.count)] == kept
    assert filtered.looked_at == 1.0


def test_a_line_without_its_newline_is_a_row_and_grows(tmp_path: Path) -> None:
    one = writer(tmp_path)
    document = LogDocument([(1, one.folder)])
    one.write(b"whole\nhal")
    settle(document)
    assert shown(document) == ["whole", "hal"] and not document.line(1).settled

    one.write(b"f\n")
    settle(document)
    assert shown(document) == ["whole", "half"] and document.line(1).settled


def test_levels_patterns_and_times_let_lines_through_together(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(b"ERROR keep old\n", seconds=1)
    one.write(b"ERROR keep\nERROR drop\nkeep\nWARNING: keep\n", seconds=100)
    document = LogDocument([(1, one.folder)])
    since = START_US + 50_000_000
    document.sift(Sieve(Pattern("keep", literal=True), least_level=Level.ERROR, since_us=since))
    settle(document)
    assert shown(document) == ["ERROR keep"]

    document.sift(Sieve(Pattern("keep", literal=True), invert=True, since_us=since))
    settle(document)
    assert shown(document) == ["ERROR drop"]

    document.sift(Sieve(least_level=Level.WARNING))
    settle(document)
    assert shown(document) == ["ERROR keep old", "ERROR keep", "ERROR drop", "WARNING: keep"]


def test_search_stays_within_what_is_shown(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(b"hit hidden\nhit keep\nkeep\nhit hidden\nERROR keep\nhit keep\n")
    document = LogDocument([(1, one.folder)])
    document.sift(Sieve(Pattern("keep", literal=True)))
    settle(document)
    hit = Pattern("hit", literal=True)

    assert document.search(hit, -1, backward=False, cancelled=never) == 0
    assert document.search(hit, 0, backward=False, cancelled=never) == 3
    assert document.search(hit, 3, backward=False, cancelled=never) is None
    assert document.search(hit, 3, backward=True, cancelled=never) == 0
    assert document.search(hit, 0, backward=True, cancelled=never) is None
    assert document.next_error(-1, backward=False, cancelled=never) == 2
    assert document.search(hit, 0, backward=False, cancelled=lambda: True) is None


def test_search_over_several_learners_takes_the_nearest_row(tmp_path: Path) -> None:
    first, second = writer(tmp_path, 1), writer(tmp_path, 2)
    first.write(b"a\nhit one\n", seconds=1)
    second.write(b"b\nhit two\n", seconds=2)
    first.write(b"c\nhit three\n", seconds=2)
    document = LogDocument([(1, first.folder), (2, second.folder)])
    settle(document)
    hit = Pattern("hit", literal=True)
    forward, row = [], -1
    while (found := document.search(hit, row, backward=False, cancelled=never)) is not None:
        forward.append(found)
        row = found
    backward, row = [], document.count
    while (found := document.search(hit, row, backward=True, cancelled=never)) is not None:
        backward.append(found)
        row = found

    assert forward == [1, 3, 5] == backward[::-1]
    assert document.row_of_time(START_US + 1_500_000) == 2


@given(
    pieces=st.lists(st.tuples(st.integers(1, 2), st.sampled_from(["ab", "a", "b", "c"])), max_size=40),
    sieve=st.sampled_from([Sieve(), Sieve(pattern=Pattern("b"))]),
    learners=st.integers(1, 2),
    looks=st.sets(st.integers(0, 40)),
    end=st.sampled_from(["", "a", "ab", "c"]),
)
@settings(max_examples=60, deadline=None)
def test_hits_are_counted_among_the_rows_that_are_shown(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[tuple[int, str]],
    sieve: Sieve,
    learners: int,
    looks: set[int],
    end: str,
) -> None:
    folder = tmp_path_factory.mktemp("log")
    writers = {learner: writer(folder, learner) for learner in range(1, learners + 1)}
    document = LogDocument([(learner, one.folder) for learner, one in writers.items()])
    document.sift(sieve)
    looked_for = Pattern("a")
    document.count_hits(looked_for)
    for number, (learner, line) in enumerate(pieces):
        writers[min(learner, learners)].write(f"{line}\n".encode())
        if number in looks:
            settle(document)
    writers[1].write(end.encode())
    settle(document)

    rows = [row for row, line in enumerate(shown(document)) if "a" in line]
    for row in range(document.count):
        number = rows.index(row) + 1 if row in rows else 0
        assert document.hits(looked_for, row) == HitCount(len(rows), number, complete=True)
    document.close()


def test_hits_are_counted_bit_by_bit_and_the_count_says_whether_it_is_whole(tmp_path: Path) -> None:
    output = writer(tmp_path)
    for _ in range(3):
        output.write((b"x" * 99 + b"\n") * 10_000 + b"needle\n")
    document = LogDocument([(1, LearnerFolder(tmp_path / "learner-1"))])
    settle(document)
    looked_for = Pattern("needle", literal=True)
    document.count_hits(looked_for)

    assert document.hits(looked_for, 10_000) == HitCount(0, 0, complete=False)
    assert document.update(never)
    assert document.hits(looked_for, 10_000) == HitCount(1, 1, complete=False)
    settle(document)
    assert document.hits(looked_for, 20_001) == HitCount(3, 2, complete=True)
    output.write(b"one more needle\n")
    settle(document)
    assert document.hits(looked_for, 0) == HitCount(4, 0, complete=True)
    document.close()


def test_counting_ends_at_so_many_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.logs.document.MOST_HITS", 1000)
    output = writer(tmp_path)
    output.write(b"needle\n" * 500_000)
    document = LogDocument([(1, LearnerFolder(tmp_path / "learner-1"))])
    looked_for = Pattern("needle", literal=True)
    document.count_hits(looked_for)
    settle(document)

    count = document.hits(looked_for, 7)
    assert count is not None and count.number == 8 and not count.complete
    assert 1000 <= count.total < 500_000
    document.close()


def test_a_file_that_was_replaced_begins_a_new_epoch(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(b"old\n" * 100)
    document = LogDocument([(1, one.folder)])
    document.sift(Sieve(Pattern("e", literal=True)))
    settle(document)
    epoch = document.epoch
    one.folder.output.unlink()
    writer(tmp_path).write(b"new\nno\n")
    settle(document)

    assert shown(document) == ["new"] and document.epoch > epoch


@pytest.mark.parametrize(
    ("typed", "matches", "does_not", "invert"),
    [
        ("Loss", b"Loss 1", b"loss 1", False),
        ("loss", b"LOSS 1", b"los", False),
        ("a.c", b"a.c", b"abc", False),
        ("/a.c/", b"abc", b"ac", False),
        ("!loss", b"loss", b"x", True),
        ("!", b"what!", b"what", False),
    ],
)
def test_what_is_typed_is_words_or_a_regular_expression(
    typed: str, matches: bytes, does_not: bytes, invert: bool
) -> None:
    pattern, inverted = pattern_of(typed)

    assert pattern is not None and inverted is invert
    assert pattern.matches(matches) and not pattern.matches(does_not)


def test_nothing_typed_is_no_pattern_and_a_wrong_one_is_refused() -> None:
    assert pattern_of("") == (None, False)
    with pytest.raises(UsageError, match=re.escape("is not a regular expression")):
        pattern_of("/(/")


def test_a_filter_ends_on_lines_that_a_regular_expression_would_never_be_done_with(tmp_path: Path) -> None:
    output = writer(tmp_path)
    output.write(random.Random(1).randbytes(3 << 20) + b"\n")
    output.write(b"x" * (4 << 20) + b"\n" + b"\x1b[31mA" * 100_000 + b"\nx and y\n")
    document = LogDocument([(1, LearnerFolder(tmp_path / "learner-1"))])
    settle(document)
    document.sift(Sieve(pattern=Pattern("x.*y$", smart_case=True)))
    settle(document)

    assert document.looked_at == 1.0
    assert shown(document)[-1] == "x and y"
    document.close()
