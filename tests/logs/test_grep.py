from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.logs.grep import Pattern, select, whole_blocks

PATTERNS = [
    "a",
    "ab",
    "a.b",
    "^a",
    "b$",
    "^$",
    "a*",
    r"\d+",
    "[^a]",
    r"\s",
    "a|b",
    "(?i)A",
    "",
    "ä",
    r"\bab\b",
    "a\\nb",
]

lines = st.lists(
    st.one_of(st.sampled_from([b"", b"a", b"ab", b"b a", b"aXb", b"\r", b"\xff", "ä".encode(), b"12"]))
)


@settings(max_examples=300, deadline=None)
@given(lines, st.sampled_from(PATTERNS), st.booleans(), st.booleans())
def test_blocks_give_the_lines_that_match_one_by_one(
    found: list[bytes], text: str, end: bool, invert: bool
) -> None:
    block = b"\n".join(found) + (b"\n" if end else b"")
    expected_lines = block.split(b"\n")[: -1 if block.endswith(b"\n") or not block else None]
    pattern = Pattern(text)
    expected = [line for line in expected_lines if (re.search(text.encode(), line) is not None) != invert]

    selected = select(block, pattern, invert=invert)

    assert selected.split(b"\n")[: -1 if selected.endswith(b"\n") or not selected else None] == expected
    spans = list(pattern.spans(block))
    assert pattern.last_span(block) == (spans[-1] if spans else None)


@given(st.text(max_size=4), st.text(max_size=12))
def test_words_are_taken_as_they_are(text: str, line: str) -> None:
    assume("\n" not in text + line)
    assert Pattern(text, literal=True).matches(line.encode("utf-8", "replace")) == (
        text.encode("utf-8", "replace") in line.encode("utf-8", "replace")
    )


def test_case_is_ignored_when_asked_and_cleverly_when_there_are_no_capitals() -> None:
    assert Pattern("ERROR", ignore_case=True).matches(b"an error")
    assert not Pattern("ERROR").matches(b"an error")
    assert Pattern("error", smart_case=True).matches(b"an ERROR")
    assert not Pattern("Error", smart_case=True).matches(b"an ERROR")
    assert Pattern("über", ignore_case=True).matches("ÜBER".encode())
    assert select("ÜBER\nunter\n".encode(), Pattern("über", ignore_case=True)) == "ÜBER\n".encode()


@pytest.mark.parametrize("text", ["(", "[a", "*", "a{2,1}", "(?P<x", "\\"])
def test_what_is_no_regular_expression_is_said_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="is no regular expression"):
        Pattern(text)
    assert Pattern(text, literal=True).matches(b"x" + text.encode())


def test_highlights_are_where_a_text_matches() -> None:
    assert Pattern("o+").highlights("foo bo") == [(1, 3), (5, 6)]
    assert Pattern("O", ignore_case=True).highlights("foo") == [(1, 2), (2, 3)]
    assert Pattern("x*").highlights("foo") == []


@given(st.lists(st.one_of(st.binary(max_size=9), st.just(b"\n"))), st.integers(1, 12))
def test_blocks_are_whole_lines_and_together_all(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    blocks = list(whole_blocks(lambda offset, limit: data[offset : offset + limit], 0, size=size))

    assert b"".join(block for _, block in blocks) == data
    assert all(block.endswith(b"\n") for _, block in blocks[:-1])
    position = 0
    for offset, block in blocks:
        assert offset == position
        position += len(block)
