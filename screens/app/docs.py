"""Writes ``docs/keys.md`` from the table of actions (``--write``), or checks that it is current."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from screens.core import actions

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "keys.md"
_INTRODUCTION: Final = """# Keys of the screens

Made from the table of actions (`screens/core/actions.py`) by `python -m screens.app.docs --write`; do not edit it by
hand.

A key works in the pane that has the focus. Every action is also in the palette (`ctrl+p`) and, by its name, a
command (`:`); `?` shows the keys of the focused pane. Actions marked ✎ are off with `--readonly`.
"""


def page() -> str:
    """Return the whole page."""
    everywhere = [action for action in actions.ACTIONS if action.panes == actions.ALL_PANES]
    parts = [_INTRODUCTION, _section("Everywhere", everywhere)]
    for pane, title in actions.TITLES.items():
        own = [action for action in actions.of_pane(pane) if action not in everywhere]
        parts.append(_section(title, own))
    return "\n".join(parts)


def _section(title: str, listed: list[actions.Action]) -> str:
    rows = [f"## {title}", "", "| keys | name | what it does |", "|---|---|---|"]
    for action in listed:
        keys = " ".join(f"`{key}`" for key in actions.keys_shown(action).split(", ")).replace("|", "\\|")
        mark = " ✎" if action.changes else ""
        rows.append(f"| {keys} | {action.id}{mark} | {action.help.replace('|', chr(92) + '|')} |")
    return "\n".join([*rows, ""])


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is current."""
    if arguments == ["--write"]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if arguments == ["--check"]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print(f"{PAGE} is out of date: python -m screens.app.docs --write", file=sys.stderr)
        return 0 if current else 1
    print("usage: python -m screens.app.docs --write|--check", file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
