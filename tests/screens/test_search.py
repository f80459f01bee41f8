"""The page of a search: its trials in order, their curves and a scatter, and what is done about the search."""

from __future__ import annotations

import math

import pytest

from screens.jobs.job_screen import JobScreen
from screens.jobs.search_pages import curves_chart
from screens.jobs.search_screen import SearchScreen
from screens.jobs.table_screen import JobsScreen
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, journey, opened
from workbench.paths import Home
from workbench.services.inspect.search_standing import SearchReader, SearchStanding
from workbench.store.db.database import Store
from workbench.store.queries.experiments import experiment, read_experiment_file
from workbench.store.updates.experiments import record_event


@pytest.fixture
def search(home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home with a search, which was left on the list of jobs."""
    # No controller takes up its trials: they run only on paper.
    instead_of_controller(monkeypatch, lambda home: None)
    with Store.open(home) as store:
        found = seeding.search(store)
        seeding.remember_runs(store)
    return found


async def open_page(shown: Shown) -> SearchScreen:
    """Open the search from its line in the list."""
    await shown.until_shown("digits")
    await shown.press("E")
    await shown.until_shown("10 of 16 trials", "best 0.1161", "trial 6  ")
    assert isinstance(shown.app.screen, SearchScreen)
    return shown.app.screen


def numbers(shown: Shown) -> list[int]:
    """Return the numbers of the trials that are listed, from top to bottom."""
    lines = [line.split() for line in shown.text().split("\n")]
    states = ("completed", "stopped", "running")
    return [int(words[0]) for words in lines if len(words) > 1 and words[1] in states]


def state(home: Home, search: str) -> str:
    with Store.open(home) as store:
        row = experiment(store, search)
    assert row is not None
    return row.state


def standing(store: Store, search: str) -> SearchStanding:
    found = SearchReader(search)(store)
    assert found is not None
    return found


@journey
async def test_the_best_trials_come_first_and_keys_sort_otherwise(home: Home, search: str) -> None:
    async with opened(home) as shown:
        await open_page(shown)
        assert numbers(shown)[:3] == [6, 1, 11]
        await shown.press("s")
        await shown.until(lambda: numbers(shown) == list(range(1, 13)))
        await shown.press("S")
        await shown.until(lambda: numbers(shown) == list(range(12, 0, -1)))


@journey
async def test_a_trial_is_opened_and_its_search_from_there(home: Home, search: str) -> None:
    async with opened(home) as shown:
        page = await open_page(shown)
        await shown.press("j", "enter")
        await shown.until(lambda: isinstance(shown.app.screen, JobScreen))
        await shown.until_shown("digits-01")
        await shown.press("E")
        await shown.until(lambda: shown.app.screen is page)  # not another page of the same search
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))


@journey
async def test_a_report_is_shown_as_it_comes_and_the_cursor_stays_on_its_trial(
    home: Home, search: str
) -> None:
    async with opened(home) as shown:
        page = await open_page(shown)
        await shown.press("j", "j")
        await shown.until_shown("trial 11  ")
        reported = {"do": "report", "trial": "trial-12", "point": 10, "units": 9, "metrics": {}}
        with Store.open(home) as store:
            record_event(store, search, {**reported, "value": 0.01})
        await shown.until_shown("best 0.01")
        assert numbers(shown)[:2] == [12, 6]
        assert page.trials.chosen is not None
        assert page.trials.chosen.row.number == 11


@journey
async def test_a_search_is_paused_after_a_question_and_resumed(home: Home, search: str) -> None:
    async with opened(home) as shown:
        page = await open_page(shown)
        await shown.press("x")
        await shown.until_shown("Pause the search digits?", "no others begin")
        await shown.press("n")
        await shown.until(lambda: shown.app.screen is page)
        assert state(home, search) == "RUNNING"
        await shown.press("x")
        await shown.until_shown("Pause the search digits?")
        await shown.press("y")
        await shown.until(lambda: state(home, search) == "PAUSED")
        await shown.until_shown("paused  2 under way")
        assert not page.can_do("search.pause")
        await shown.press("u")
        await shown.until(lambda: state(home, search) == "RUNNING")


@journey
async def test_a_search_is_killed_after_a_question(home: Home, search: str) -> None:
    async with opened(home) as shown:
        await open_page(shown)
        await shown.press("X")
        await shown.until_shown("Kill the search digits?")
        await shown.press("y")
        await shown.until(lambda: state(home, search) == "STOPPING")


@journey
async def test_readonly_steers_no_search(home: Home, search: str) -> None:
    async with opened(home, readonly=True) as shown:
        page = await open_page(shown)
        await shown.press("x")
        await shown.until_shown("read-only")
        assert shown.app.screen is page


@journey
async def test_a_job_that_is_no_trial_has_no_search(home: Home) -> None:
    with Store.open(home) as store:
        seeding.add_job(store, 1, "alone")
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("alone")
        await shown.press("E")
        await shown.until_shown("the job is not a trial of a search")


@journey
async def test_a_search_is_opened_by_its_name_and_an_unknown_one_is_named(home: Home, search: str) -> None:
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("digits")
        await shown.press("colon")
        await shown.type("search nowhere")
        await shown.press("enter")
        await shown.until_shown("there is no experiment 'nowhere'")
        await shown.press("colon")
        await shown.type("search digits")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, SearchScreen))


@journey
async def test_all_parts_stand_side_by_side_where_there_is_room(home: Home, search: str) -> None:
    async with opened(home, (200, 60)) as shown:
        await open_page(shown)
        await shown.until_shown("trial  state", "rungs 1, 3, 9", "epoch 1", "val_loss over lr")
        await shown.press("3", "j")
        await shown.until_shown("val_loss over optimizer.kind", "trial  state")


def test_rungs_are_counted_by_the_units_that_a_trial_has_reached(home: Home, search: str) -> None:
    with Store.open(home) as store:
        found = standing(store, search)

    assert found.rungs == (1, 3, 9)
    assert [one.rung for one in found.trials[:3]] == [2, 2, 3]
    assert (found.ended, found.expected_trials) == (10, 16)
    assert found.params == ("lr", "optimizer.kind")  # the momentum is that of all


def test_what_is_new_alone_is_read_again(home: Home, search: str) -> None:
    reader = SearchReader(search)
    with Store.open(home) as store:
        first = reader(store)
        assert reader(store) is first
        reported = {"do": "report", "trial": "trial-11", "point": 4, "units": 4, "metrics": {}}
        record_event(store, search, {**reported, "value": None})
        second = reader(store)
        anew = standing(store, search)

    assert first is not None
    assert second is not None
    assert second.curves[11].units == (1, 2, 3, 4)
    assert math.isnan(second.curves[11].values[-1])
    assert first.curves[11].units == (1, 2, 3)
    assert second.curves.keys() == anew.curves.keys()
    assert second.curves[12] == anew.curves[12]


def test_the_end_is_expected_at_the_rate_so_far_without_the_pauses(home: Home, search: str) -> None:
    second = seeding.SECOND_US
    with Store.open(home) as store:
        before = standing(store, search)
        last = seeding.NOW_US
        record_event(store, search, {"do": "pause", "state": "PAUSED", "time": last})
        assert standing(store, search).ends_us is None
        record_event(store, search, {"do": "resume", "state": "RUNNING", "time": last + 3600 * second})
        after = standing(store, search)

    assert before.ends_us is not None
    assert after.ends_us is not None
    assert before.ends_us > last - 60 * second
    assert after.ends_us - before.ends_us == pytest.approx(3600 * second, abs=60 * second)


def test_a_search_that_is_continued_expects_the_trials_of_its_new_limits(home: Home, search: str) -> None:
    with Store.open(home) as store:
        read = SearchReader(search)
        before = read(store)
        document = read_experiment_file(home, search)["spec"]["search"]
        longer = {**document, "max_trials": document["max_trials"] + 5}
        record_event(
            store, search, {"do": "continue", "who": "a", "state": "RUNNING", "reason": "", "search": longer}
        )
        after, anew = read(store), SearchReader(search)(store)

    assert before is not None and after is not None and anew is not None
    assert after.expected_trials == anew.expected_trials == before.expected_trials + 5


def test_of_many_trials_some_are_drawn_behind_those_that_are_lit(home: Home) -> None:
    with Store.open(home) as store:
        found = standing(store, seeding.search(store, 300, epochs=81, has_jobs=False))

    chart = curves_chart(found, 7)

    assert chart.name == "val_loss of 152 of 300 trials"
    assert found.best is not None
    assert [one.label.partition(":")[0] for one in chart.curves[:3]] == [
        f"trial {found.best.row.number}",
        "trial 7",
        "",
    ]
    assert max(len(one.x) for one in chart.curves[2:]) == 16
    assert {one.x[-1] for one in chart.curves[2:]} == {27, 81}  # each is drawn to its end
