"""Tables and words are drawn as they are meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.stores.transfer import TransferProgress
from workbench.formats import ago, count, duration, iso, number, percent, short, short_size, size
from workbench.services.transfer.events import progress_text
from workbench.terminal.table import Column, fields, render


def test_a_table_is_aligned_and_ends_without_blanks() -> None:
    columns = [Column("ID"), Column("SIZE", right=True), Column("WHY", stretch=True)]

    drawn = render(columns, [["a", "1", "because"], ["bcd", "22", ""]], width=80)

    assert drawn == "ID   SIZE  WHY\na       1  because\nbcd    22\n"


def test_the_last_stretching_column_gives_way_first() -> None:
    columns = [Column("NAME", stretch=True), Column("WHY", stretch=True)]

    drawn = render(columns, [["a name of some length", "a reason longer than the line"]], width=40)

    assert drawn.splitlines()[1] == "a name of some length  a reason longer…"


def test_the_progress_of_a_copy_is_written_as_other_numbers_are() -> None:
    shown = progress_text(TransferProgress(3 << 29, 6 << 29, 10 << 20, 65.0))

    assert shown == "50%, 1.5 GiB of 3.0 GiB, 10.0 MiB/s, 1 min 05 s left"


WORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "Zs"]))


@given(st.lists(st.lists(WORDS, min_size=3, max_size=3)), st.integers(50, 200))
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    columns = [Column("A", stretch=True), Column("B", stretch=True), Column("C", stretch=True)]

    assert max(len(line) for line in render(columns, rows, width=width).splitlines()) <= width


def test_colours_do_not_move_columns() -> None:
    columns = [Column("A", paint=lambda text, row: f"<{text}>"), Column("B")]

    assert render(columns, [["x", "1"], ["yyy", "2"]], width=80) == "A    B\n<x  >  1\n<yyy>  2\n"


def test_fields_hang_under_their_first_line() -> None:
    assert fields([("a", "1\n2"), ("long", "3")]) == "a     1\n      2\nlong  3\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7800, "2 h 10 min"),
        (100_000, "1 d 3 h"),
        (-1, "0.0 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_times_sizes_and_counts() -> None:
    assert ago(0, 59_000_000) == "59 s ago"
    assert ago(0, 7_200_000_000) == "2 h ago"
    assert ago(5, 0) == "0 s ago"
    assert size(512) == "512 B"
    assert size(1536) == "1.5 KiB"
    assert size(8 << 30) == "8.0 GiB"
    assert size(3 << 40) == "3.0 TiB"
    assert [
        short_size(each) for each in (0, 512, 999, 1000, 1536, 10_200, 8 << 30, 80 << 30, 1000 << 30, 3 << 40)
    ] == [
        *("0", "512B", "999B", "1.0K", "1.5K", "10K", "8.0G", "80G", "1.0T", "3.0T"),
    ]
    assert [percent(share) for share in (0, 0.124, 1.8)] == ["0%", "12%", "180%"]
    assert count(1, "job") == "1 job"
    assert count(10_000, "job") == "10,000 jobs"
    assert number(None) == "nan"
    assert number(0.1234567) == "0.123457"
    assert iso(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"
    assert iso(None) is None


def test_a_cut_text_says_so() -> None:
    assert short("one  two\nthree", 100) == "one two three"
    assert short("abcdef", 4) == "abc…"
    assert short("abcdef", 6) == "abcdef"
