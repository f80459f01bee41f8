"""The command line as it is: its help, word for word, and its commands with all their options, which stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frozen import commands, goldens
from tests.support.command import Fabric


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    """What the command line says of itself now."""
    return commands.ask()


def test_commands_and_their_options_are_what_they_were(now: dict[str, Any]) -> None:
    goldens.holds(goldens.OPTIONS, now["commands"])


def test_the_help_of_every_command_is_what_was_reviewed(now: dict[str, Any]) -> None:
    """After a sentence was changed on purpose: ``python -m tests.frozen.renew help``."""
    pages = goldens.pages(now)
    differs = [
        f"{file.name}:\n{text}"
        for file, page in pages.items()
        if (text := goldens.difference(file.read_text(encoding="utf-8") if file.is_file() else "", page))
    ]

    assert not differs, "".join(differs)
    assert set(goldens.HELP.iterdir()) == set(pages), "a command is gone or new"


@pytest.mark.parametrize("name", [commands.OVERVIEW, "run", "backend add"])
def test_the_real_command_prints_that_help(fabric: Fabric, name: str) -> None:
    args = [] if name == commands.OVERVIEW else name.split()
    page = goldens.page_file(name).read_text(encoding="utf-8")

    assert [
        line.rstrip() for line in fabric(*args, "--help", COLUMNS=commands.COLUMNS).stdout.splitlines()
    ] == (page.splitlines())
