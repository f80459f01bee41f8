"""The tabs of a job's screen: each is one class in one module, and the screen knows none of them by name."""

from __future__ import annotations

from typing import ClassVar

import pytest
from textual.content import Content

from screens.base.job_tab import JobPage, JobTab
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.jobs import job_screen
from screens.jobs.job_screen import JobScreen
from screens.style.notices import EmptyNotice
from screens.widgets.tabs import TABS
from screens.widgets.text_page import TextPage
from screens.workers.reader import QueryAnswer
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted


class NamesTab(TextPage, JobTab):
    """What is needed for one more tab: its name, its keys, what it reads, and what it shows."""

    TAB: ClassVar = "names"
    PANE: ClassVar = "events"
    BINDINGS: ClassVar = [("w", "shout", "shout"), *actions.bindings("events")]

    ends = "."
    names: tuple[str, ...] = ()

    def opened(self) -> None:
        fabric_app(self).reader.watch(self, "names", _names)

    def rest(self) -> None:
        fabric_app(self).reader.forget(self)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        self.names = answer.value

    def show_job(self, page: JobPage, now_us: int) -> None:
        self.show(
            Content(f"{page.row.name} is {page.row.state.lower()} of {', '.join(self.names)}{self.ends}")
        )

    def job_deleted(self, notice: EmptyNotice) -> None:
        self.say(notice)

    def action_shout(self) -> None:
        self.ends = "!"


def _names(store: Store) -> tuple[str, ...]:
    return tuple(name for (name,) in store.rows("SELECT name FROM jobs ORDER BY seq"))


@pytest.fixture
def job(home: Home, monkeypatch: pytest.MonkeyPatch) -> JobRow:
    """A running job, whose screen has one tab more."""
    monkeypatch.setattr(job_screen, "TABS", (*job_screen.TABS, NamesTab))
    with Store.open(home) as store:
        return seeding.go(store, seeding.add_job(store, 1, "digits"), *seeding.RUN_UP)


def watched(shown: Shown) -> set[str]:
    """Return the widgets for which something is read, by the names of their classes."""
    return {type(watch.receiver).__name__ for watch in shown.app.reader._watches.values()}


def screen_of(shown: Shown) -> JobScreen:
    screen = shown.app.screen
    assert isinstance(screen, JobScreen)
    return screen


def test_the_table_of_actions_has_the_tabs_in_their_order() -> None:
    assert tuple(tab.TAB for tab in job_screen.TABS) == TABS


@journey
async def test_a_tab_is_one_class_and_one_line(home: Home, job: JobRow) -> None:
    async with opened(home, (120, 40), job=job.id) as shown:
        await shown.until_shown("7 events", "8 names")
        await shown.press("left_square_bracket")  # from the first to the last
        await shown.until_shown("digits is processing of digits.")


@journey
async def test_a_tab_has_its_own_keys_and_those_of_its_pane(home: Home, job: JobRow) -> None:
    async with opened(home, (120, 40), job=job.id) as shown:
        await shown.until_shown("8 names")
        await shown.press("left_square_bracket", "w")
        await shown.until_shown("of digits!")
        await shown.press("x")
        await shown.until_shown("Halt digits?")


@journey
async def test_a_tab_gets_every_change_of_the_job_while_it_is_in_view(home: Home, job: JobRow) -> None:
    async with opened(home, (120, 40), job=job.id) as shown:
        await shown.until_shown("8 names")
        await shown.press("left_square_bracket")
        await shown.until_shown("digits is processing")
        with Store.open(home) as store:
            seeding.go(store, job, State.FAILED, exit_code=1)
        await shown.until_shown("digits is failed")
        with Store.open(home) as store:
            mark_deleted(store, job.id)
        await shown.until_shown("digits was deleted")


@journey
async def test_a_tab_reads_nothing_out_of_view(home: Home, job: JobRow) -> None:
    async with opened(home, (120, 40), job=job.id) as shown:
        await shown.until_shown("8 names")
        assert "NamesTab" not in watched(shown)
        await shown.press("left_square_bracket")
        await shown.until(lambda: watched(shown) & {"NamesTab", "Dashboard"} == {"NamesTab"})
        await shown.press("1")
        await shown.until(lambda: watched(shown) & {"NamesTab", "Dashboard"} == {"Dashboard"})


@pytest.mark.parametrize("tab", [*TABS, NamesTab.TAB])
@journey
async def test_nothing_is_read_for_a_screen_that_was_closed(home: Home, job: JobRow, tab: str) -> None:
    with Store.open(home) as store:
        seeding.remember_runs(store)
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("digits")
        shown.app.open_job(job, tab)
        await shown.until(lambda: screen_of(shown).tab == tab and "JobScreen" in watched(shown))
        await shown.press("escape")
        await shown.until(lambda: watched(shown) == {"FabricApp", "JobTable", "Preview"})
