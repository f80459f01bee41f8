"""What docs/screens.md says of the screens is so: the tests that it names are there, and so are its keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from screens.core import actions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "screens.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| .* \|$", PAGE, re.MULTILINE)
HOW = {
    int(number): how
    for number, how in re.findall(r"^\| (\d+) \| .+? \| .+? \| (.*?) \| ", PAGE, re.MULTILINE)
}
KEYS_OF_ROWS = {
    3: ("app.palette",),
    9: ("runs.sort", "runs.reverse"),
    12: ("runs.mark", "runs.mark-range"),
    15: ("app.back", "app.last"),
    16: ("run.tab",),
    17: ("app.maximise",),
    18: ("app.jump",),
    19: ("log.follow",),
    22: ("log.wrap",),
    23: ("log.times",),
    24: ("log.window",),
    25: ("log.find", "log.next", "log.previous"),
    26: ("log.filter",),
    28: ("log.level",),
    29: ("log.error", "log.error-back"),
    31: ("log.detail",),
    32: ("log.save",),
    33: ("log.mark",),
    35: ("log.attempt",),
    37: ("chart.zoom-in", "chart.zoom-out"),
    38: ("chart.inspect",),
    40: ("chart.log",),
    41: ("chart.smooth",),
    42: ("runs.compare",),
    44: ("app.places",),
    48: ("app.theme",),
    52: ("job.copy", "log.copy"),
    53: ("app.help",),
    67: ("app.launch", "job.rerun", "job.halt", "job.kill", "job.resume"),
    68: ("job.shell",),
}
"""The actions of the comparison's rows that name keys."""
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


def test_a_key_that_a_row_of_the_comparison_names_does_what_the_row_says() -> None:
    keys_of = {action.id: {actions.key_name(key) for key in action.keys} for action in actions.ACTIONS}
    known = set().union(*keys_of.values())
    for number, how in HOW.items():
        named = {word for word in re.findall(r"`([^`]+)`", how) if word in known}
        does = [keys_of[action_id] for action_id in KEYS_OF_ROWS.get(number, ())]
        assert named <= set().union(*does) and all(named & keys for keys in does), (number, how)


def test_what_the_page_says_of_actions_names_no_other() -> None:
    for name in re.findall(r'"((?:app|runs|job|run|log|chart|form|files|places)\.[a-z-]+)"', PAGE):
        assert name in actions.BY_ID
