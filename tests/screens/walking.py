"""A walk through every screen, of which each is kept as text: for pictures of all screens in one state at one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from backends.contract.host import Finding, Inventory, Node, Slot
from runners.interface import AttemptRef, LaunchPlan, LaunchRequest, LearnerPlan
from screens.base.base import BaseScreen
from screens.jobs.compare_screen import CompareScreen
from screens.jobs.job_screen import JobScreen
from screens.jobs.text_pages import ConfigTab
from screens.launch.draft import COMMAND, Draft
from screens.widgets.tabs import TABS
from tests.screens.seeding import NOW_US
from tests.screens.support import Shown
from workbench.errors import BackendUnreachable
from workbench.manifest import Loaded
from workbench.paths import Home, config_file
from workbench.services.backends.placement import PassedOver
from workbench.services.submit.prepare import JobSubmission
from workbench.services.submit.preview import PREVIEW_JOB, SubmissionPreview
from workbench.spec import Framework, JobSpec
from workbench.store.db.rows import JobRow, TargetRef

RULE = "═" * 20
RESTS_TIMES = 40
"""How often in a row a screen that is taken as it is was found unchanged."""
COMES_SECONDS = 15.0
"""How long a screen is waited for that is not as expected: after that its picture is wrong."""


class Walk:
    """What was seen on the way.

    With the ``expected`` text of the whole walk, each screen is waited for until it is as expected: what is read
    comes to the screen from several threads, each when it has it.
    """

    def __init__(self, shown: Shown, expected: str = "") -> None:
        self.shown = shown
        self._seen: list[str] = []
        self._expected = [RULE + screen for screen in expected.split(RULE)[1:]]

    @property
    def text(self) -> str:
        """Every screen under its name."""
        return "".join(self._seen)

    async def see(self, name: str, *parts: str) -> None:
        """Wait until these are on the screen and it is as expected, or does not change any more; then keep it."""
        await self.shown.until_shown(*parts)
        if not (self._expected and await self._comes(name)):
            self._expected = []
            await self._rests()
        self._seen.append(self._titled(name))

    def _titled(self, name: str) -> str:
        return f"{RULE} {name}\n{self.shown.text()}"

    async def _comes(self, name: str) -> bool:
        """Wait for the next screen that is expected; say whether it came."""
        expected = self._expected.pop(0)
        with suppress(AssertionError):
            await self.shown.until(lambda: self._titled(name) == expected, name, seconds=COMES_SECONDS)
        return self._titled(name) == expected

    async def _rests(self) -> None:
        before, times = "", 0

        def still() -> bool:
            nonlocal before, times
            text = self.shown.text()
            before, times = text, times + 1 if text == before else 0
            return times >= RESTS_TIMES

        await self.shown.until(still)

    async def window(self, name: str, keys: Sequence[str], *parts: str) -> None:
        """Keep a window that keys open, and close it."""
        await self.shown.press(*keys)
        await self.shown.until(lambda: isinstance(self.shown.app.screen, ModalScreen), name)
        await self.see(name, *parts)
        await self.shown.press("escape")
        await self.shown.until(lambda: isinstance(self.shown.app.screen, BaseScreen), name)

    async def over(self, name: str, window: ModalScreen[Any], *parts: str) -> None:
        """Keep a window that is opened over the screen, and close it."""
        self.shown.app.push_screen(window)
        await self.shown.until(lambda: self.shown.app.screen is window, name)
        await self.see(name, *parts)
        await self.shown.press("escape")
        await self.shown.until(lambda: isinstance(self.shown.app.screen, BaseScreen), name)

    async def asked(self, name: str, key: str, *parts: str) -> None:
        """Keep a line that a key asks for, as it is offered."""
        await self.typed(name, key, "", *parts)

    async def typed(self, name: str, key: str, words: str, *parts: str) -> None:
        """Keep what a key opens to type into, with something typed, and close it."""
        await self.shown.press(key)
        await self.shown.until(lambda: isinstance(self.shown.app.focused, Input), name)
        await self.shown.type(words)
        await self.see(name, *parts)
        await self.shown.press("escape")
        await self.shown.until(lambda: isinstance(self.shown.app.screen, BaseScreen), name)

    async def pressed(self, name: str, key: str, *parts: str) -> None:
        """Keep the screen after a key."""
        await self.shown.press(key)
        await self.see(name, *parts)

    async def job(self, row: JobRow, says: dict[str, str]) -> None:
        """Keep every tab of a job; ``says`` has what each shows once it is there."""
        app = self.shown.app
        app.open_job(row, TABS[0])
        await self.shown.until(lambda: isinstance(app.screen, JobScreen) and app.screen.whole)
        screen = app.screen
        assert isinstance(screen, JobScreen)
        for tab in TABS:
            screen.show(tab)
            if says.get(tab) == "native plan":
                await self.shown.until(
                    lambda: screen.query_one(ConfigTab).native.plain.startswith("Native plan"), tab
                )
                await self.see(f"job {tab}", "Values and their origins")
            else:
                await self.see(f"job {tab}", says.get(tab, tab))
        app.go_home()

    async def compare(self, rows: Sequence[JobRow], says: dict[str, str]) -> None:
        """Keep every tab of a comparison."""
        screen = CompareScreen(rows)
        self.shown.app.push_screen(screen)
        await self.shown.until(lambda: self.shown.app.screen is screen and screen.whole)
        for tab in ("charts", "values", "parameters", "differences", "code"):
            screen.show(tab)
            await self.see(f"compare {tab}", says.get(tab, tab))
        self.shown.app.go_home()

    async def backends(self, *parts: str) -> None:
        """Keep the backends."""
        await self.shown.press("P")
        await self.see("backends", *parts)
        self.shown.app.go_home()

    async def form(self, *parts: str) -> None:
        """Keep the form for a new job."""
        await self.shown.press("n")
        await self.see("new job", *parts)
        self.shown.app.go_home()

    async def line(self, name: str, key: str, typed: str) -> None:
        """Keep a line at the foot in which something is typed."""
        await self.shown.press(key)
        await self.shown.until(lambda: isinstance(self.shown.app.focused, Input), name)
        await self.shown.type(typed)
        await self.see(name, typed)
        await self.shown.press("escape")
        await self.shown.until(lambda: not isinstance(self.shown.app.focused, Input), name)


class _PretendedBackend:
    """A backend that answers as the test wants it; its hardware is pretended."""

    def __init__(self, options: Any) -> None:  # BackendOptions
        self.options = options

    def open(self) -> _PretendedBackend:
        return self

    def close(self) -> None:
        """Nothing is held."""

    def inventory_of(self, opened: object) -> Inventory:
        if self.options.type == "local":
            return Inventory((Node("laptop", 8, 16 << 30, 12.0, 4 << 30, 100 << 30),), 0)
        slots = (
            Slot(
                "GPU-0",
                0,
                "A100",
                40 << 30,
                30 << 30,
                97.0,
                65.0,
                250.0,
                300.0,
                "ada",
                "training-abcdefghi",
                held_since_us=NOW_US - 40 * 60_000_000,
            ),
            Slot(
                "GPU-1",
                1,
                "A100",
                40 << 30,
                8 << 30,
                40.0,
                50.0,
                120.0,
                300.0,
                "",
                "",
                "python of eve",
            ),
            Slot("GPU-2", 2, "A100", 40 << 30, 0, 0.0, 35.0, 40.0, 300.0),
        )
        return Inventory(
            (Node("box", 64, 256 << 30, 40.0, 64 << 30, 900 << 30, slots, "driver 550, CUDA 12.4"),), 0
        )

    def probe(self) -> Iterator[Finding]:
        yield Finding("python", "/usr/bin/python3 (3.11.9)")
        yield Finding("engine", "none", "lack", "images are not used", "install Docker")


class _Unreachable(_PretendedBackend):
    def open(self) -> _PretendedBackend:
        if self.options.type != "local":
            raise BackendUnreachable("gpubox does not answer: no route to host", hint="is it switched on?")
        return self


@contextmanager
def pretended(patch: pytest.MonkeyPatch, folder: Path, *, unreachable: bool = False) -> Iterator[None]:
    """Pretend backends, plans and latencies, so that pictures are the same on every machine."""
    config_file().write_text('[backends.gpubox]\naddress = "ssh://ada@gpubox"\n')
    patch.chdir(folder)
    patch.setattr("screens.launch.draft_sources.EXAMPLES", folder)
    patch.setattr("screens.launch.preview_page.read_previews", _previews)
    patch.setattr("screens.jobs.text_pages.native_plan", _plan)
    patch.setattr("screens.jobs.files_tab.files_there", _no_files)
    kind = _Unreachable if unreachable else _PretendedBackend
    patch.setattr("backends.registry.load_backend", kind)
    patch.setattr("screens.backends.watch.now_us", _now)
    patch.setattr("workbench.services.backends.watch.now_us", _now)
    # Asked again and again, a backend would have one block more in its history each time.
    patch.setattr("screens.backends.watch.EVERY_SECONDS", 3600.0)
    patch.setattr("screens.backends.page._latency", lambda seconds: "12 ms")
    yield


def _plan(home: object, job_id: object) -> Content:
    return Content("Native plan: process at local\n  {}")


def _previews(home: Home, read: object, draft: Draft, cancel: object) -> tuple[SubmissionPreview, ...]:
    """Preview a job as on one and the same machine."""
    target = TargetRef("local", "local", "process")
    spec = JobSpec("digits", Framework("custom", "", draft.changes.get(COMMAND, "python train.py")))
    submission = JobSubmission(
        loaded=Loaded(spec, draft.text, {}, (), "manifest.yml", None),
        target=target,
        code=None,
        recorded={},
        secrets={},
        warnings=("the manifest has no name",),
        passed_over=(PassedOver("container", "no container engine answers", "install Docker"),),
    )
    request = LaunchRequest(AttemptRef("", PREVIEW_JOB, 1, 1), spec, "ada", "", "", {})
    learner = LearnerPlan(1, "learner-1", {"command": "python train.py", "env": {"LEARNER_ID": "1"}})
    return (SubmissionPreview(submission, LaunchPlan(request, "process", (learner,), 0, 0.0)),)


def _no_files(job_id: object) -> list[Any]:
    raise BackendUnreachable("gpubox does not answer")


def _now() -> int:
    return NOW_US
