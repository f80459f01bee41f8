"""Calls in the background: none is waited for, and an older answer never overwrites a newer one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from textual.app import App

from screens.backends.screen import BackendsScreen
from screens.workers.background import Background, Task
from screens.workers.transfer_report import transfer_report
from tests.screens.support import journey, opened
from workbench.data.stores.transfer import TransferProgress
from workbench.paths import Home
from workbench.services.transfer.events import CopyProgress, SkippedFile


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """An event that calls hang on; it is set in the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


@journey
async def test_an_older_answer_never_overwrites_a_newer_one(home: Home, held: threading.Event) -> None:
    given: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        held.wait(30)
        ended.set()
        return "older"

    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        owner = shown.app.screen
        shown.app.background.run(slow, given.append, owner=owner, newest="answer")
        await shown.until(begun.is_set)
        shown.app.background.run(lambda: "newer", given.append, owner=owner, newest="answer")
        await shown.until(lambda: given)
        held.set()
        await shown.until(ended.is_set)
        shown.app.background.run(lambda: "last", given.append)
        await shown.until(lambda: "last" in given)

    assert given == ["newer", "last"]


@journey
async def test_an_answer_that_was_cancelled_is_dropped(home: Home, held: threading.Event) -> None:
    given: list[str] = []

    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        owner, background = shown.app.screen, shown.app.background
        background.run(lambda: str(held.wait(30)), given.append, owner=owner, newest="answer")
        background.cancel(owner, "answer")
        held.set()
        background.run(lambda: "last", given.append)
        await shown.until(lambda: given)

    assert given == ["last"]


@journey
async def test_an_answer_for_a_screen_that_was_left_is_dropped(home: Home, held: threading.Event) -> None:
    given: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        held.wait(30)
        ended.set()
        return "late"

    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until(lambda: isinstance(shown.app.screen, BackendsScreen))
        shown.app.background.run(slow, given.append, owner=shown.app.screen)
        await shown.until(begun.is_set)
        await shown.press("escape")
        await shown.until_shown("No jobs yet")
        held.set()
        await shown.until(ended.is_set)
        shown.app.background.run(lambda: "last", given.append)
        await shown.until(lambda: "last" in given)

    assert given == ["last"]


@journey
async def test_calls_that_hang_hold_up_neither_others_nor_the_end(home: Home, held: threading.Event) -> None:
    given: list[str] = []
    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        for _ in range(50):  # more than the threads of Python's own executor
            shown.app.background.run(lambda: str(held.wait(60)), given.append)
        shown.app.background.run(lambda: "another", given.append)
        await shown.until(lambda: given)
        left = time.monotonic()
    assert time.monotonic() - left < 30

    assert given == ["another"]


@journey
async def test_a_call_that_fails_is_shown(home: Home) -> None:
    given: list[str] = []

    def wrong() -> str:
        raise ZeroDivisionError("oops")

    def cut() -> str:
        raise IndexError("line 7")

    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("No jobs yet")
        shown.app.background.run(wrong, given.append)
        shown.app.background.run(cut, given.append)
        await shown.until_shown("ZeroDivisionError: oops", "the file changed while it was read: line 7")

    assert given == []


class _Interrupted(threading.Event):
    """What somebody waits for and presses ctrl-c."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            raise KeyboardInterrupt
        return super().wait(0)


def test_ctrl_c_ends_what_would_be_finished_after_the_screens_and_the_rest_ends_at_once() -> None:
    background, printed = Background(App()), list[str]()
    kept = Task("download digits", "at 3%", is_kept=True, over=_Interrupted())
    other = Task("test gpubox")
    background.tasks = [kept, other]

    background.finish(printed.append)

    assert printed[-1] == "download digits: left at at 3%\n"
    assert kept.cancel.is_set() and other.cancel.is_set()


def test_a_transfer_is_narrated_as_on_the_command_line() -> None:
    reports: list[tuple[str, float | None]] = []

    class Recorder:
        cancel = threading.Event()

        def __call__(self, text: str, fraction: float | None = None) -> None:
            reports.append((text, fraction))

    report = transfer_report(Recorder())
    report(CopyProgress("results of abc", TransferProgress(1 << 30, 4 << 30, 1 << 20, 3072.0)))
    report(SkippedFile("link"))

    assert reports == [
        ("results of abc: 25%, 1.0 GiB of 4.0 GiB, 1.0 MiB/s, 51 min 12 s left", 0.25),
        ("skipped link: it points outside the folder, or is not a file", None),
    ]
