"""Fixtures of the tests of snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick.data.support import FILES, make_tree
from workbench.data.code import scan_cache


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a look at files however new they are: what is tested is not the clock's grain."""
    monkeypatch.setattr(scan_cache, "RACY_NS", 0)


@pytest.fixture
def tree(clean_environment: Path) -> Path:
    """A folder with a small project."""
    return make_tree(clean_environment / "code", FILES)
