"""The page of a search: its trials in order, their curves and a scatter, and what is done about the search."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from screens.charts.canvas import Canvas
from screens.charts.curve import OTHER
from screens.jobs.job_screen import JobScreen
from screens.jobs.search_pages import (
    BEST,
    CHOSEN,
    curves_chart,
    importance_lines,
    importance_width,
    in_order,
    parallel_page,
    ranked,
    scatter_values,
)
from screens.jobs.search_screen import SearchScreen
from screens.jobs.table_screen import JobsScreen
from screens.launch.form_screen import LaunchScreen
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, journey, opened
from tests.support.waiting import until
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.services.inspect.search_standing import SearchReader, SearchStanding, TriedRange
from workbench.spec import spec_to_json
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.store.queries.experiments import (
    archived_experiments,
    experiment,
    experiments,
    read_experiment_file,
)
from workbench.store.updates.experiments import insert_experiment, new_experiment_id, record_event


@pytest.fixture
def search(home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home with a search, which was left on the list of jobs."""
    # No controller takes up its trials: they run only on paper.
    instead_of_controller(monkeypatch, lambda home: None)
    with Store.open(home) as store:
        found = seeding.search(store)
        seeding.remember_runs(store)
    return found


MANIFEST = """\
name: steps
framework: {name: custom, command: "python train.py --x ${params.x}"}
search: {method: random, metric: loss, max_trials: 3, params: {x: {uniform: [0, 1]}}}
"""


