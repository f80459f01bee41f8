"""Fixtures of the tests of snapshots."""

from __future__ import annotations

import pytest

from workbench.data import remembered


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a look at files however new they are: what is tested is not the clock's grain."""
    monkeypatch.setattr(remembered, "RACY_NS", 0)
