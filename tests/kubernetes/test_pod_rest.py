"""What a side-car prints of a journal that nobody has read: all of it, or its end and how much is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.pod.log_recovery import ANCHOR_BYTES, JournalRemains, before
from workbench.learner.journal.output import ENTRY, HEADER, MAGIC
from workbench.learner.pod.log_dump import BLOCK_BYTES, LINE_CHARACTERS, JournalDump, parse


def write_journal(folder: Path, output: bytes) -> None:
    (folder / "output.log").write_bytes(output)
    entry = ENTRY.pack(len(output), 1, output.count(b"\n"))
    (folder / "output.idx").write_bytes(HEADER.pack(MAGIC, 1, 0) + entry)
    (folder / "records.jsonl").write_bytes(b'{"format": 1}\n')
    (folder / "state.json").write_bytes(b'{"phase": "exited"}\n')


def rest_of(folder: Path, read: dict[str, int], limit_bytes: int = 1 << 30) -> JournalRemains:
    lines, _ = JournalDump(str(folder), read).lines(limit_bytes)
    parts = parse(lines)
    state = b"".join(data for _, _, data in parts.pop("state"))
    return JournalRemains(
        {name: sorted(found, key=lambda part: part[0]) for name, found in parts.items()}, state
    )


def all_of(rest: JournalRemains, name: str, offset: int = 0) -> bytes:
    found = b""
    while name in (parts := rest.after({name: offset + len(found)})):
        found += parts[name].data
    return found


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7])
def test_what_is_printed_is_read_back_whole(tmp_path: Path, size: int) -> None:
    output = os.urandom(size)
    write_journal(tmp_path, output)

    rest = rest_of(tmp_path, {})

    assert all_of(rest, "output") == output
    assert all_of(rest, "records") == b'{"format": 1}\n'
    assert rest.state == b'{"phase": "exited"}\n'


def test_only_what_is_unread_is_printed(tmp_path: Path) -> None:
    write_journal(tmp_path, b"read already|and this is new")

    lines, whole = JournalDump(str(tmp_path), {"output": 13}).lines(1 << 30)

    assert whole
    assert [line for line in lines if line.startswith(b"output")] == [b"output 13 15 28"]


def test_no_line_is_longer_than_the_clusters_log_takes(tmp_path: Path) -> None:
    write_journal(tmp_path, os.urandom(2 * BLOCK_BYTES))

    lines, _ = JournalDump(str(tmp_path), {}).lines(1 << 30)

    assert max(map(len, lines)) <= LINE_CHARACTERS + 1


def test_of_what_does_not_fit_the_end_is_kept_and_the_gap_is_counted(tmp_path: Path) -> None:
    output = os.urandom(4 * BLOCK_BYTES)
    write_journal(tmp_path, output)
    limit = int(1.5 * BLOCK_BYTES * 4 / 3)

    lines, whole = JournalDump(str(tmp_path), {}).lines(limit)
    rest = rest_of(tmp_path, {}, limit)
    found = all_of(rest, "output")

    assert not whole
    assert sum(len(line) + 1 for line in lines) <= limit
    assert len(found) == len(output)
    assert found[-BLOCK_BYTES:] == output[-BLOCK_BYTES:]
    assert found.startswith(b"[fabric: %d bytes of output are missing here" % rest.missing_bytes)
    assert rest.missing_bytes == 3 * BLOCK_BYTES


def test_what_is_cut_off_in_the_middle_is_not_believed(tmp_path: Path) -> None:
    write_journal(tmp_path, b"some output\n")
    lines, _ = JournalDump(str(tmp_path), {}).lines(1 << 30)

    assert parse(lines[:-1]) == {}
    assert parse([b"another's line", *lines, b"Terminated"]) != {}


@pytest.mark.parametrize("lost", [b"", b"\r"], ids=["whole", "without carriage returns"])
@pytest.mark.parametrize("rotated_bytes", [0, 5000])
def test_what_did_not_fit_is_found_in_the_clusters_log(rotated_bytes: int, lost: bytes) -> None:
    output = b"".join(b"line %d\r\n" % number for number in range(20_000))
    log = (output.replace(lost, b"") if lost else output)[rotated_bytes:]
    first = 100_000

    found = before(log, output[first : first + ANCHOR_BYTES], len(output) - first)

    expected = output[:first].replace(lost, b"") if lost else output[:first]
    assert found == expected[rotated_bytes:]


def test_nothing_is_taken_from_a_log_that_has_not_the_place_any_more() -> None:
    output = os.urandom(50_000)

    assert before(output[30_000:], output[20_000:24_096], 30_000) == b""
