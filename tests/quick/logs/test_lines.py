from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.logs.grep import Pattern
from workbench.logs.line_filter import LineFilter, find
from workbench.logs.line_index import LineIndex

pieces = st.lists(
    st.one_of(
        st.binary(max_size=10),
        st.sampled_from(
            [b"\n", b"\r\n", b"\r50%\r100%", b"ERROR here\n", b"no end", b"\xff\xfe\x00", "日本\n".encode()]
        ),
    ),
    max_size=25,
)


def plain_lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


@settings(max_examples=150, deadline=None)
@given(pieces)
def test_lines_of_a_growing_file_are_those_of_a_plain_split(parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        file = Path(folder) / "output.log"
        index = LineIndex(file)
        assert not index.update()
        data = b""
        for part in parts:
            with file.open("ab") as stream:
                stream.write(part)
            data += part
            assert index.update() == bool(part)
            lines = plain_lines(data)
            assert index.count == len(lines)
            assert index.whole == data.count(b"\n")
            assert [index.raw(number) for number in range(index.count)] == lines
        for offset in range(len(data)):
            assert index.line_at(offset) == data.count(b"\n", 0, offset)
        assert index.raw(index.count) == b""
        assert index.raw(-1) == b""
        assert index.text(index.count + 5) == ""
        index.close()


def test_no_more_is_indexed_than_is_published(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"one\ntwo\nthree\n")
    published = 6
    index = LineIndex(file, published=lambda: published)
    index.update()
    assert [index.raw(number) for number in range(index.count)] == [b"one", b"tw"]

    published = 100
    index.update()

    assert index.count == 3


def test_indexing_can_be_done_bit_by_bit_and_given_up(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"0123456789\n" * 1000)
    index = LineIndex(file)
    assert index.update(limit_bytes=25)
    assert (index.size, index.count) == (25, 3)
    assert not index.update(cancelled=lambda: True)

    while index.update(limit_bytes=1000):
        pass

    assert index.count == 1000


@pytest.mark.parametrize("way", ["truncated", "replaced"])
def test_a_file_that_begins_anew_is_noticed(tmp_path: Path, way: str) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"old one\nold two\n")
    index = LineIndex(file)
    index.update()
    if way == "truncated":
        file.write_bytes(b"new\n")
    else:
        (tmp_path / "other").write_bytes(b"new\nand longer than the old one was\n")
        (tmp_path / "other").rename(file)

    assert index.update()

    assert index.generation == 1
    assert index.raw(0) == b"new"


def test_a_file_that_is_gone_keeps_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"one\n")
    index = LineIndex(file)
    index.update()
    file.unlink()

    assert not index.update()
    assert index.raw(0) == b"one"


def test_a_line_is_shown_in_its_last_state_harmless_and_cut(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    lines = [
        b"plain",
        b"\r 10%\r 50%\r100%",
        b"dos\r",
        b"\x1b[31mred\x1b[0m \x1b[2Jclear",
        b"nul \x00 bad \xff",
        b"x" * 100_000,
        b"start " + b"\rprogress %d" * 9000 + b"\rdone",
        b"",
    ]
    file.write_bytes(b"\n".join(lines) + b"\n")
    index = LineIndex(file)
    index.update()

    assert [index.text(number, cells=20) for number in range(len(lines))] == [
        "plain", "100%", "dos", "\x1b[31mred\x1b[0m clear", "nul ␀ bad �", "x" * 20 + "…", "done", "",
    ]  # fmt: skip
    assert index.raw(5, 99_990, 100) == b"x" * 10
    assert index.raw(5, 10, 5) == b"x" * 5


def test_a_line_of_fifty_megabytes_is_shown_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "output.log"
    with file.open("wb") as stream:
        stream.truncate(50_000_000)
        stream.seek(50_000_000)
        stream.write(b"\nnext\n")
    index = LineIndex(file)
    index.update()
    read: list[int] = []
    plain = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        read.append(size)
        return plain(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)

    assert index.text(0, cells=10).startswith("␀␀")
    assert sum(read) <= 1 << 18
    assert index.text(1) == "next"


def test_lines_can_be_read_while_another_thread_indexes(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(200_000)))
    index = LineIndex(file)
    thread = threading.Thread(
        target=lambda: [None for _ in iter(lambda: index.update(limit_bytes=10_000), False)]
    )
    thread.start()
    wrong = 0
    while thread.is_alive():
        if whole := index.whole:
            wrong += index.raw(whole - 1) != b"line %d" % (whole - 1)
    thread.join()

    assert (index.count, wrong) == (200_000, 0)


