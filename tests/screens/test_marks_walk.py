"""Random walks of keys and of changes of the store, beside a model that knows which jobs the user saw marked.

What is requested is compared with the model after each question, and the marks after each step.
"""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass, field

import pytest

from screens.base.dialogs import Confirm
from screens.jobs.table import JobTable
from screens.jobs.table_screen import JobsScreen
from tests.screens import seeding
from tests.screens.support import Shown, instead_of_controller, opened
from workbench.job import TERMINAL, Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, is_over
from workbench.store.queries import requests
from workbench.store.queries.job_list import window
from workbench.store.queries.jobs import list_jobs
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import new_attempt, step

SWEEPS = ("", "", "a", "b")
KINDS = {"x": "halt", "X": "kill", "u": "resume", "D": "delete"}
NEXT = {
    State.QUEUED: State.PENDING,
    State.PENDING: State.DOWNLOADING,
    State.DOWNLOADING: State.PROCESSING,
    State.PROCESSING: State.STORING,
    State.STORING: State.COMPLETED,
}


@pytest.fixture(autouse=True)
def no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are written for real, but no controller acts on them."""
    instead_of_controller(monkeypatch, lambda home: None)


@dataclass
class Walker:
    """Walks, and knows what has to come of it."""

    home: Home
    shown: Shown
    dice: random.Random
    marks: set[str] = field(default_factory=set)
    """What the user saw marked."""
    anchor: str | None = None
    """Where the next range begins."""
    number: int = 0
    """Of the job that was made last."""
    requests_seen: int = 0
    done: list[str] = field(default_factory=list)
    """The way up to here, for who has to understand a failure."""

    @property
    def screen(self) -> JobsScreen:
        found = self.shown.app.screen_stack[1]
        assert isinstance(found, JobsScreen)
        return found

    @property
    def table(self) -> JobTable:
        return self.screen.query_one(JobTable)

    # The store, as other clients and the controller change it

    def alive(self) -> list[JobRow]:
        with Store.open(self.home) as store:
            return list(list_jobs(store))

    def add(self, store: Store) -> None:
        self.number += 1
        seeding.add_job(
            store,
            self.number,
            f"job-{self.number}",
            sweep=self.dice.choice(SWEEPS),
            params={"a": self.number},
        )

    def change(self) -> None:
        """Let something happen to a job: it goes on, ends, is resumed or deleted; or another one comes."""
        rows = self.alive()
        with Store.open(self.home) as store:
            what = self.dice.choice(("add", "go on", "go on", "end", "resume", "resume", "delete"))
            if what == "add" or len(rows) < 4:
                self.done.append("add")
                self.add(store)
                return
            row = self.dice.choice(rows)
            self.done.append(f"{what} {row.name}")
            if what == "resume" and row.state in TERMINAL:
                new_attempt(store, row.id, Reason("resumed"))
            elif what == "delete":
                if row.state not in TERMINAL:
                    step(store, row.id, row.attempt, State.HALTED, Reason("no longer needed"))
                mark_deleted(store, row.id)
            elif row.state not in TERMINAL:
                to = NEXT[row.state] if what == "go on" else self.dice.choice((State.FAILED, State.HALTED))
                step(store, row.id, row.attempt, to, Reason(""))

    async def in_sync(self) -> None:
        """Wait until the list shows what the store has."""

        def is_current() -> bool:
            with Store.open(self.home) as store:
                now = window(store, self.table.listing, now_us=seeding.NOW_US)
            shown = self.table.window
            return shown is not None and (shown.rows, shown.folds) == (now.rows, now.folds)

        await self.shown.until(is_current)

    # What is to come of a key

    def range_to(self, job: JobRow) -> set[str]:
        """Return the jobs between the anchor and a row in the order in view; none where one of them is not there."""
        with Store.open(self.home) as store:
            now = window(store, self.table.listing_in_view, now_us=seeding.NOW_US)
        lines = [set(now.folds[row.id].job_ids) if row.id in now.folds else {row.id} for row in now.rows]
        ends = [
            next((at for at, line in enumerate(lines) if end in line), None) for end in (self.anchor, job.id)
        ]
        if None in ends:
            return set()
        first, last = sorted(at for at in ends if at is not None)
        return set[str]().union(*lines[first : last + 1])

    def mark(self) -> None:
        """Have the model take a ``space``."""
        job = self.table.job
        if job is None:
            return
        fold = self.table.fold_of(job)
        ids = {job.id} if fold is None else set(fold.job_ids)
        if ids <= self.marks:
            self.marks -= ids
            if self.anchor not in self.marks and (fold is not None or self.anchor == job.id):
                self.anchor = None
        elif fold is None:
            self.marks |= ids
            self.anchor = job.id
        else:
            there = ids & {row.id for row in self.alive()}
            self.marks |= there
            self.anchor = job.id if there else None

    def mark_range(self) -> None:
        """Have the model take a ``v``."""
        job = self.table.job
        if job is None:
            return
        fold = self.table.fold_of(job)
        if self.anchor is not None and self.anchor != job.id:
            found = self.range_to(job)
        elif fold is not None:
            found = set(fold.job_ids) & {row.id for row in self.alive()}
        else:
            found = {job.id}
        self.marks |= found
        self.anchor = job.id if found else None

    def meant(self) -> dict[str, JobRow]:
        """Return the jobs that an action concerns now, as the question about them has them."""
        rows = self.table.window.rows if self.table.window else ()
        at_hand = {str(row.id): row for row in rows}
        job = self.table.job
        fold = self.table.fold_of(job)
        now = {str(row.id): row for row in self.alive()}
        if not self.marks:
            if fold is not None:
                return {job_id: now[job_id] for job_id in fold.job_ids if job_id in now}
            return {} if job is None else {job.id: job}
        if all(at_hand.get(job_id) == job for job_id, job in self.table.marks.items()):
            return {job_id: at_hand[job_id] for job_id in self.marks}
        gone = self.marks - now.keys()
        self.marks -= gone
        if self.anchor not in self.marks:
            self.anchor = None
        return {job_id: now[job_id] for job_id in self.marks}

    # Steps

    async def ask(self) -> None:
        """Ask for something; let things happen while the question is open; answer it, or not."""
        key = self.dice.choice("xXuDD")
        kind = KINDS[key]
        meant = {job_id: row for job_id, row in self.meant().items() if fits(kind, row)}
        self.done.append(f"{kind} {sorted(row.name for row in meant.values())}")
        await self.shown.press(key)
        if not meant:
            await self.shown.pilot.pause()
            assert not isinstance(self.shown.app.screen, Confirm)
            return
        await self.shown.until(lambda: isinstance(self.shown.app.screen, Confirm))
        self.check_question(kind, list(meant.values()))
        if self.dice.random() < 0.3:
            await self.shown.press("X", "D", "v", "escape")
            assert await self.requested() == set()
            return
        for _ in range(self.dice.randrange(3)):
            self.change()
        now = {str(row.id): row for row in self.alive()}
        expected = {(kind, job_id) for job_id in meant if job_id in now and fits(kind, now[job_id])}
        is_another = any(
            now[job_id].attempt != row.attempt or (kind == "delete" and runs(now[job_id]) and not runs(row))
            for job_id, row in meant.items()
            if job_id in now
        )
        await self.answer()
        found = await self.requested()
        if is_another:
            assert found == set(), "an answer to another question"
            if any(fits(kind, now.get(job_id, row)) for job_id, row in meant.items()):
                await self.shown.until(lambda: isinstance(self.shown.app.screen, Confirm))
                await self.answer()
                found = await self.requested()
            else:
                expected = set()
        assert found == expected
        if kind == "delete":
            self.marks -= meant.keys()
            if self.anchor not in self.marks:
                self.anchor = None

    def check_question(self, kind: str, meant: list[JobRow]) -> None:
        asked = self.shown.app.screen
        assert isinstance(asked, Confirm)
        what = meant[0].name if len(meant) == 1 else f"{len(meant)} jobs"
        assert asked.question.title == f"{kind.capitalize()} {what}?"
        if len(meant) <= 5:
            named = {line.split("  ")[0] for line in asked.question.lines if not line.startswith("(")}
            assert named == {row.name for row in meant}

    async def answer(self) -> None:
        """Say yes, and wait until it is done or asked anew."""
        asked = self.shown.app.screen
        assert isinstance(asked, Confirm)
        if asked.question.typed:
            await self.shown.type(asked.question.typed)
            await self.shown.press("enter")
        else:
            await self.shown.press("y")
        await self.shown.until(lambda: self.shown.app.screen is not asked)

    async def requested(self) -> set[tuple[str, str]]:
        """Return what was requested since the last look, once all that was given to be written is."""
        written = threading.Event()

        def last(store: Store) -> str:
            written.set()
            return ""

        self.shown.app.write("", last)
        await self.shown.until(written.is_set)
        await self.shown.pilot.pause()
        with Store.open(self.home) as store:
            ids = [int(number) for (number,) in store.rows("SELECT id FROM requests ORDER BY id")]
            found = [requests.request(store, number) for number in ids if number > self.requests_seen]
            self.requests_seen = max([self.requests_seen, *ids])
        return {(one.kind, one.job_id) for one in found if one is not None}

    async def step(self) -> None:
        """Take one step, and compare the marks."""
        what = self.dice.choices(
            ("move", "space", "v", "unmark", "order", "filter", "fold", "ask", "change", "hold"),
            (6, 6, 3, 1, 2, 2, 2, 5, 6, 1),
        )[0]
        self.done.append(what)
        keys: dict[str, str] = {
            "move": self.dice.choice(("j", "j", "k", "g", "G")),
            "order": self.dice.choice(("s", "S")),
            "filter": "exclamation_mark",
            "fold": self.dice.choice(("f", "f", "F")),
        }
        match what:
            case "space":
                self.mark()
                await self.shown.press("space")
            case "v":
                self.mark_range()
                await self.shown.press("v")
            case "unmark":
                self.marks, self.anchor = set(), None
                await self.shown.press("ctrl+backslash")
            case "ask":
                await self.ask()
            case "change":
                self.change()
            case "hold":
                reader = self.shown.app.reader
                reader.paused = not reader.paused
            case _:
                await self.shown.press(keys[what])
        await self.shown.until(lambda: not self.table.ranges_pending)
        if not self.shown.app.reader.paused:
            await self.in_sync()
        assert set(self.table.marks) == self.marks


def runs(row: JobRow) -> bool:
    return row.state not in TERMINAL and row.state is not State.QUEUED


def fits(kind: str, row: JobRow) -> bool:
    if kind == "resume":
        return row.state in (State.HALTED, State.FAILED)
    return kind == "delete" or not is_over(row)


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (1, 50),
        *(
            pytest.param(seed, 150, marks=pytest.mark.soak("more walks of the same kind; the gate does one"))
            for seed in (2, 3, *range(100, 130))
        ),
    ],
)
def test_a_request_reaches_the_jobs_that_were_seen_marked_and_no_others(
    seed: int, steps: int, home: Home
) -> None:
    async def walk() -> None:
        with Store.open(home) as store:
            seeding.remember_runs(store)
        async with opened(home, (100, 30)) as shown:
            walker = Walker(home, shown, random.Random(seed))
            with Store.open(home) as store:
                for _ in range(9):
                    walker.add(store)
            await shown.until(lambda: walker.table.window is not None)
            await walker.in_sync()
            for _ in range(steps):
                try:
                    await walker.step()
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, the way was {walker.done}") from error

    asyncio.run(walk())
