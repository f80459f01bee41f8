from __future__ import annotations

import re
import sqlite3
import threading
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from workbench.errors import PatternTooSlow, UsageError
from workbench.learner.journal.output_search import whole_blocks
from workbench.logs.grep import Pattern, select
from workbench.store.db.errors import store_failure

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


@settings(max_examples=examples(300), deadline=None)
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
def test_what_is_no_regular_expression_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
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


@pytest.mark.parametrize(
    "expression", [".*loss.*nan", ".*.*b", ".*", ".*?a", ".*|b", ".*(?=a)", ".*{2}", ".*+"]
)
def test_anything_at_the_beginning_of_an_expression_changes_no_hit(expression: str) -> None:
    lines = [b"", b"a", b"b", b"loss nan", b"a loss is nan", b"nan loss", b"{2}", b"ab"]
    try:
        wanted = [re.search(expression.encode(), line) is not None for line in lines]
    except re.error:
        with pytest.raises(UsageError):
            Pattern(expression)
        return

    assert [Pattern(expression).matches(line) for line in lines] == wanted


def test_an_expression_that_begins_with_anything_ends_on_a_long_line() -> None:
    """Gone through for each of its characters, a line like this took minutes."""
    assert not Pattern(".*x.*y").matches(b"x" * 8192)


HOSTILE = [("loss.*step.*x$", "loss step " * 4000), ("(a|aa)+$", "a" * 60 + "!"), ("(?:ä|ää)+b", "ä" * 60)]
"""Expressions, and lines on which Python's own module takes seconds, or years."""


@pytest.mark.parametrize(("expression", "line"), HOSTILE)
@pytest.mark.parametrize("ignore_case", [False, True])
def test_an_expression_that_runs_on_is_given_up_by_its_name(
    expression: str, line: str, ignore_case: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.expression.SECONDS_MAX", 0.05)
    pattern = Pattern(expression, ignore_case=ignore_case)
    block = line.encode() + b"\n"

    for look in (
        lambda: pattern.matches(block[:-1]),
        lambda: list(pattern.spans(block)),
        lambda: pattern.last_span(block),
        lambda: select(block, pattern),
    ):
        with pytest.raises(PatternTooSlow) as raised:
            look()
        assert f"/{expression}/ takes too long" in str(raised.value)
    assert pattern.highlights(line) == []


def test_an_expression_given_up_in_a_log_is_no_reason_of_a_query_that_fails_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.expression.SECONDS_MAX", 0.05)
    expression, line = HOSTILE[0]
    with pytest.raises(PatternTooSlow):
        Pattern(expression).matches(line.encode())

    failure = store_failure(sqlite3.OperationalError("disk I/O error"), tmp_path / "fabric.db")

    assert not isinstance(failure, PatternTooSlow)


def test_other_threads_run_while_an_expression_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held up, a screen takes no key until the match has ended."""
    monkeypatch.setattr("workbench.expression.SECONDS_MAX", 0.5)
    pattern, line, ended = Pattern(HOSTILE[0][0]), HOSTILE[0][1].encode(), list[Exception]()

    def match() -> None:
        try:
            pattern.matches(line)
        except PatternTooSlow as error:
            ended.append(error)

    thread = threading.Thread(target=match)
    thread.start()
    turns = 0
    while thread.is_alive():
        thread.join(0.01)
        turns += 1

    assert ended
    assert turns > 10


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "loss=[0-9.]+ ",
            r"(?i)ERR\w*",
            "^a.*b$",
            r"\bstep\W{0,3}0*7\b",
            "a{2,}",
            "x{e}y*",
            "{s<=2}z*",
        ),
        *("[[:alpha:]]+", "(?P<n>a)+(?P=n)", "(?<=a)b+", "a++b", r"[\]{]x*", r"\{e}*"),
        *("[:a]+", r"\[[:a]+"),
    ],
)
def test_an_expression_means_the_same_whether_or_not_it_could_run_on(expression: str) -> None:
    lines = [
        "loss=0.25 ",
        "an error",
        "aab",
        "step: 007",
        "x{e}y",
        "xy",
        "{s<=2}z",
        ":a]:]",
        "a]",
        "aaa",
        "]x",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a set in a set
        pattern, known = Pattern(expression, smart_case=False), re.compile(expression.encode())

        assert [pattern.matches(text.encode()) for text in lines] == [
            known.search(text.encode()) is not None for text in lines
        ]
