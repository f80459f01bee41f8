"""Sweeps in the list of jobs: one line for all of them, opened and closed, filtered, marked and acted upon."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from screens.jobs.compare_screen import CompareScreen
from screens.jobs.in_view import InView, RowDetailsReader
from screens.jobs.table import JobTable
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.job_list import JobList, jobs_between, window
from workbench.store.queries.where import parse

LOSSES = (0.5, 0.2, 0.9)
RATES = (0.3, 0.1, 0.01)


@pytest.fixture
def swept(home: Home) -> Home:
    """A home with a job, a sweep of three of which one failed and one runs, and a newer job."""
    with Store.open(home) as store:
        seeding.add_job(store, 1, "before", age_seconds=4000)
        ends: Sequence[tuple[State, ...]] = (
            (State.STORING, State.COMPLETED),
            (State.STORING, State.FAILED),
            (),
        )
        for number, (loss, rate, end) in enumerate(zip(LOSSES, RATES, ends, strict=True), start=1):
            row = seeding.add_job(
                store, 10 + number, f"trial-{number}", age_seconds=3000 - number,
                params={"lr": rate, "epochs": 5}, sweep="lr",
            )  # fmt: skip
            row = seeding.go(store, row, *seeding.RUN_UP)
            seeding.report(store, row, {"loss": [2.0, 1.0, loss]})
            if end:
                seeding.go(store, row, *end, exit_code=0, exit_by="job")
        seeding.add_job(store, 2, "after", age_seconds=100)
        seeding.remember_runs(store)
    return home


def table(shown: Shown) -> JobTable:
    return shown.app.screen_stack[1].query_one(JobTable)


def names(shown: Shown) -> list[str]:
    window = table(shown).window
    return [row.name for row in window.rows] if window else []


def marked(shown: Shown) -> list[str]:
    return sorted(job.name for job in table(shown).marks.values())


def line_with(shown: Shown, part: str) -> str:
    return next((line for line in shown.text().splitlines() if part in line), "")


@journey
async def test_a_sweep_is_one_line_with_its_states_its_best_job_and_what_differs(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("3 jobs  best train/loss 0.2  lr=0.1")
        line = line_with(shown, "best train/loss")
        assert line.startswith(" ✗1 ●1 ✓1"), line
        assert "▸ trial" in line
        assert "epochs" not in line  # the same for all of them
        assert names(shown) == ["after", "trial-3", "before"]
        await shown.until_shown("5 jobs")


@journey
async def test_a_sweep_whose_metric_does_not_say_what_is_better_shows_between_which_values_it_ends(
    home: Home,
) -> None:
    with Store.open(home) as store:
        for number, values in enumerate(([3.0, 1.5], [2.0, 0.25], [float("nan")]), start=1):
            row = seeding.add_job(store, number, f"trial-{number}", params={"a": number}, sweep="a")
            seeding.report(
                store, seeding.go(store, row, *seeding.RUN_UP), {"alpha": values, "lr": [0.1] * len(values)}
            )
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("3 jobs  last train/alpha 0.25 to 1.5")


@journey
async def test_enter_opens_a_sweep_and_a_key_closes_it_again_with_the_cursor_on_it(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("j", "enter")
        await shown.until(lambda: names(shown) == ["after", "trial-3", "trial-2", "trial-1", "before"])
        await shown.until_shown("│ trial-2")
        await shown.press("j", "f")
        await shown.until(lambda: names(shown) == ["after", "trial-3", "before"])
        job = table(shown).job
        assert job is not None and job.name == "trial-3"


@pytest.mark.parametrize(("x", "times"), [(30, 2), (15, 1)], ids=["twice on its line", "on its sign"])
@journey
async def test_a_click_opens_a_sweep(swept: Home, x: int, times: int) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss", "CPUs")
        await shown.pilot.click(JobTable, offset=(x, 2), times=times)
        await shown.until(lambda: len(names(shown)) == 5)


@journey
async def test_a_filter_reaches_folded_jobs_and_one_alone_is_an_ordinary_line(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("slash")
        await shown.type("trial-2")
        await shown.until(lambda: names(shown) == ["trial-2"])
        await shown.until_shown("1 of 5 jobs")
        await shown.press("enter", "escape", "slash")
        await shown.type("!name:trial-2")
        await shown.until(lambda: names(shown) == ["after", "trial-3", "before"])
        await shown.until_shown("4 of 5 jobs", "2 jobs  best train/loss 0.5  lr=0.3")


@journey
async def test_a_mark_on_a_fold_is_one_on_all_its_jobs(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("j", "space")
        await shown.until(lambda: marked(shown) == ["trial-1", "trial-2", "trial-3"])
        await shown.until_shown("3 marked")
        await shown.until(lambda: line_with(shown, "best train/loss").startswith("▎"))
        await shown.press("k", "space")
        await shown.until(lambda: marked(shown) == [])


@journey
async def test_a_range_over_a_fold_takes_all_its_jobs_with_it(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("space", "j", "v")
        await shown.until(lambda: marked(shown) == ["after", "before", "trial-1", "trial-2", "trial-3"])


@journey
async def test_what_is_done_with_a_fold_concerns_all_its_jobs(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("j", "D")
        await shown.until_shown("Delete 3 jobs?", "Type trial-3 to confirm")
        await shown.press("escape", "c")
        await shown.until(lambda: isinstance(shown.app.screen, CompareScreen))
        await shown.until_shown("3 jobs")


@journey
async def test_whether_sweeps_fold_is_remembered(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("F")
        await shown.until(lambda: len(names(shown)) == 5)
    async with opened(swept) as shown:
        await shown.until(lambda: len(names(shown)) == 5)
        await shown.press("F")
        await shown.until(lambda: len(names(shown)) == 3)


@journey
async def test_order_filter_and_marks_stand_in_one_line(swept: Home) -> None:
    async with opened(swept) as shown:
        await shown.until_shown("best train/loss")
        await shown.press("j", "space", "slash")
        await shown.type("name:trial")
        await shown.press("enter")
        await shown.until_shown("1 processing", "3 of 5 jobs", "CPUs")
        line = line_with(shown, "name:trial x")
        assert line.split("  ")[0] == " by submitted ▼", line
        assert "3 marked" in line and "3 of 5 jobs" in line
        await shown.pilot.click("Chips", offset=(4, 0))
        await shown.until_shown("by submitted ▲")
        await shown.pilot.click("Chips", offset=(20, 0))
        await shown.until(lambda: "of 5 jobs" not in shown.text() and "5 jobs" in shown.text())


@journey
async def test_a_running_job_shows_its_curve_progress_and_expected_end(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, "falls", age_seconds=1000), *seeding.RUN_UP)
        # Half is done after 985 s, which the report dates at the start; another record says when that was.
        seeding.report(store, row, {"loss": [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]})
        store.execute("UPDATE progress SET time_us = ?", (seeding.NOW_US,))
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("█▇▆▅▄▃▂▁", "50%")
        heading, line = line_with(shown, "left"), line_with(shown, "█▇▆▅▄▃▂▁")
        at = heading.index("left")
        assert line[at : at + 4] == " 16m", line


@journey
async def test_only_rows_in_view_are_read_and_when_others_come_into_view_those(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[InView] = []
    query = RowDetailsReader.query

    def note_query(reader: RowDetailsReader, rows: InView) -> object:
        asked.append(rows)
        return query(reader, rows)

    monkeypatch.setattr(RowDetailsReader, "query", note_query)
    with Store.open(home) as store:
        for number in range(60):
            seeding.go(store, seeding.add_job(store, number, f"job-{number}"), *seeding.RUN_UP)
        seeding.remember_runs(store)
        all_ids = [row.id for row in window(store, JobList(), now_us=seeding.NOW_US).rows]
    async with opened(home) as shown:
        await shown.until(lambda: asked and asked[-1].running)
        first = asked[-1].running
        height = table(shown).size.height - 1
        assert first == tuple(all_ids[:height])
        await shown.press("G")
        await shown.until(lambda: asked[-1].running == tuple(all_ids[-height:]))


def test_a_window_counts_lines_and_jobs_and_an_end_of_a_range_may_be_folded_away(swept: Home) -> None:
    listing = JobList(folds=True)
    with Store.open(swept) as store:
        found = window(store, listing, now_us=seeding.NOW_US)
        by_name = {row.name: row.id for row in window(store, JobList(), now_us=seeding.NOW_US).rows}
        first, last = by_name["trial-1"], by_name["before"]
        between = [row.name for row in jobs_between(store, listing, first, last, now_us=seeding.NOW_US)]
        opened_one = JobList(folds=True, opened=frozenset({"lr"}))
        alone = jobs_between(store, opened_one, first, last, now_us=seeding.NOW_US)
        alone_names = [row.name for row in alone]
        by_loss = JobList(parse("name:trial"), "loss", descending=False, folds=True)
        best_first = window(store, by_loss, now_us=seeding.NOW_US)

    assert (found.total, found.matching, found.jobs) == (3, 5, 5)
    assert between == ["trial-3", "trial-2", "trial-1", "before"]
    assert alone_names == ["trial-1", "before"]
    assert [row.name for row in best_first.rows] == ["trial-2"]
    assert (best_first.total, best_first.matching) == (1, 3)
