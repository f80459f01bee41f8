"""What is frozen may grow and not change: whatever is gone or is something else is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frozen.goldens import lost

FROZEN: dict[str, Any] = {"a": 1, "b": [{"c": "x"}], "parameters": ["text", "*, limit=None"]}


@pytest.mark.parametrize(
    "now",
    [
        FROZEN,
        {**FROZEN, "new": 1},
        {**FROZEN, "b": [{"c": "x", "new": 1}]},
        {**FROZEN, "parameters": ["text", "*, new=False", "*, limit=None"]},
    ],
)
def test_what_is_added_is_no_loss(now: Any) -> None:
    assert list(lost(FROZEN, now)) == []


@pytest.mark.parametrize(
    ("now", "loss"),
    [
        ({**FROZEN, "a": True}, " > a: was 1, is True"),
        ({**FROZEN, "a": 1.0}, " > a: was 1, is 1.0"),
        ({key: FROZEN[key] for key in ("b", "parameters")}, " > a: was 1, is gone"),
        ({**FROZEN, "b": [{"c": "y"}]}, " > b > 0 > c: was x, is y"),
        ({**FROZEN, "b": []}, " > b: was [{'c': 'x'}], is []"),
        (
            {**FROZEN, "parameters": ["text", "needed", "*, limit=None"]},
            " > parameters: was ['text', '*, limit=None'], is ['text', 'needed', '*, limit=None']",
        ),
    ],
)
def test_what_is_gone_or_is_something_else_is_a_loss(now: Any, loss: str) -> None:
    assert list(lost(FROZEN, now)) == [loss]
