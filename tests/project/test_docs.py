"""The pages for developers name what exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.structure import ROOT

ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PATH = re.compile(r"`((?:workbench|runners|backends|screens|tests|docs|examples)/[\w./-]*)`(?:: `(\w+)`)?")
PICTURE = re.compile(r"!\[[^]]*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
PAGES_OF_USERS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WAYS = ("submit", "byte of the log", "metric point", "halt")


def named(text: str) -> Iterator[tuple[str, str]]:
    """Give each file that a page names, with the function or class after it, or an empty text."""
    for found in PATH.finditer(text):
        yield found[1], found[2] or ""


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.name)
def test_every_file_and_name_on_a_page_exists(page: Path) -> None:
    missing = []
    for path, name in named(page.read_text()):
        file = ROOT / path
        if not file.exists() or (
            name and not re.search(rf"^ *(?:class|def) {name}\b", file.read_text(), re.MULTILINE)
        ):
            missing.append(f"{path} {name}".strip())

    assert missing == []


def test_every_picture_that_a_page_shows_exists() -> None:
    shown = [
        page.parent / (found[1] or found[2])
        for page in PAGES_OF_USERS
        for found in PICTURE.finditer(page.read_text())
    ]

    assert len(shown) >= 8
    assert [str(file) for file in shown if not file.is_file()] == []


@pytest.mark.parametrize("way", WAYS)
def test_the_way_of_each_has_at_most_eight_stations(way: str) -> None:
    sections = re.split(r"^## ", ARCHITECTURE.read_text(), flags=re.MULTILINE)
    section = next(one for one in sections if one.startswith(f"How a {way} travels"))
    stations = re.findall(r"^\d+\. ", section, flags=re.MULTILINE)

    assert 4 <= len(stations) <= 8
