from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quick.logs.writing import Journal
from workbench.logs import journal as reading
from workbench.logs.journal import JournalReader


def test_a_journal_that_is_not_there_yet_is_empty_and_found_when_it_comes(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    reader = JournalReader(journal.folder)
    assert (reader.published(), reader.entries(), reader.read(0, 100)) == (0, 0, b"")
    assert (reader.tail_offset(5), reader.offset_of_time(5), reader.time_of_offset(0)) == (0, 0, None)
    assert not reader.ended()

    journal.write(b"printed, not published\n")
    assert reader.read(0, 100) == b""
    journal.begin()
    assert reader.read(0, 100) == b""
    journal.size = 23
    journal.publish(b"published\n", 7)

    assert reader.read(0, 100) == b"printed, not published\npublished\n"
    assert reader.read(23, 4) == b"publ"


def test_readers_stop_at_the_published_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"one\n", 1)
    journal.write(b"secret")
    with JournalReader(journal.folder) as reader:
        assert reader.read(0, 1000) == b"one\n"
        assert reader.read(4, 1000) == b""
        assert reader.read(99, 1000) == b""


def test_a_journal_is_closed_though_its_mount_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"one\n", 1)
    reader = JournalReader(journal.folder)
    assert reader.read(0, 1000) == b"one\n"
    closed: list[int] = []

    def close(descriptor: int) -> None:
        closed.append(descriptor)
        os_close(descriptor)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    os_close = os.close
    monkeypatch.setattr(os, "close", close)
    reader.close()
    reader.close()
    monkeypatch.undo()

    assert len(closed) == 2


def test_a_torn_index_entry_does_not_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"one\n", 1)
    with journal.folder.index.open("ab") as stream:
        stream.write(b"torn" * 5)
    reader = JournalReader(journal.folder)

    assert reader.entries() == 1
    assert reader.published() == 4
    assert [entry.end for entry in reader.entries_from(0)] == [4]


def test_an_exit_that_the_agent_recorded_is_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    reader = JournalReader(journal.folder)
    for text in ("", "{", "[]", '{"phase": "running"}'):
        journal.folder.state.write_text(text)
        assert not reader.ended()
    journal.end()
    assert reader.ended()


def test_a_time_gives_the_beginning_of_its_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"one\ntw", 100)
    journal.publish(b"o\nthree\n", 200)
    journal.publish(b"four\n", 300)
    reader = JournalReader(journal.folder)

    assert [reader.offset_of_time(time) for time in (0, 100, 101, 200, 201, 300)] == [0, 0, 4, 4, 14, 14]
    assert reader.offset_of_time(301) == 19
    assert [reader.time_of_offset(offset) for offset in (0, 5, 6, 13, 14, 18, 19)] == [
        100, 100, 200, 200, 300, 300, None,
    ]  # fmt: skip


pieces = st.lists(
    st.one_of(st.binary(max_size=12), st.sampled_from([b"\n", b"a\n", b"\r\n", b"\n\n\n", b"long " * 9])),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(pieces, st.integers(0, 40))
def test_what_is_read_agrees_with_a_plain_look(parts: list[bytes], lines: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        journal = Journal(Path(folder) / "learner-1")
        for time, part in enumerate(parts):
            journal.publish(part, time)
        data = b"".join(parts)
        reader = JournalReader(journal.folder)

        assert reader.read(0, len(data) + 1) == data
        expected = data.split(b"\n")
        expected = expected[:-1] if expected[-1] == b"" else expected
        tail = b"\n".join(expected[-lines:]) if lines else b""
        assert data[reader.tail_offset(lines) :].removesuffix(b"\n") == tail


def test_a_tail_reads_no_more_than_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"line\n" * 2_000_000, 1)
    reader = JournalReader(journal.folder)
    read: list[int] = []
    plain = JournalReader.read

    def counted(self: JournalReader, offset: int, limit: int) -> bytes:
        data = plain(self, offset, limit)
        read.append(len(data))
        return data

    monkeypatch.setattr(JournalReader, "read", counted)

    assert reader.tail_offset(3) == 10_000_000 - 15
    assert sum(read) < 100_000
    assert reader.tail_offset(1_000_000) == 5_000_000
    assert reader.tail_offset(3_000_000) == 0


def test_one_line_of_many_megabytes_has_a_beginning(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"first\n" + b"x" * 20_000_000, 1)
    reader = JournalReader(journal.folder)

    assert reader.tail_offset(1) == 6
    assert reader.tail_offset(2) == 0


def test_entries_that_cannot_be_read_yet_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "learner-1")
    journal.publish(b"one\n", 1)
    journal.publish(b"two\n", 2)
    real = reading._size
    with JournalReader(journal.folder) as reader:
        monkeypatch.setattr(reading, "_size", lambda *arguments: real(*arguments) + 5000 * 24)

        assert reader.entries() == 2
        assert reader.read(0, 100) == b"one\ntwo\n"
