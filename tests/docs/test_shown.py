"""What the documentation shows is what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shown import difference, masked, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path) -> None:
    lines = difference(page)

    assert not lines, f"{lines}python -m tests.docs.shown --write {page.stem}"


def test_what_differs_from_run_to_run_is_masked_and_nothing_else() -> None:
    one = "2026-01-02 03:04:05  3 s ago  0.1 s  12.5 MiB  loss=0.31  failed\n"
    other = "2027-12-31 23:59:59   12 min ago  2 h 01 min  1 GiB  loss=0.2 failed\n"

    assert masked(one) == masked(other)
    assert masked(one) != masked(one.replace("failed", "completed"))