@pytest.fixture
def over(home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home with a random search that is over: of its three trials one has failed."""
    instead_of_controller(monkeypatch, lambda home: None)
    loaded = load_text(MANIFEST, "steps.yml", environ={})
    place = asdict(TargetRef("local", "local", "process"))
    document = {
        "seed": 7, "who": "ada@box", "place": place, "spec": spec_to_json(loaded.spec), "manifest_text": MANIFEST,
        "origins": {}, "code_hash": "", "recorded": {}, "places": [],
    }  # fmt: skip
    with Store.open(home) as store:
        found = insert_experiment(store, new_experiment_id(), document).id
        for number, how in enumerate(("completed", "completed", "failed"), 1):
            trial = {
                "trial": f"trial-{number}",
                "number": number,
                "job": seeding.job_id(number),
                "seed": number,
            }
            create = {"do": "create", **trial, "hparams": {"x": number / 10}}
            record_event(store, found, {"do": "begin", "operations": [create]})
            record_event(store, found, {"do": "end", "trial": f"trial-{number}", "how": how})
        record_event(store, found, {"do": "over", "state": "COMPLETED"})
        seeding.remember_runs(store)
    return found


async def open_over(shown: Shown) -> SearchScreen:
    """Open the search that is over by its name."""
    await shown.until_shown("No jobs yet")
    await shown.press("colon")
    await shown.type("search steps")
    await shown.press("enter")
    await shown.until_shown("completed", "3 of 3 trials")
    assert isinstance(shown.app.screen, SearchScreen)
    return shown.app.screen


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
        # Where the first look took long the next one may come later.
        after = until(lambda: changed if (changed := read(store)) is not before else None)
        anew = SearchReader(search)(store)

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


# Which hyper-parameters matter


@journey
async def test_hyper_parameters_are_listed_by_how_much_they_explain_and_drawn_in_that_order(
    home: Home, search: str
) -> None:
    async with opened(home) as shown:
        await open_page(shown)
        await shown.press("3")
        await shown.until_shown("importance", "▸lr", "val_loss over lr")
        lines = shown.text().split("\n")
        rows = [line for line in lines if "%" in line]
        assert [line.split()[0].lstrip("▸") for line in rows] == ["lr", "optimizer.kind"]
        await shown.press("a")
        await shown.until_shown("▸optimizer.kind", "val_loss over optimizer.kind")


def test_importance_waits_for_ten_trials_with_a_value(home: Home) -> None:
    with Store.open(home) as store:
        found = standing(store, seeding.search(store, 4, has_jobs=False))

    lines = ["".join(shown for shown, *_ in parts) for parts in importance_lines(ranked(found), "lr", 24)]

    assert lines == [" importance", " needs 10 trials,", " 4 have a value"]
    assert in_order(found, ranked(found)) == ("lr", "optimizer.kind")


def test_the_list_of_what_matters_is_aligned_in_its_width(home: Home) -> None:
    with Store.open(home) as store:
        found = standing(store, seeding.search(store, 30, has_jobs=False))
    ranking = ranked(found)

    lines = importance_lines(ranking, "lr", importance_width(ranking))

    widths = [sum(len(shown) for shown, *_ in parts) for parts in lines[1:]]
    assert set(widths) == {importance_width(ranking) - 1}


# Parallel coordinates


@journey
async def test_trials_are_drawn_across_all_hyper_parameters_and_the_cursor_goes_through_them(
    home: Home, search: str
) -> None:
    async with opened(home) as shown:
        await open_page(shown)
        await shown.press("4")
        await shown.until_shown("val_loss  12 trials, the best 3 lit", "▲0.01", "▲adam")
        await shown.press("j")
        await shown.until_shown("▲0.02154", "▲sgd", "▲0.6675", "trial 1  ")


@journey
async def test_parallel_coordinates_stand_where_the_scatter_does_on_a_wide_screen(
    home: Home, search: str
) -> None:
    async with opened(home, (200, 60)) as shown:
        await open_page(shown)
        await shown.until_shown("val_loss over lr")
        await shown.press("4")
        await shown.until_shown("trials, the best 3 lit", "trial  state", "epoch 1")
        assert "val_loss over lr" not in shown.text()


def with_params(found: SearchStanding, names: int) -> SearchStanding:
    """Return a search whose trials differ in so many hyper-parameters."""
    trials = tuple(
        replace(one, hparams={f"p{at}": one.row.number + at for at in range(names)}) for one in found.trials
    )
    return replace(found, trials=trials, params=tuple(f"p{at}" for at in range(names)), ranges={})


@pytest.fixture
def many(home: Home) -> SearchStanding:
    with Store.open(home) as store:
        return standing(store, seeding.search(store, 40, has_jobs=False))


def drawn(found: SearchStanding, first: int = 0, *, width: int = 80, **options: Any) -> list[str]:
    """Return the lines of the plot of a search."""
    plot = parallel_page(found, options.get("chosen"), logarithmic=False).plot
    assert plot is not None
    rows = plot.draw(width, 18, first, marked=options.get("marked", False))
    return ["".join(shown for shown, _ in row).rstrip() for row in rows]


def test_axes_that_have_no_room_come_into_view_by_turns_and_the_metric_stays(many: SearchStanding) -> None:
    found = with_params(many, 9)

    assert drawn(found)[0].split() == ["p0", "p1", "p2", "p3", "p4", "val_loss"]
    assert drawn(found, 4)[0].split() == ["p4", "p5", "p6", "p7", "p8", "val_loss"]
    assert len(drawn(found, width=130)[0].split()) == 10


@journey
async def test_keys_scroll_the_axes_as_far_as_there_are_more(home: Home) -> None:
    with Store.open(home) as store:
        found = seeding.search(store, 12, has_jobs=False)
        seeding.remember_runs(store)
        for number in range(13, 17):
            wide = {f"p{at}": number + at for at in range(8)}
            create = {
                "do": "create", "trial": f"trial-{number}", "number": number, "job": seeding.job_id(number),
                "seed": 1, "hparams": wide,
            }  # fmt: skip
            record_event(store, found, {"do": "begin", "operations": [create]})
    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("colon")
        await shown.type("search digits")
        await shown.press("enter")
        await shown.until_shown("best 0.1161")
        await shown.press("4")
        await shown.until_shown("axes 1-5 of 11", "4 without a value", "more axes")
        await shown.press("l", "right")
        await shown.until_shown("axes 3-7 of 11")
        await shown.press("l", "l", "l", "l", "l", "l")
        await shown.until_shown("axes 7-11 of 11")
        await shown.press("h", "left", "h", "left")
        await shown.until_shown("axes 3-7 of 11")


def test_an_axis_is_as_its_values_are_drawn(many: SearchStanding) -> None:
    plot = parallel_page(many, None, logarithmic=False).plot

    assert plot is not None
    rate, kind, metric = plot.axes
    assert (rate.axis.logarithmic, rate.axis.low, rate.axis.high) == (True, 1e-4, 1.0)
    assert kind.categories == ("adam", "sgd")
    assert (metric.title, metric.axis.logarithmic) == ("val_loss", False)


def test_a_choice_of_numbers_is_one_of_categories(many: SearchStanding) -> None:
    found = replace(with_params(many, 1), ranges={"p0": TriedRange("choice", (*range(1, 41), 64))})

    plot = parallel_page(found, None, logarithmic=False).plot

    assert plot is not None
    assert plot.axes[0].categories[-2:] == ("40", "64")


def test_trials_without_a_value_are_left_out_and_counted_but_for_that_under_the_cursor(
    many: SearchStanding,
) -> None:
    without = tuple(
        replace(one, row=replace(one.row, best=None if one.row.number == 1 else math.nan))
        if one.row.number <= 3
        else one
        for one in many.trials
    )
    found = replace(many, trials=without)

    others, chosen = (parallel_page(found, number, logarithmic=False) for number in (9, 1))

    assert "37 trials" in others.facts
    assert "3 without a value" in others.facts
    assert others.plot is not None and chosen.plot is not None
    assert len(others.plot.lines) == 37
    assert chosen.plot.lines[-1].values[-1] is None
    assert chosen.plot.lines[-1].texts[-1] == "nan"


def test_the_axis_of_a_metric_that_is_infinite_in_all_trials_is_drawn_empty(many: SearchStanding) -> None:
    trials = tuple(replace(one, row=replace(one.row, best=math.inf)) for one in many.trials)

    page = parallel_page(replace(many, trials=trials), None, logarithmic=True)

    assert page.facts.startswith("0 trials")
    assert page.plot is not None and page.plot.lines == ()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 10**400])
@pytest.mark.parametrize("is_tried", [True, False])
def test_a_number_that_no_axis_can_show_breaks_the_line_of_its_trial_alone(
    many: SearchStanding, odd: float, is_tried: bool
) -> None:
    found = with_params(many, 1)
    first, *others = found.trials
    ranges = {"p0": TriedRange("loguniform", (1, 40))} if is_tried else {}
    found = replace(found, trials=(replace(first, hparams={"p0": odd}), *others), ranges=ranges)

    plot = parallel_page(found, first.row.number, logarithmic=False).plot

    assert plot is not None
    assert plot.lines[-1].values[0] is None
    assert (plot.axes[0].axis.logarithmic, plot.axes[0].axis.high) == (True, 40.0)
    assert plot.draw(80, 18, 0, marked=False)


@pytest.mark.parametrize("odd", [math.nan, math.inf, 10**400])
def test_a_number_that_no_axis_can_show_is_left_out_of_the_scatter(many: SearchStanding, odd: float) -> None:
    found = with_params(many, 1)
    first, *others = found.trials
    found = replace(found, trials=(replace(first, hparams={"p0": odd}), *others))

    page = scatter_values(found, None, "p0", logarithmic=False)

    assert "1 without value left out" in page.facts
    assert (page.x.logarithmic, page.x.high) == (True, 40.0)


@pytest.mark.parametrize("width", [0, 1, 2, 5, 12, 20])
def test_axes_are_drawn_in_any_width(many: SearchStanding, width: int) -> None:
    assert bool(drawn(many, width=width, chosen=3)) == (width > 0)


def test_the_best_lie_over_the_others_and_the_one_under_the_cursor_over_all(many: SearchStanding) -> None:
    plot = parallel_page(many, 7, logarithmic=False).plot

    assert plot is not None
    colours = [one.colour for one in plot.lines]
    assert colours == sorted(colours, key=(OTHER, BEST, CHOSEN).index)
    assert (colours.count(BEST), colours.count(CHOSEN)) == (10, 1)
    best, others = (
        [value for one in plot.lines if one.colour == colour and (value := one.values[-1]) is not None]
        for colour in (BEST, OTHER)
    )
    assert max(best) < min(others)


def test_what_lies_in_front_hides_the_cells_behind_it() -> None:
    behind, front = Canvas(2, 1), Canvas(2, 1)
    for column in range(4):
        behind.run(column, 0, 3, OTHER)
    front.run(0, 3, 3, BEST)

    behind.lay_over(front)

    assert behind.rows_of_text() == [[("⡀", BEST), ("⣿", OTHER)]]


def test_without_colours_the_others_are_dotted(many: SearchStanding) -> None:
    def dots(lines: list[str]) -> int:
        return sum((ord(sign) - 0x2800).bit_count() for line in lines for sign in line if ord(sign) >= 0x2800)

    coloured, marked = drawn(many), drawn(many, marked=True)

    assert dots(marked) < dots(coloured) / 1.5


def test_of_very_many_trials_some_are_drawn_and_it_says_how_many(home: Home) -> None:
    with Store.open(home) as store:
        found = standing(store, seeding.search(store, 1000, has_jobs=False))
    best = found.best
    assert best is not None

    page = parallel_page(found, None, logarithmic=False)

    assert "1,000 trials, the best 250 lit · 200 drawn" in page.facts
    assert page.plot is not None
    assert any(one.values[-1] == best.row.best for one in page.plot.lines)


# Steering a search that is over


@journey
async def test_a_search_that_is_over_is_archived_and_put_back(home: Home, over: str) -> None:
    def is_archived() -> bool:
        with Store.open(home) as store:
            return over in archived_experiments(store)

    async with opened(home) as shown:
        page = await open_over(shown)
        assert not page.can_do("search.kill")
        await shown.press("A")
        await shown.until(is_archived)
        await shown.until_shown("· archived")
        await shown.press("A")
        await shown.until(lambda: not is_archived())


@journey
async def test_a_search_that_is_over_goes_on_with_other_limits(home: Home, over: str) -> None:
    async with opened(home) as shown:
        await open_over(shown)
        await shown.press("c")
        await shown.until_shown("continue steps with", "search.max_trials=3")
        await shown.press("backspace")
        await shown.type("5")
        await shown.press("enter")
        await shown.until_shown("steps goes on: 1 trial", "of 5 trials")
        assert state(home, over) == "RUNNING"


@journey
async def test_a_fork_begins_with_another_seed_and_is_opened(home: Home, over: str) -> None:
    async with opened(home) as shown:
        page = await open_over(shown)
        await shown.press("F")
        await shown.until_shown("fork steps with", "seed=8")
        await shown.type(" name=wider")
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, SearchScreen) and shown.app.screen is not page)
        await shown.until_shown("search › wider", "no trial has begun")
    with Store.open(home) as store:
        names = [row.name for row in experiments(store)]
        assert sorted(names) == ["steps", "wider"]


@journey
async def test_what_no_fork_may_change_is_refused(home: Home, over: str) -> None:
    async with opened(home) as shown:
        await open_over(shown)
        await shown.press("F")
        await shown.until_shown("fork steps with")
        await shown.type(" gpus=1")
        await shown.press("enter")
        await shown.until_shown("a fork can have another search, name and seed")


@journey
async def test_a_search_that_runs_is_neither_continued_nor_archived(home: Home, search: str) -> None:
    async with opened(home) as shown:
        page = await open_page(shown)
        assert not any(page.can_do(f"search.{verb}") for verb in ("continue", "archive"))
        await shown.press("A")
        await shown.until_shown("the search is RUNNING, and not over")
        assert shown.app.screen is page


# A search around a job


@journey
async def test_a_search_is_begun_from_a_job_in_the_form_with_what_it_would_try(home: Home) -> None:
    text = (
        "name: digits\nparams: {lr: 0.01}\nframework: {name: custom, command: 'python a.py ${params.lr}'}\n"
    )
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, "digits", params={"lr": 0.01}, code_hash="", manifest=text)
        seeding.report(store, row, {"val_loss": [1.0] * 12}, group="")
        seeding.remember_runs(store)
    async with opened(home, (160, 50)) as shown:
        await shown.until_shown("digits")
        await shown.press("O")
        await shown.until(lambda: isinstance(shown.app.screen, LaunchScreen))
        await shown.until_shown(
            "as a search", "digits: asha, minimize val_loss", "4 to step 12", "First trials", "fabric run"
        )


@journey
async def test_a_job_without_params_begins_no_search_and_it_says_what_to_write(home: Home) -> None:
    with Store.open(home) as store:
        seeding.add_job(store, 1, "digits", params={})
        seeding.remember_runs(store)
    async with opened(home, (160, 50)) as shown:
        await shown.until_shown("digits")
        await shown.press("O")
        await shown.until_shown("has no params", "write params: {lr: 0.1}")


@journey
async def test_readonly_begins_no_search(home: Home) -> None:
    with Store.open(home) as store:
        seeding.add_job(store, 1, "digits")
        seeding.remember_runs(store)
    async with opened(home, readonly=True) as shown:
        await shown.until_shown("digits")
        await shown.press("O")
        await shown.until_shown("read-only")
