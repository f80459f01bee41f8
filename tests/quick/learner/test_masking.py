from __future__ import annotations

import base64
import json
import re
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.learner import determined_jobs
from workbench.learner.scribe.masking import (
    DATA_SECRETS_VARIABLE,
    Mask,
    secret_texts,
    texts_to_mask,
    values_of_data_secrets,
)

SECRET = "hunter2/two words+é"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote_plus(SECRET),
        re.sub("%..", lambda escape: escape[0].lower(), urllib.parse.quote(SECRET)),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
    ],
)
def test_every_form_of_a_secret_is_overwritten_by_as_many_stars(form: str) -> None:
    raw = form.encode()

    masked = Mask([SECRET]).data(b"before " + raw + b" after")

    assert masked == b"before " + b"*" * len(raw) + b" after"


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "x" * 10])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_inside_of_something_in_base64_cannot_be_decoded(before: str, encode: object) -> None:
    text = encode((before + SECRET + "tail").encode())  # type: ignore[operator] # one of the two functions above

    masked = Mask([SECRET]).data(text)

    assert len(masked) == len(text)
    decoded = base64.b64decode(
        masked.replace(b"*", b"A"), altchars=b"-_" if b"-" in text or b"_" in text else None
    )
    assert not any(SECRET.encode()[at : at + 3] in decoded for at in range(len(SECRET) - 3))


def test_short_values_are_left_alone() -> None:
    assert not Mask(["seven77", "", "true"])
    assert Mask(["eight888"]).data(b"eight888 true") == b"******** true"


def test_what_the_secrets_of_an_experiments_data_hold_is_masked_by_itself() -> None:
    text = '{"key": "hunter2hunter2", "deep": [{"pin": 70717273, "rate": 0.1234567}, null, true], "short": "abc"}'

    mask = Mask(texts_to_mask({DATA_SECRETS_VARIABLE: text, "TOKEN": "eight888"}, {}))

    assert DATA_SECRETS_VARIABLE == determined_jobs.DATA_SECRETS_VARIABLE
    assert mask.text("a hunter2hunter2 70717273 0.1234567 eight888 abc true") == (
        "a ************** ******** ********* ******** abc true"
    )
    assert mask.text(text) == "*" * len(text)


def test_a_name_of_each_value_in_the_secrets_of_the_data_is_its_path() -> None:
    text = '{"a b": ["x", 1e400, ""], "k": {"0": 12345678901234567890}, "no": null, "yes": true}'

    assert values_of_data_secrets(text) == [
        ("data.secrets.a b.0", "x"),
        ("data.secrets.a b.1", "inf"),
        ("data.secrets.k.0", "12345678901234567890"),
    ]
    assert values_of_data_secrets('"alone"') == [("data.secrets", "alone")]


@pytest.mark.parametrize("text", ["", "no JSON at all", "[" * 100_000, "7" * 5000])
def test_what_is_not_json_is_masked_as_a_whole_alone(text: str) -> None:
    assert secret_texts({DATA_SECRETS_VARIABLE: text})[0] == text
    assert Mask(secret_texts({DATA_SECRETS_VARIABLE: text})).text(text) == "*" * len(text)


def test_half_of_a_pair_in_a_secret_harms_nothing() -> None:
    assert (
        Mask(secret_texts({DATA_SECRETS_VARIABLE: '["\\ud800 hunter2", "hunter3hunter3"]'})).text(
            "hunter3hunter3"
        )[0]
        == "*"
    )


def test_a_value_is_masked_without_the_newline_that_its_file_ended_with() -> None:
    assert Mask(["topsecret\n"]).data(b"<topsecret>") == b"<*********>"


def test_overlapping_secrets_are_overwritten_as_one() -> None:
    assert Mask(["abcdefgh", "efghijkl"]).data(b"-abcdefghijkl-") == b"-************-"


def test_the_texts_of_a_record_are_masked_and_its_numbers_are_not() -> None:
    record = {"texts": {"password1": ["x password1", 12345678]}, "values": {"loss": [12345678]}, "none": None}

    masked = Mask(["password1", "12345678"]).value(record)

    assert masked == {
        "texts": {"*********": ["x *********", 12345678]},
        "values": {"loss": [12345678]},
        "none": None,
    }


def test_only_the_beginning_of_a_secret_is_held_back() -> None:
    mask = Mask(["secretvalue"])
    held = {}
    for text in (b"nothing", b"a secre", b"secretvalu", b"secretvalue", b"secretvalue s"):
        held[text] = len(text) - mask.settled(text, mask.spans(text))

    assert held == {b"nothing": 0, b"a secre": 5, b"secretvalu": 10, b"secretvalue": 0, b"secretvalue s": 1}


@given(
    st.lists(st.text("abc", min_size=8, max_size=12), min_size=1, max_size=3),
    st.text("abcd", max_size=80),
    st.data(),
)
def test_output_that_arrives_in_pieces_is_masked_like_the_whole(
    secrets: list[str], text: str, data: st.DataObject
) -> None:
    mask = Mask(secrets)
    whole = text.encode()

    published = b""
    buffer = b""
    at = 0
    while at < len(whole):
        step = data.draw(st.integers(1, 20))
        buffer += whole[at : at + step]
        at += step
        spans = mask.spans(buffer)
        settled = mask.settled(buffer, spans)
        masked = bytearray(buffer)
        for start, end in spans:
            if end <= settled:
                masked[start:end] = b"*" * (end - start)
        published += bytes(masked[:settled])
        buffer = buffer[settled:]
    published += mask.data(buffer)

    assert published == mask.data(whole)
