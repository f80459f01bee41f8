"""What tests of services share: a store of the test's own, and what is asked of the controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.paths import Home
from workbench.store.db.database import Store


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    """The store of a home of the test's own."""
    with Store.open(home) as opened:
        yield opened


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[Home]:
    """The homes whose controller was woken; none is started."""
    homes: list[Home] = []

    def wake(home: Home) -> str:
        homes.append(home)
        return ""

    monkeypatch.setattr("workbench.controller.client.connect.ensure_controller", wake)
    return homes
