"""Pages that have nothing to show: each says what there is not and what to do, and offers only keys of use."""

from __future__ import annotations

from functools import partial

import pytest

from screens.jobs.compare_screen import CompareScreen
from screens.launch.form_screen import LaunchScreen
from screens.style.notices import WIDEST, EmptyNotice
from screens.widgets.bars import KeyBar
from screens.widgets.tabs import TABS
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow

WAITS = "the job has not begun; d shows what it waits for"
STATES = {
    "queued": (),
    "running": seeding.RUN_UP,
    "ended": (*seeding.RUN_UP, State.STORING, State.COMPLETED),
    "failed": (*seeding.RUN_UP, State.STORING, State.FAILED),
}
NOTICES = {
    "logs": {
        "queued": ("waiting for the first output, queued for", "waits for the controller"),
        "running": (
            "waiting for the first output, processing for",
            "what the job prints appears here at once",
        ),
        "ended": ("no output", "the job printed nothing; d shows how it ended"),
        "failed": ("no output", "the job printed nothing; d shows how it ended"),
    },
    "charts": {
        "queued": ("no metrics yet", WAITS),
        "running": ("no metrics yet", "they appear when the job prints or reports numbers; l shows its log"),
        "ended": ("no metrics", "numbers that a job prints or reports are charted; l shows what it printed"),
        "failed": ("no metrics", "numbers that a job prints or reports are charted; l shows what it printed"),
    },
    "usage": {
        "queued": ("no usage samples yet", WAITS),
        "running": ("no usage samples yet", "one is taken every few seconds while the job runs"),
        "ended": ("no usage samples", "none were taken; d shows how the job ended"),
        "failed": ("no usage samples", "none were taken; d shows how the job ended"),
    },
    "files": {
        "queued": ("no results yet", WAITS),
        "running": ("no results yet", "what the job writes to $RESULT_DIR and $CHECKPOINT_DIR appears here"),
        "ended": ("no results", "the job wrote nothing to $RESULT_DIR or $CHECKPOINT_DIR"),
        "failed": ("no results", "the job wrote nothing to $RESULT_DIR or $CHECKPOINT_DIR"),
    },
}
"""Of each tab that is empty: what there is not, and what to do."""
IDLE_KEYS = {
    "logs": {"log.follow", "log.find", "log.filter", "log.error", "log.wrap", "log.times"},
    "charts": {"chart.open", "chart.log", "chart.smooth", "chart.axis", "chart.inspect", "chart.filter"},
    "usage": {"usage.window"},
    "files": {"files.open"},
}
"""Of each tab that is empty: the keys that would do nothing."""
STEERED = {
    "queued": {"job.halt", "job.kill"},
    "running": {"job.halt", "job.kill"},
    "ended": set[str](),
    "failed": {"job.resume"},
}
"""What of halt, kill and resume makes sense."""


def offered(shown: Shown) -> set[str]:
    """Return the actions of the key bar, whether or not they fit."""
    from screens.core import actions

    bar = shown.app.screen.query_one(KeyBar)
    return {action.id for action in actions.footer(bar.pane)} - bar.impossible


def is_open(shown: Shown, tab: str) -> bool:
    """Say whether a tab is open."""
    return shown.app.screen.query_one(KeyBar).pane == tab


def are_left_out(shown: Shown, keys: set[str]) -> bool:
    """Say whether none of these actions is offered."""
    return not offered(shown) & keys


def is_centred(shown: Shown, part: str) -> bool:
    """Say whether the line with a text stands in the middle of the screen's width."""
    line = next(line for line in shown.text().splitlines() if part in line)
    left, right = len(line) - len(line.lstrip()), shown.app.size.width - len(line)
    return abs(left - right) <= 2


def make_job(home: Home, state: str, number: int = 1) -> JobRow:
    """Make a job that has come so far, and has printed, reported, used and written nothing."""
    with Store.open(home) as store:
        row = seeding.add_job(store, number, f"quiet-{number}")
        if STATES[state]:
            why = Reason("the command ended with 1", "C201") if state == "failed" else None
            row = seeding.go(store, row, *STATES[state], reason=why)
        seeding.remember_runs(store)
    return row


