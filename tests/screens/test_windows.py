"""Jumping by letters, what is done in the background, and errors that are shown in a window."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

import pytest
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input

import screens
from screens.app.app import FabricApp
from screens.app.help import HelpWindow
from screens.app.palette import Palette
from screens.base.base import BaseScreen
from screens.base.dialog import Dialog
from screens.base.dialogs import (
    AskLine,
    Choice,
    Choose,
    Confirm,
    Jump,
    Pick,
    Problem,
    Question,
    TaskList,
    TextView,
)
from screens.base.login import TypeAnswer
from screens.core.app_protocol import JumpTarget
from screens.jobs.table_screen import JobsScreen
from screens.workers.background import TaskReport, percentage
from tests.screens.support import instead_of_controller, journey, opened
from tests.support.waiting import until_async
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
    assert [percentage(text) for text in ("copied 43 %", "7%", "12.5 % of it", "no", "400 %")] == [
        0.43, 0.07, 0.12, None, 1.0,
    ]  # fmt: skip


@journey
async def test_what_a_controller_refuses_is_shown_in_a_window(
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
async def test_what_was_confirmed_before_ctrl_q_is_done_though_the_screen_behind_is_busy(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.app.app_actions.LEAVE_SECONDS", 60.0)
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide", "3 jobs")
        app, table, goes_on = shown.app, shown.app.screen, asyncio.Event()
        confirmed: list[bool | None] = []
        done_at_exit: list[list[bool | None]] = []
        quit_anywhere = app.action_quit_anywhere

        def ask() -> None:
            question = Question("Halt it?", ("digits",), "It can be resumed.", "halt")
            app.push_screen(Confirm(question), confirmed.append)

        def quit_while_busy() -> None:
            quit_anywhere()
            goes_on.set()

        monkeypatch.setattr(app, "exit", lambda *_: done_at_exit.append(list(confirmed)))
        monkeypatch.setattr(app, "action_quit_anywhere", quit_while_busy)
        table.call_later(ask)
        await shown.until(lambda: isinstance(app.screen, Confirm))
        table.call_later(goes_on.wait)

        for key in ("y", "ctrl+q"):
            app.post_message(Key(key, None))
        await until_async(_set(goes_on), "ctrl+q to be taken", pause=asyncio.sleep)

        await shown.until(lambda: done_at_exit)
        assert done_at_exit[0] == [True]


def _set(event: asyncio.Event) -> Callable[[], Awaitable[bool]]:
    async def is_set() -> bool:
        return event.is_set()

    return is_set


Window = ModalScreen[Any]
WINDOWS: Final[tuple[tuple[type[Window], Callable[[FabricApp], Window]], ...]] = (
    (Confirm, lambda app: Confirm(Question("Halt it?", ("digits",), "It can be resumed.", "halt"))),
    (Confirm, lambda app: Confirm(Question("Kill 2 jobs?", ("a", "b"), "They end now.", "kill", "digits"))),
    (Choose, lambda app: Choose("Copy", [Choice("y", "name", "a")])),
    (TextView, lambda app: TextView("A line", Content("of a log"))),
    (AskLine, lambda app: AskLine("tags")),
    (AskLine, lambda app: AskLine("tags", "best", ["best again"])),
    (Pick, lambda app: Pick("Start from", ["manifest.yml", "a command"])),
    (Problem, lambda app: Problem(CannotWrite("the disk is full", hint="make room"))),
    (TaskList, lambda app: TaskList(app.background)),
    (Jump, lambda app: Jump([JumpTarget(3, 3, lambda: None)])),
    (TypeAnswer, lambda app: TypeAnswer("gpubox", "Password:", shown=False)),
    (TypeAnswer, lambda app: TypeAnswer("gpubox", "Code:", shown=True, refused=True)),
    (HelpWindow, lambda app: HelpWindow("runs", app.key_map, readonly=False)),
    (Palette, lambda app: Palette(cast("BaseScreen", app.screen))),
)
"""Every kind of window, and how it is made."""


def _below(kind: type[Window]) -> Iterator[type[Window]]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def test_every_kind_of_window_is_tried() -> None:
    for module in pkgutil.walk_packages(screens.__path__, "screens."):
        importlib.import_module(module.name)
    kinds = {kind for kind in _below(ModalScreen) if kind.__module__.startswith("screens.")}

    assert kinds - {Dialog} == {kind for kind, _ in WINDOWS}


@journey
async def test_every_window_is_left_by_the_keys_that_leave(
    three: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the app would end is noted here; that it ends is tried above."""
    left: list[type[object]] = []
    monkeypatch.setattr(FabricApp, "exit", lambda app, *_: left.append(type(app.screen)))
    monkeypatch.setattr("screens.app.app_actions.LEAVE_SECONDS", 600.0)
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide", "3 jobs")
        for at, (kind, make) in enumerate(WINDOWS, 1):
            window = make(shown.app)
            assert type(window) is kind
            shown.app.push_screen(window)
            await shown.until(lambda: shown.app.screen is window and window.is_running)  # noqa: B023 - waited for here

            await shown.press("ctrl+q")
            await shown.until(lambda: len(left) == at, kind.__name__)  # noqa: B023
            await shown.press("escape")
            await shown.until(lambda: isinstance(shown.app.screen, JobsScreen), kind.__name__)
        assert not shown.app._exit

    assert left == [kind for kind, _ in WINDOWS]


@pytest.mark.parametrize("keys", [("slash",), ("C",), ("n", "enter")])
@journey
async def test_ctrl_q_leaves_from_a_line_that_is_typed_into(three: Home, keys: tuple[str, ...]) -> None:
    async with opened(three, (120, 40)) as shown:
        await shown.until_shown("mnist-wide", "3 jobs")
        await shown.press(*keys)
        await shown.until(lambda: isinstance(shown.app.focused, Input))

        await shown.press("a", "ctrl+q")

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
