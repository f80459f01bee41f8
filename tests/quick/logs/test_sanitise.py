from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from workbench.logs.sanitise import Sanitiser, plain, sanitise

SGR = re.compile(r"\x1b\[[0-9;:]*m")
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200e\u200f\u061c]")

nasty = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b_", "\x9b", "\x9d", "\x90", "\x07", "\x1b\\", "\x9c", "m",
                ";", "0", "[", "]", "2J", "31m", "\r", "\n", "\r\n", "\b", "\0", "\t", "\u202e", "é", "漢", "\x1bc",
                "\x1b(B", "?25l",
            ]
        ),
        st.text(max_size=3),
    ),
    max_size=20,
).map("".join)  # fmt: skip


@settings(max_examples=examples(500))
@given(nasty)
@example("\x1b\x1b[0m")
@example("\x1b[\x1b[31m2J")
@example("\x1b]0;\x1b[31mtitle\x07")
def test_only_text_newlines_tabs_and_colours_are_left(text: str) -> None:
    assert HARMFUL.search(SGR.sub("", sanitise(text))) is None
    assert HARMFUL.search(plain(text)) is None
    assert HARMFUL.search(SGR.sub("", sanitise(text, returns=True)).replace("\r", "")) is None


@settings(max_examples=examples(500))
@given(nasty, st.lists(st.integers(0, 60), max_size=6), st.booleans())
def test_pieces_are_as_harmless_as_the_whole(text: str, cuts: list[int], returns: bool) -> None:
    data = text.encode("utf-8", "replace")
    sanitiser, output, position = Sanitiser(returns=returns), b"", 0
    for cut in sorted(cuts):
        output += sanitiser.feed(data[position:cut])
        position = max(position, cut)
    output += sanitiser.feed(data[position:]) + sanitiser.finish()

    assert output.decode() == sanitise(text.encode("utf-8", "replace").decode(), returns=returns)


@given(st.binary())
def test_any_bytes_are_made_harmless(data: bytes) -> None:
    sanitiser = Sanitiser(returns=False)
    output = (sanitiser.feed(data) + sanitiser.finish()).decode()

    assert HARMFUL.search(SGR.sub("", output)) is None


@settings(max_examples=examples(200))
@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert sanitise(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[38:2::255:0:0mtrue\x1b[m", "\x1b[38:2::255:0:0mtrue\x1b[m"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("\x1b[?1049hfull\x1b[?25l", "full"),
        ("\x1b]0;new title\x07text", "text"),
        ("\x1b]52;c;c2VjcmV0\x1b\\text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\text", "text"),
        ("\x1b_payload\x1b\\\x1b^more\x1b\\text", "text"),
        ("\x1b]never ended\nnext line", "\nnext line"),
        ("\x9b2Jc1\x9d0;title\x9ctext", "c1text"),
        ("\x1bc\x1b7\x1b(B\x1b=text", "text"),
        ("bell\x07back\b\b nul\0 del\x7f", "bell␇back␈␈ nul␀ del␡"),
        ("\x85\x1b", "<85>␛"),
        ("\u202egnp.exe", "<U+202E>gnp.exe"),
        ("dos\r\nline", "dos\nline"),
        ("10%\r20%", "10%␍20%"),
        ("tab\tstays", "tab\tstays"),
        ("👩‍💻 works", "👩‍💻 works"),
    ],
)
def test_each_kind_of_harm(text: str, expected: str) -> None:
    assert sanitise(text) == expected


def test_carriage_returns_stay_where_asked_for() -> None:
    assert sanitise("10%\r20%\r\n", returns=True) == "10%\r20%\r\n"


def test_a_progress_bar_is_not_held_back() -> None:
    assert Sanitiser().feed(b"10%\r") == b"10%\r"


def test_an_unfinished_sequence_is_held_but_not_for_ever() -> None:
    sanitiser = Sanitiser()

    assert sanitiser.feed(b"text\x1b[3") == b"text"
    assert sanitiser.feed(b"1mred") == b"\x1b[31mred"
    assert sanitiser.feed(b"\x1b]0;" + b"x" * 10_000) == b""
    assert sanitiser.feed(b"shown") == b"shown"
    assert sanitiser.feed("é".encode()[:1]) == b""
    assert sanitiser.finish() == "�".encode()
