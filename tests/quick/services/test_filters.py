"""What a filter may become of which so much is typed, for shells and for the screens."""

from __future__ import annotations

import pytest

from workbench.services.filters import complete_filter, filter_words

WORDS = filter_words(["train/loss", "a metric", 'quo"ted', "loss"], {"backend": ["local", "gpubox", "local"]})


@pytest.mark.parametrize(
    ("typed", "may_become"),
    [
        ("nam", ["name:"]),
        ("backend:", ["backend:", "backend:local", "backend:gpubox"]),
        ("is:", ["is:", "is:problem", "is:open"]),
        ("LO", ["loss"]),
        ("name:a !(tr", ["name:a !(train/loss"]),
        ("state:f", ["state:failed"]),
        ("nobody", []),
    ],
)
def test_the_last_term_is_completed(typed: str, may_become: list[str]) -> None:
    assert complete_filter(typed, WORDS) == may_become


def test_what_would_have_to_be_quoted_is_not_offered() -> None:
    assert not [word for word in WORDS if " " in word or '"' in word]


def test_without_a_term_everything_is_offered() -> None:
    assert complete_filter("", WORDS) == WORDS
    assert complete_filter("done (", WORDS) == [f"done ({word}" for word in WORDS]
