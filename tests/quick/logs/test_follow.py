from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quick.logs.writing import START_US, Journal
from tests.support.waiting import ended
from workbench.logs.file_copy import copy_published
from workbench.logs.follow import LINE_MAX, LearnerOutput, LineFormat, follow, labels
from workbench.logs.grep import Pattern
from workbench.logs.journal import JournalReader


def source(journal: Journal, label: str = "", start: int = 0) -> LearnerOutput:
    return LearnerOutput(JournalReader(journal.folder), label, start)


def written(sources: Sequence[LearnerOutput], line_format: LineFormat | None = None) -> bytes:
    return b"".join(follow(sources, line_format=line_format))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no end",
        b"\r 1%\r 2%\r\n",
        b"\x00\xff\xfe\x1b[2J\n\n\n",
        b"x" * 700_000 + b"\n" + b"y" * 300_000,
    ],
)
def test_one_learner_is_passed_through_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(data, 1)

    assert written([source(journal)]) == data
    assert written([source(journal, start=2)]) == data[2:]


def test_labels_are_for_several_learners_only() -> None:
    assert labels([1]) == [""]
    assert labels([1, 2]) == ["[1] ", "[2] "]
    assert labels([1, 10]) == ["[1]  ", "[10] "]


def test_lines_of_several_learners_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "learner-1"), Journal(tmp_path / "learner-2")
    one.publish(b"a 1\n", 10)
    two.publish(b"b 1\nb 2", 20)
    one.publish(b"a 2\na 3\n", 30)
    two.publish(b" goes on\n", 40)

    assert written([source(one, "[1] "), source(two, "[2] ")]) == (
        b"[1] a 1\n[2] b 1\n[1] a 2\n[1] a 3\n[2] b 2 goes on\n"
    )
    assert written([source(one), source(two)]) == b"a 1\nb 1\na 2\na 3\nb 2 goes on\n"


def test_a_last_line_without_an_end_gets_one(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "learner-1"), Journal(tmp_path / "learner-2")
    one.publish(b"half", 10)
    two.publish(b"whole\n", 20)

    assert written([source(one, "[1] "), source(two, "[2] ")]) == b"[2] whole\n[1] half\n"


chunks = st.lists(st.one_of(st.binary(max_size=8), st.sampled_from([b"\n", b"a\nb", b"c\n"])), max_size=20)


@settings(max_examples=100, deadline=None)
@given(st.lists(chunks, min_size=2, max_size=4))
def test_no_line_is_lost_doubled_or_mixed(outputs: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        journals = [Journal(Path(folder) / f"learner-{n}") for n in range(len(outputs))]
        for turn in range(20):
            for n, parts in enumerate(outputs):
                if turn < len(parts):
                    journals[n].publish(parts[turn], turn)
        output = written([source(journal, f"[{n}] ") for n, journal in enumerate(journals)])

        for n, parts in enumerate(outputs):
            mine = b"".join(
                line[4:] + b"\n" for line in output.split(b"\n")[:-1] if line.startswith(b"[%d] " % n)
            )
            expected = b"".join(parts)
            assert mine == expected + (b"\n" if expected and not expected.endswith(b"\n") else b"")


def test_a_line_longer_than_memory_should_hold_is_broken(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "learner-1"), Journal(tmp_path / "learner-2")
    one.publish(b"x" * (3 * LINE_MAX + 5) + b"\n", 10)
    two.publish(b"short\n", 20)

    lines = written([source(one, "[1] "), source(two, "[2] ")]).split(b"\n")

    assert b"".join(line[4:] for line in lines if line.startswith(b"[1] ")) == b"x" * (3 * LINE_MAX + 5)
    assert max(map(len, lines)) <= 2 * LINE_MAX
    assert b"[2] short" in lines


def test_timestamps_stand_before_each_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"one\n", START_US + 1_250_000)
    journal.publish(b"two\nthree\n", START_US + 2_000_000)

    output = written([source(journal)], LineFormat(timestamps=True, local=False))

    assert output == (
        b"2023-11-14T22:13:21.250Z one\n2023-11-14T22:13:22.000Z two\n2023-11-14T22:13:22.000Z three\n"
    )
    local = written([source(journal, "[1] ")], LineFormat(timestamps=True)).splitlines()
    assert re.fullmatch(rb"\[1\] 2023-11-1[45]T\d\d:13:21\.250[+-]\d\d:\d\d one", local[0])


def test_only_lines_that_match_are_shown_and_matched_without_their_dress(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"loss 1\nnote\nlo", 5)
    journal.publish(b"ss 2\n[1] x", 6)

    assert written([source(journal)], LineFormat(pattern=Pattern(r"^loss \d$"))) == b"loss 1\nloss 2\n"
    assert (
        written([source(journal, "[1] ")], LineFormat(pattern=Pattern("[1]", literal=True))) == b"[1] [1] x\n"
    )
    assert written([source(journal)], LineFormat(pattern=Pattern("loss"), invert=True)) == b"note\n[1] x\n"


