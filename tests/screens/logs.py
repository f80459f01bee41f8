"""A running job with a log, open on the screen, for the tests of the log's view."""

from __future__ import annotations

import pytest

from screens.logs.view import LogView
from tests.screens import seeding
from tests.screens.support import Shown
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow


@pytest.fixture
def job(home: Home) -> JobRow:
    """A job that runs and has printed nothing."""
    with Store.open(home) as store:
        return seeding.go(store, seeding.add_job(store, 1, "digits"), *seeding.RUN_UP)


@pytest.fixture
def output(home: Home, job: JobRow) -> seeding.JournalWriter:
    return seeding.journal(home, job)


def log(shown: Shown) -> LogView:
    return shown.app.screen.query_one(LogView)


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, last + 1))


async def open_log(shown: Shown, *parts: str) -> None:
    """Go to the log, and wait until something of it is shown."""
    await shown.until_shown("1 overview")
    await shown.press("l")
    await shown.until_shown(*parts)
