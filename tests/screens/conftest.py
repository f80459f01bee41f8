"""Fixed ground for pictures of screens: no animation, UTC, unicode signs; and the flag that renews the pictures."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import tempfile
import time
from collections.abc import Iterator
from typing import Final

# Read by Textual when it is imported.
os.environ["TEXTUAL_ANIMATIONS"] = "none"

import pytest
from textual.message import Message
from textual.message_pump import MessagePump

from fabric_workbench import GARBAGE_THRESHOLDS
from screens.style.glyphs import glyphs
from tests.screens import seeding
from tests.support.folders import is_short
from workbench.paths import Home
from workbench.store.db.database import Store

LATE_SHARE: Final = 0.3
"""So many messages are late with ``FABRIC_TEST_JITTER``, each by one of the times below."""
LATE_SECONDS: Final = (0.0, 0.0, 0.001, 0.005, 0.02, 0.05)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-screens", action="store_true", help="write tests/screens/snapshots anew: look at the diff"
    )


@pytest.fixture(scope="package", autouse=True)
def short_folders() -> Iterator[None]:
    """Folders of tests whose paths are as long on every machine: a screen cuts off, wraps and aligns what is longer."""
    with pytest.MonkeyPatch.context() as patch:
        if not is_short(tempfile.gettempdir()):
            patch.setattr(tempfile, "tempdir", "/tmp")
        yield


@pytest.fixture(scope="package", autouse=True)
def garbage_as_fabric_has_it() -> Iterator[None]:
    """Look for garbage as seldom as the program does: with Python's own thresholds that is each 30th key."""
    before = gc.get_threshold()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    yield
    gc.set_threshold(*before)


@pytest.fixture(autouse=True)
def jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have widgets take some of their messages late where ``FABRIC_TEST_JITTER`` is a seed: other orders come up.

    What each widget gets stays in order; what several do meanwhile is in no order that a screen may count on.
    """
    seed = os.environ.get("FABRIC_TEST_JITTER")
    if not seed:
        return
    chance = random.Random(seed)
    dispatch = MessagePump._dispatch_message

    async def dispatch_late(pump: MessagePump, message: Message) -> None:
        if chance.random() < LATE_SHARE:
            await asyncio.sleep(chance.choice(LATE_SECONDS))
        await dispatch(pump, message)

    monkeypatch.setattr(MessagePump, "_dispatch_message", dispatch_late)


@pytest.fixture(autouse=True)
def fixed_ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("FABRIC_ASCII", "0")
    time.tzset()
    glyphs.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    glyphs.cache_clear()


@pytest.fixture
def three(home: Home) -> Home:
    """A home with three runs, left on the table of runs."""
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    return home


@pytest.fixture
def five(home: Home) -> Home:
    """A home with five jobs that wait: job-5, the newest, is listed first."""
    with Store.open(home) as store:
        for number in range(1, 6):
            seeding.add_job(store, number, f"job-{number}")
        seeding.remember_runs(store)
    return home
