"""The frozen homes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frozen.sandbox import Sandbox, sandbox


@pytest.fixture(scope="module")
def ended() -> Iterator[Sandbox]:
    """The home whose jobs are all over, for tests that only look."""
    with sandbox("ended") as box:
        yield box


@pytest.fixture
def changing() -> Iterator[Sandbox]:
    """The same home, for one test to change."""
    with sandbox("ended") as box:
        yield box


@pytest.fixture
def live() -> Iterator[Sandbox]:
    """The home whose jobs run and wait; nothing of them is started yet."""
    with sandbox("live") as box:
        yield box
