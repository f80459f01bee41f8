"""Drives the app in tests: presses keys, waits for conditions, reads the screen as text and compares it with a file."""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot

from screens.app.app import FabricApp
from tests.screens.seeding import NOW_US
from tests.support.waiting import LIMIT_SECONDS, until_async
from workbench.cli.framework.run_options import read_run_options
from workbench.paths import Home

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (120, 40), (200, 60))
EVERY_SECONDS = 0.02
"""The least pause between two looks."""


class Shown:
    """A running app and what is on its screen."""

    def __init__(self, app: FabricApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot
        self._glances = False
        """Whether what was on the screen at the last painting is new enough."""
        self._read = ""
        self._read_of: object = None
        self._paintings = 0
        setattr(app, "post_display_hook", self._count_painting)  # noqa: B010 - a method of Textual, meant for this

    def _count_painting(self) -> None:
        self._paintings += 1

    def text(self) -> str:
        """Return the screen, line by line, without blanks at the ends of lines."""
        painted = self.app.screen, self.app.size, self._paintings
        if not (self._glances and painted == self._read_of):
            self._read, self._read_of = self._read_screen(), painted
        return self._read

    def _read_screen(self) -> str:
        # As for a painting: they show through a window.
        visible_screen_stack.set(self.app._background_screens)
        strips = self.app.screen._compositor.render_strips(self.app.size)
        lines = [strip.text.rstrip() for strip in strips]
        path = str(self.app.home.path)
        return "\n".join(lines).replace(path, "/home/ada/.fabric".ljust(len(path), "_")) + "\n"

    async def press(self, *keys: str) -> None:
        """Press keys, and let the app take them in."""
        await self.pilot.press(*keys)

    async def type(self, words: str) -> None:
        """Type words, faster than they are shown, and let the app take them in."""
        for sign in words:
            self.app.post_message(Key(_character_to_key(sign), sign))
        await self.pilot.pause()

    async def until(
        self, condition: Callable[[], Any], what: str = "", *, seconds: float = LIMIT_SECONDS
    ) -> None:
        """Wait until something holds; fail with what is on the screen when it does not come.

        To let every widget take in what it was sent, and to read the whole screen, costs more than what most screens
        do meanwhile: that is done once the condition holds on what was painted last, and then it is asked again.
        """

        async def holds() -> Any:
            if not self._seems(condition):
                return None
            await self.pilot.pause(0)
            return condition()

        await until_async(
            holds,
            lambda: (
                f"{what or inspect.getsource(condition)}; the screen is:\n{self.text()}"
                f"\nand the threads are at:\n{_stacks()}"
            ),
            pause=asyncio.sleep,
            seconds=seconds,
            every=EVERY_SECONDS,
            despite=(Exception,),
        )

    def _seems(self, condition: Callable[[], Any]) -> bool:
        """Ask a condition about what was painted last."""
        self._glances = True
        try:
            return bool(condition())
        finally:
            self._glances = False

    async def until_shown(self, *parts: str) -> None:
        """Wait until all of these texts are on the screen."""
        await self.until(lambda: all(part in self.text() for part in parts), f"show {parts}")


def _stacks() -> str:
    """Say where every thread is: what never comes is often waited for by one of them."""
    frames = sys._current_frames()
    return "\n".join(
        f"{thread.name}:\n{''.join(traceback.format_stack(frame)[-6:])}"
        for thread in threading.enumerate()
        if (frame := frames.get(thread.ident or 0)) is not None
    )


_RULES: dict[object, list[RuleSet]] = {}
"""What the style sheets became that apps of this process had."""
_parse_rules = Stylesheet._parse_rules


def _parse_once(sheet: Stylesheet, css: str, *arguments: Any, **options: Any) -> list[RuleSet]:
    """Parse a style sheet that no app before has parsed with the same colours."""
    key = css, arguments, *options.items(), *sheet._variables.items()
    if key not in _RULES:
        _RULES[key] = _parse_rules(sheet, css, *arguments, **options)
    return _RULES[key]


@asynccontextmanager
async def opened(home: Home, size: tuple[int, int] = (80, 24), **options: Any) -> AsyncIterator[Shown]:
    """Open the app on a home, with a clock that stands still."""
    options.setdefault("clock", lambda: NOW_US)
    options.setdefault("read_run_options", read_run_options)
    app = FabricApp(home, **options)
    app.animation_level = "none"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", _parse_once)
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Shown(app, pilot)


def journey(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Let a test be a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


def picture(request: pytest.FixtureRequest, name: str) -> str:
    """Return what is expected on a walk of that name; nothing when it is to be written with ``--update-screens``."""
    if request.config.getoption("--update-screens", default=False):
        return ""
    file = SNAPSHOTS / f"{name}.txt"
    assert file.is_file(), (
        f"{file.name} is not there: run pytest tests/screens --update-screens, and look at it"
    )
    return file.read_text(encoding="utf-8")


def check(request: pytest.FixtureRequest, name: str, shown: str) -> None:
    """Compare what was seen with the file of that name, or write it with ``--update-screens``."""
    expected = picture(request, name)
    if not expected:
        SNAPSHOTS.mkdir(exist_ok=True)
        (SNAPSHOTS / f"{name}.txt").write_text(shown, encoding="utf-8")
        return

    lines = difflib.unified_diff(expected.splitlines(), shown.splitlines(), "expected", "shown", lineterm="")
    assert shown == expected, "\n".join(lines)


def instead_of_controller(monkeypatch: pytest.MonkeyPatch, wake: Callable[[Home], object]) -> None:
    """Call this where a controller would be woken or started, for a request or for a stop."""

    def heard(home: Home, say: Callable[[str], None]) -> bool:
        wake(home)
        return True

    monkeypatch.setattr("workbench.controller.client.connect.ensure_controller", wake)
    monkeypatch.setattr("workbench.controller.client.connect.ensure_heard", heard)
