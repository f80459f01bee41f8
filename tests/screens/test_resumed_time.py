"""How long a job ran that was resumed: the sum of its attempts, wherever a screen says it."""

from __future__ import annotations

import re

import pytest

from screens.jobs.compare_screen import CompareScreen
from screens.jobs.job_screen import JobScreen
from screens.jobs.table import JobTable
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.updates.jobs import new_attempt, step

SUM = "1 min 25 s"
"""Half a minute before it was halted, and 55 s since it was resumed."""


def run(store: Store, number: int, attempt: int, began_ago: float, ended_ago: float | None = None) -> None:
    """Let the command of an attempt run from so long ago until so long ago, or until now."""
    job_id = seeding.job_id(number)

    def at(ago: float) -> int:
        return seeding.NOW_US - round(ago * seeding.SECOND_US)

    step(store, job_id, attempt, State.PENDING, Reason(""), time_us=at(began_ago + 2))
    step(store, job_id, attempt, State.DOWNLOADING, Reason(""), time_us=at(began_ago + 1))
    began_us = at(began_ago)
    step(store, job_id, attempt, State.PROCESSING, Reason(""), time_us=began_us, started_us=began_us)
    if ended_ago is not None:
        ended_us = at(ended_ago)
        step(store, job_id, attempt, State.STORING, Reason(""), time_us=ended_us)
        last = State.HALTED if attempt == 1 else State.COMPLETED
        step(store, job_id, attempt, last, Reason(""), time_us=ended_us, ended_us=ended_us, exit_code=0)


@pytest.fixture
def resumed(home: Home) -> Home:
    """A job that was resumed and runs, one that was resumed and has ended, and one that ran once, for a minute."""
    with Store.open(home) as store:
        for number, name in ((1, "again"), (2, "ended"), (3, "once")):
            seeding.add_job(store, number, name, age_seconds=3600 - number)
        for number, began_ago, ended_ago in ((1, 55, None), (2, 155, 100)):
            run(store, number, 1, 900, 870)
            new_attempt(store, seeding.job_id(number), Reason("resumed"))
            run(store, number, 2, began_ago, ended_ago)
        run(store, 3, 1, 160, 100)
        seeding.remember_runs(store)
    return home


async def go_to(shown: Shown, name: str) -> None:
    table = shown.app.screen.query_one(JobTable)
    await shown.until(lambda: table.window is not None and table.window.rows)
    await shown.press("g")
    assert table.window is not None
    await shown.press(*["j"] * [row.name for row in table.window.rows].index(name))
    await shown.until(lambda: table.job is not None and table.job.name == name)


@pytest.mark.parametrize("name", ["again", "ended"])
@journey
async def test_the_time_of_a_resumed_job_is_the_sum_in_the_list_and_its_preview(
    resumed: Home, name: str
) -> None:
    async with opened(resumed, (200, 40)) as shown:
        await go_to(shown, name)
        # In the column are minutes alone: of its last attempt there would be 55 seconds.
        await shown.until(lambda: re.search(rf"{name} .* 1m  59m ", shown.text()))
        await shown.until_shown(f"local · {SUM}")


@pytest.mark.parametrize(("name", "ran"), [("again", "running for"), ("ended", "ran")])
@journey
async def test_the_time_of_a_resumed_job_is_the_sum_on_its_page(resumed: Home, name: str, ran: str) -> None:
    async with opened(resumed, (120, 40), job=name) as shown:
        await shown.until_shown("1 overview", f"{ran} {SUM}")
        assert isinstance(shown.app.screen, JobScreen)
        heading = shown.text().splitlines()[0]
        assert SUM in heading


@journey
async def test_the_time_of_resumed_jobs_is_the_sum_in_a_comparison(resumed: Home) -> None:
    async with opened(resumed, (200, 60)) as shown:
        await shown.until_shown("again", "ended", "once")
        await shown.press("g", "space", "space", "space", "c")
        await shown.until(lambda: isinstance(shown.app.screen, CompareScreen))
        await shown.press("2")
        await shown.until_shown("ran")
        rows = {
            name: next(line for line in shown.text().splitlines() if re.match(rf" *{name} ", line))
            for name in ("again", "ended", "once")
        }
        assert SUM in rows["again"] and SUM in rows["ended"], shown.text()
        assert "1 min 00 s" in rows["once"]


@journey
async def test_resumed_jobs_are_sorted_by_the_sum(resumed: Home) -> None:
    async with opened(resumed, (120, 40)) as shown:
        await shown.until_shown("again", "ended", "once")
        await shown.press("colon")
        await shown.type("sort time desc")
        await shown.press("enter")
        table = shown.app.screen_stack[1].query_one(JobTable)
        # By the last attempts alone it would be the first, as it is by the time of submission.
        await shown.until(lambda: table.window is not None and table.window.rows[-1].name == "once")
