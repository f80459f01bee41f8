"""Numbers with a unit are written in one way on every page: all pictures of the screens are read for others."""

from __future__ import annotations

import re

import pytest

from tests.screens.support import SNAPSHOTS

NUMBER = r"(?<![\w.,/])[0-9][0-9.,]*"


@pytest.mark.parametrize(
    ("looks", "allowed"),
    [
        (rf"{NUMBER} ?%", r"\d+%"),
        (rf"{NUMBER} ?(?:[kKMGT]i?B|B|bytes)\b", r"\d+ B|\d+\.\d [KMGT]iB"),
        (rf"{NUMBER} ?[KMGT]\b", r"\d\.\d[KMGT]|\d{2,3}[KMGT]"),  # no metric in the pictures is that large
    ],
    ids=["percent", "size", "short size"],
)
def test_every_picture_writes_numbers_in_one_way(looks: str, allowed: str) -> None:
    found = {
        f"{file.name}: {shown}"
        for file in SNAPSHOTS.glob("*.txt")
        for shown in re.findall(looks, file.read_text(encoding="utf-8"))
    }

    assert found
    assert sorted(one for one in found if not re.fullmatch(allowed, one.partition(": ")[2])) == []
