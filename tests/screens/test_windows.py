"""Jumping by letters, what is done in the background, and errors that are said in a window."""

from __future__ import annotations

import threading

import pytest
from textual.screen import ModalScreen

from screens.base.dialogs import Choice, Choose, Jump, Problem, TaskList
from screens.jobs.table_screen import JobsScreen
from screens.workers.background import TaskReport, percentage
from tests.screens.support import instead_of_controller, journey, opened
from workbench.errors import CannotWrite
from workbench.paths import Home


@journey
async def test_a_letter_goes_to_a_row_a_pane_or_a_tab(three: Home) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        await shown.press("ctrl+o")
        await shown.until(lambda: isinstance(shown.app.screen, Jump))
        await shown.until_shown(" a ", " s ", " d ")
        jump_targets = shown.app.screen.jump_targets  # type: ignore[attr-defined] # just asked
        assert len(jump_targets) == 5  # two panes, three rows
        row = next(key for key, target in jump_targets.items() if target.y == 5)  # the last row
        await shown.press(row)
        await shown.until_shown("epoch 59 loss")
        await shown.press("enter")
        await shown.until_shown("1 overview")
        await shown.press("ctrl+o")
        await shown.until(lambda: isinstance(shown.app.screen, Jump))
        tabs = [key for key, target in shown.app.screen.jump_targets.items() if target.y == 1]  # type: ignore[attr-defined] # as above
        await shown.press(tabs[1])
        await shown.until_shown("60 lines")
        await shown.press("ctrl+o", "escape")
        await shown.until_shown("60 lines")


@journey
async def test_a_task_says_how_far_it_is_and_how_it_went(three: Home) -> None:
    given: list[str] = []
    go_on = threading.Event()

    def work(report: TaskReport) -> str:
        report("copied 43 %")
        go_on.wait(30)
        return "there"

    def fail(report: TaskReport) -> str:
        raise CannotWrite("the disk is full", hint="make room")

    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        shown.app.background.begin("download digits", work, given.append)
        await shown.until_shown("download digits 43%")
        await shown.press("B")
        await shown.until(lambda: isinstance(shown.app.screen, TaskList))
        await shown.until_shown("Background tasks", "43%  copied 43 %")
        go_on.set()
        await shown.until(lambda: given == ["there"])
        await shown.until_shown("done")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        shown.app.background.begin("download again", fail, given.append)
        await shown.until(lambda: isinstance(shown.app.screen, Problem))
        await shown.until_shown("download again failed", "the disk is full", "make room")
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
    assert given == ["there"]


def test_a_percentage_is_found_in_words() -> None:
    assert [percentage(said) for said in ("copied 43 %", "7%", "12.5 % of it", "no", "400 %")] == [
        0.43, 0.07, 0.12, None, 1.0,
    ]  # fmt: skip


@journey
async def test_what_a_controller_refuses_is_said_in_a_window(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(home: Home) -> None:
        raise CannotWrite("the home takes no more", hint="make room")

    instead_of_controller(monkeypatch, refuse)
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide")
        await shown.press("x")
        await shown.until_shown("Halt mnist-wide?")
        await shown.press("y")
        await shown.until(lambda: isinstance(shown.app.screen, Problem))
        await shown.until_shown("halt failed", "the home takes no more", "make room")


@pytest.mark.parametrize(
    "keys", [("y",), ("question_mark",), ("x",), ("colon",), ("ctrl+p",), ("B",), ("ctrl+o",)]
)
@journey
async def test_ctrl_q_leaves_from_any_window(three: Home, keys: tuple[str, ...]) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide", "3 jobs")
        await shown.press(*keys)
        await shown.until(lambda: isinstance(shown.app.screen, ModalScreen))

        await shown.press("ctrl+q")

        await shown.until(lambda: shown.app._exit)


@journey
async def test_a_window_that_is_answered_twice_takes_the_first_answer_and_closes_nothing_else(
    three: Home,
) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide", "3 jobs")
        taken: list[Choice] = []
        shown.app.screen.choose("Copy", [Choice("y", "name", "a"), Choice("i", "id", "b")], taken.append)  # type: ignore[attr-defined] # the table
        await shown.until(lambda: isinstance(shown.app.screen, Choose))
        window = shown.app.screen
        assert isinstance(window, Choose)

        window.dismiss(window.choices[1])
        window.dismiss(window.choices[0])

        await shown.until(lambda: isinstance(shown.app.screen, JobsScreen))
        assert [choice.title for choice in taken] == ["id"]
        assert len(shown.app.screen_stack) == 2