def test_following_ends_when_everyone_has_ended_and_shows_all(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "learner-1"), Journal(tmp_path / "learner-2")
    turns: list[list[Callable[[], None]]] = [
        [lambda: one.publish(b"a\n", 1)],
        [one.end, lambda: two.publish(b"b", 2)],
        [lambda: two.publish(b"!\n", 3)],
        [lambda: two.publish(b"last", 4), two.end],
    ]
    waited: list[Sequence[str]] = []

    def wait(paths: Sequence[str]) -> None:
        waited.append(paths)
        for happens in turns.pop(0):
            happens()

    output = list(follow([source(one, "[1] "), source(two, "[2] ")], wait=wait))

    assert output == [b"[1] a\n", b"[2] b!\n", b"[2] last\n"]
    assert len(waited) == 4
    assert str(two.folder.index) in waited[0]
    assert str(two.folder.state) in waited[0]


def test_the_store_may_know_that_a_lost_learner_has_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"then silence", 1)
    lost: list[bool] = []

    output = list(
        follow(
            [LearnerOutput(JournalReader(journal.folder), ended=lambda: bool(lost))],
            wait=lambda paths: lost.append(True),
        )
    )

    assert output == [b"then silence"]


def test_following_a_writer_in_another_thread_gives_its_bytes(tmp_path: Path) -> None:
    from workbench.learner.platform.watch import Watcher

    journal = Journal(tmp_path / "learner-1")
    data = [os.urandom(5000) for _ in range(200)]

    def write() -> None:
        for time, part in enumerate(data):
            journal.publish(part, time)
        journal.end()

    thread = threading.Thread(target=write)
    watcher = Watcher([str(journal.folder.index), str(journal.folder.state)])
    thread.start()
    output = b"".join(follow([source(journal)], wait=lambda paths: watcher.wait(1.0)))
    thread.join()
    watcher.close()

    assert output == b"".join(data)


@pytest.mark.parametrize("kind", ["file", "appended", "pipe"])
def test_published_bytes_are_copied_to_any_descriptor(tmp_path: Path, kind: str) -> None:
    journal = Journal(tmp_path / "learner-1")
    data = os.urandom(3_000_000)
    journal.publish(data, 1)
    journal.write(b"not published")
    reader = JournalReader(journal.folder)
    target = tmp_path / "target"
    if kind == "pipe":
        with (
            target.open("wb") as stream,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=stream) as cat,
        ):
            assert cat.stdin is not None
            assert copy_published(reader, cat.stdin.fileno()) == len(data)
    else:
        with target.open("ab" if kind == "appended" else "wb") as stream:
            assert copy_published(reader, stream.fileno(), 10, end=2_000_000) == 2_000_000
            assert copy_published(reader, stream.fileno(), 2_000_000) == len(data)
            assert copy_published(reader, stream.fileno(), len(data)) == len(data)

    assert target.read_bytes() == (data if kind == "pipe" else data[10:])


def test_a_descriptor_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    data = os.urandom(1_000_000)
    journal.publish(data, 1)
    read, write = os.pipe()
    os.set_blocking(write, False)
    got: list[bytes] = []

    def drain() -> None:
        while part := os.read(read, 1 << 16):
            got.append(part)

    thread = threading.Thread(target=drain)
    thread.start()
    copy_published(JournalReader(journal.folder), write)
    os.close(write)
    thread.join()
    os.close(read)

    assert b"".join(got) == data


def test_a_closed_pipe_is_the_callers_to_deal_with(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"x" * 200_000, 1)
    read, write = os.pipe()
    os.close(read)

    with pytest.raises(BrokenPipeError):
        copy_published(JournalReader(journal.folder), write)
    os.close(write)


def test_an_output_shorter_than_its_index_ends_the_copy(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"x" * 1000, 1)
    os.truncate(journal.folder.output, 400)
    with (tmp_path / "target").open("wb") as stream:
        assert copy_published(JournalReader(journal.folder), stream.fileno()) == 400


WRITER = """
import sys
from pathlib import Path
from tests.quick.logs.writing import Journal
journal = Journal(Path(sys.argv[1]))
for number in range(3000):
    journal.publish(b"%s line %d\\n" % (sys.argv[2].encode(), number), number)
journal.end()
"""


def test_two_processes_that_print_at_once_are_followed_without_loss(tmp_path: Path) -> None:
    journals = {letter: tmp_path / f"learner-{letter}" for letter in "ab"}
    several = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter])
        for letter, path in journals.items()
    ]
    from workbench.learner.platform.watch import Watcher
    from workbench.paths import LearnerFolder

    folders = {letter: LearnerFolder(path) for letter, path in journals.items()}
    watcher = Watcher([str(path) for folder in folders.values() for path in (folder.index, folder.state)])
    sources = [LearnerOutput(JournalReader(folder), f"[{letter}] ") for letter, folder in folders.items()]
    lines = b"".join(follow(sources, wait=lambda paths: watcher.wait(1.0))).splitlines()
    watcher.close()

    assert [ended(process) for process in several] == [0, 0]
    for letter in "ab":
        head = f"[{letter}] ".encode()
        assert [line for line in lines if line.startswith(head)] == [
            head + f"{letter} line {number}".encode() for number in range(3000)
        ]
