"""Every key does what it did: ``docs/keys.md`` is made of the keys, and a test of the screens keeps it current."""

from __future__ import annotations

from tests.frozen import goldens
from tests.frozen.asked import keys


def test_keys_are_what_they_were() -> None:
    goldens.holds(goldens.KEYS, keys())


def test_every_pane_has_keys() -> None:
    frozen = goldens.read(goldens.KEYS)

    assert len(frozen) == 16
    assert all(frozen.values())
    assert frozen["Jobs: table"]["job.halt"] == ["x"]