@pytest.mark.parametrize("state", STATES)
@journey
async def test_every_page_of_a_job_without_anything_says_what_to_do(home: Home, state: str) -> None:
    row = make_job(home, state)
    async with opened(home, (120, 40), job=row.id) as shown:
        await shown.until_shown("overview")
        for number, tab in enumerate(TABS, start=1):
            await shown.press(str(number))
            await shown.until(partial(is_open, shown, tab), tab)
            if tab in NOTICES:
                what, hint = NOTICES[tab][state]
                await shown.until_shown(what, hint)
                assert is_centred(shown, what) and is_centred(shown, hint), shown.text()
            await shown.until(partial(are_left_out, shown, IDLE_KEYS.get(tab, set())), tab)
            steering = {"job.halt", "job.kill", "job.resume"}
            assert offered(shown) & steering == STEERED[state], (tab, offered(shown))


@journey
async def test_keys_of_a_page_come_with_what_they_are_for(home: Home) -> None:
    row = make_job(home, "running")
    async with opened(home, (120, 40), job=row.id) as shown:
        await shown.press("2")
        await shown.until_shown("waiting for the first output")
        seeding.journal(home, row).write(b"epoch 1\n")
        with Store.open(home) as store:
            seeding.report(store, row, {"loss": [2.0, 1.0]})
            seeding.sample(store, row, [(1, 50.0, 1 << 30), (3, 80.0, 1 << 30)])
        await shown.until_shown("epoch 1")
        await shown.until(lambda: IDLE_KEYS["logs"] <= offered(shown))
        await shown.press("3")
        await shown.until(lambda: IDLE_KEYS["charts"] <= offered(shown))
        await shown.press("4")
        await shown.until(lambda: IDLE_KEYS["usage"] <= offered(shown))


@journey
async def test_an_empty_home_names_the_key_for_the_first_job(home: Home) -> None:
    with Store.open(home) as store:
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("No jobs yet", "n opens a form")
        assert is_centred(shown, "No jobs yet")
        await shown.until(lambda: "app.launch" in offered(shown))
        left = {"app.launch", "app.help", "app.palette", "app.quit"}
        assert offered(shown) == left, offered(shown)
        await shown.press("P")
        await shown.until_shown("local", "answers in")
        await shown.until(lambda: "places.login" not in offered(shown))
        assert "places.test" in offered(shown)
        await shown.press("escape", "n")
        await shown.until(lambda: isinstance(shown.app.screen, LaunchScreen))
        await shown.until_shown("Not ready", "give a command")
        assert "form.start" not in offered(shown) and "form.edit" in offered(shown)


@journey
async def test_a_filter_that_nothing_fits_names_the_key_that_takes_it_away(home: Home) -> None:
    make_job(home, "running")
    async with opened(home) as shown:
        await shown.until_shown("quiet-1")
        await shown.press("slash")
        await shown.type("name:absent")
        await shown.press("enter")
        await shown.until_shown("no job matches", "esc shows all")
        await shown.until(lambda: "app.back" in offered(shown) and "runs.open" not in offered(shown))


@journey
async def test_a_comparison_of_jobs_without_anything_says_what_to_do(home: Home) -> None:
    for number in (1, 2):
        make_job(home, "ended", number)
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("quiet-1", "quiet-2")
        await shown.press("space", "space", "c")
        await shown.until(lambda: isinstance(shown.app.screen, CompareScreen))
        await shown.until_shown("no metrics in any of these jobs", "are compared as soon as it does")
        await shown.until(lambda: not any(each.startswith("chart.") for each in offered(shown)))
        await shown.press("2")
        await shown.until_shown("no metrics in any of these jobs", "Jobs")
        assert not offered(shown) & {"compare.metric", "compare.value", "compare.log", "compare.parameter"}
        await shown.press("3")
        await shown.until_shown("no metrics in any of these jobs")
        assert not offered(shown) & {"compare.metric", "compare.value", "compare.log", "compare.parameter"}
        await shown.press("5")
        await shown.until_shown("the code is the same", "] shows in which settings")
        assert is_centred(shown, "the code is the same")


def test_a_notice_is_wrapped_and_cannot_drive_the_terminal() -> None:
    lines = EmptyNotice("waits: \x1b[2J" + "word " * 40, "x" * 200).lines(60)

    assert all(len(line) <= 58 and "\x1b" not in line for line, _ in lines)
    assert [role for _, role in lines].index("dim") >= 3
    assert max(len(line) for line, _ in EmptyNotice("word " * 99).lines(500)) <= WIDEST