def test_a_line_is_whole_as_soon_as_it_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"one\ntwo\n")
    index = LineIndex(file)
    index.update()
    file.write_bytes(b"one\ntwo\nthree\nfo")
    before = index.size
    index.update()
    index._scanned = before  # what another thread sees between the two steps of taking lines in

    assert (index.whole, index.raw(2)) == (3, b"three")


WORDS = [b"alpha", b"beta", b"ERROR x", b"", b"alphabet", b"\r", b"x\xffy"]

looked_for = st.sampled_from(["alpha", "^a", "a$", "beta|ERROR", "^$", "x.y", "nothing"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.booleans(), looked_for, st.integers(1, 64))
def test_finding_goes_from_hit_to_hit_both_ways(lines: list[bytes], end: bool, text: str, block: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.logs.line_filter._BLOCK", block)
        file = Path(folder) / "output.log"
        data = b"\n".join(lines) + (b"\n" if end and lines else b"")
        file.write_bytes(data)
        index = LineIndex(file)
        index.update()
        pattern = Pattern(text)
        expected = [n for n, line in enumerate(plain_lines(data)) if re.search(text.encode(), line)]

        assert walk(lambda at: find(index, pattern, at), -1) == expected
        assert walk(lambda at: find(index, pattern, at, backward=True), index.count) == expected[::-1]


def walk(step: Callable[[int], int | None], start: int) -> list[int]:
    found: list[int] = []
    at = step(start)
    while at is not None:
        found.append(at)
        at = step(at)
    return found


def test_a_search_can_be_given_up(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"x" * 100 + b"\n" + b"hit\n")
    index = LineIndex(file)
    index.update()

    assert find(index, Pattern("hit"), -1, cancelled=lambda: True) is None
    assert find(index, Pattern("hit"), -1) == 1
    assert find(index, Pattern("hit"), 1) is None
    assert find(index, Pattern("hit"), 99) is None
    assert find(index, Pattern("hit"), 99, backward=True) == 1


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=15), max_size=4),
    looked_for,
    st.booleans(),
    st.integers(1, 64),
)
def test_a_filter_goes_on_as_the_file_grows(
    batches: list[list[bytes]], text: str, invert: bool, block: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.logs.line_filter._BLOCK", block)
        file = Path(folder) / "output.log"
        file.touch()
        index = LineIndex(file)
        chosen = LineFilter(index, Pattern(text), invert=invert)
        data = b""
        for batch in batches:
            part = b"\n".join(batch)
            data += part
            with file.open("ab") as stream:
                stream.write(part)
            index.update()
            lines = list(chosen.advance())
            assert not lines or lines[-1] == len(chosen.lines)
            whole = data.split(b"\n")[:-1]
            assert chosen.searched == len(whole)
            assert list(chosen.lines) == [
                n for n, line in enumerate(whole) if (re.search(text.encode(), line) is not None) != invert
            ]


def test_a_filter_can_be_given_up_and_taken_up_again_and_begins_anew_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"hit\nmiss\n" * 10)
    index = LineIndex(file)
    index.update()
    chosen = LineFilter(index, Pattern("hit"))
    assert list(chosen.advance(cancelled=lambda: True)) == []
    assert list(chosen.advance()) == [10]
    assert list(chosen.advance()) == []

    file.write_bytes(b"miss\nhit\n")
    index.update()
    assert list(chosen.advance()) == [1]

    assert list(chosen.lines) == [1]
