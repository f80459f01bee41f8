"""What docs/screens.md says of the screens is so: the tests that it names are there, and so are its keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from screens.core import actions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "screens.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| .* \|$", PAGE, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py)::(\w+)`", PAGE)))


def test_the_table_of_features_is_whole_and_every_row_is_shown_or_denied() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 71))
    for number, _, fabric in ROWS[1:]:
        line = next(line for line in PAGE.split("\n") if line.startswith(f"| {number} |"))
        assert fabric in ("yes", "partly", "no")
        assert fabric == "no" or "::test_" in line, line


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_is_named_is_there(file: str, test: str) -> None:
    assert re.search(
        rf"^ *(async )?def {test}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE
    )


def test_keys_that_are_named_are_those_of_the_table() -> None:
    known = {actions.key_name(key) for action in actions.ACTIONS for key in action.keys}
    named = {
        key
        for key in re.findall(r"`([^`\s]{1,6})`", PAGE.partition("## Comparison with other tools")[0])
        if len(key) == 1
    }

    assert named - known <= {"@"}


def test_what_the_page_says_of_actions_names_no_other() -> None:
    for name in re.findall(r'"((?:app|runs|job|run|log|chart|form|files|places)\.[a-z-]+)"', PAGE):
        assert name in actions.BY_ID
