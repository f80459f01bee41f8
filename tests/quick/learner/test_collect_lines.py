"""Lines are the same however the bytes were cut, and a line without an end holds up nothing."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from workbench.learner.collectors.lines import LINE_LIMIT, LineCutter


def cut(data: bytes, places: list[int]) -> list[tuple[bytes, int]]:
    cutter, begin, lines = LineCutter(0), 0, []
    for end in [*sorted(place % (len(data) + 1) for place in places), len(data)]:
        lines += cutter.feed(data[begin:end], end)
        begin = end
    return lines + cutter.finish(len(data))


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\0"])), st.lists(st.integers(0, 100)))
def test_lines_are_those_that_python_reads_wherever_the_bytes_are_cut(
    pieces: list[bytes], places: list[int]
) -> None:
    data = b"".join(pieces)
    lines = cut(data, places)

    expected = [line.rstrip("\n") for line in io.TextIOWrapper(io.BytesIO(data), newline=None)]
    assert [text.decode() for text, _end in lines] == expected
    assert lines == cut(data, [])


def test_each_line_says_where_the_next_one_begins() -> None:
    assert cut(b"one\r\ntwo\rthree", []) == [(b"one", 5), (b"two", 9), (b"three", 14)]


def test_a_line_of_50_megabytes_is_passed_over_but_for_its_beginning() -> None:
    cutter = LineCutter(0)
    piece = b"x" * 65536
    for number in range(800):
        assert cutter.feed(piece, (number + 1) * 65536) == []
    end = 800 * 65536 + 5
    lines = cutter.feed(b"x\nok\n", end)

    assert [(len(text), text[-2:]) for text, _end in lines] == [(LINE_LIMIT, b"xx"), (2, b"ok")]
    assert lines[-1][1] == end
    assert cutter.cut_short == 1


def test_the_offset_is_where_the_line_begins_that_has_no_end_yet() -> None:
    cutter = LineCutter(100)
    cutter.feed(b"abc\nde", 106)

    assert cutter.offset == 104
    assert cutter.finish(106) == [(b"de", 106)]
    assert cutter.offset == 106
