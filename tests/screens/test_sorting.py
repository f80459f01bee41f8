"""The order of the list of jobs: by every column, by command and by a click on its heading, with the sign beside it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any, Final

import pytest

from screens.core.memory import MEMORY_KEY
from screens.jobs.columns import COLUMNS, GAP
from screens.jobs.table import JobTable
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.ui_state import set_state
from workbench.store.updates.jobs import set_reason

NAMES: Final = ("charlie", "alpha", "bravo", "delta", "echo")
"""In the order in which they were submitted; the last two have ended."""
RISING: Final[Mapping[str, str]] = {
    "state": "decab",
    "name": "abcde",
    "id": "".join(name[0] for _, name in sorted((seeding.job_id(n), name) for n, name in enumerate(NAMES))),
    "backend": "aebdc",
    "runner": "bacde",
    "gpus": "cbdae",
    "step": "dabce",
    "step/s": "abc|de",
    "loss": "eabcd",
    "trend": "eabcd",
    "done": "cbaed",
    "left": "abc|de",
    "end": "abc|de",
    "time": "dcbae",
    "age": "edbac",
    "exit": "de|cab",
    "tags": "bcdea",
    "why": "badec",
}
"""The first letters of the jobs in the rising order of each column; behind the bar are those without a value."""
SIGNED: Final = {"trend": "loss", "end": "left"}
"""Columns whose order is that of another one, which has the sign."""


def expected(heading: str, sign: str) -> list[str]:
    having, _, without = RISING[heading].partition("|")
    letters = having + without if sign == "▲" else having[::-1] + without[::-1]
    return [next(name for name in NAMES if name[0] == letter) for letter in letters]


@pytest.fixture
def varied(home: Home) -> Home:
    """Five jobs that differ in every column, in a list without a preview beside it."""
    ended = (State.STORING, State.COMPLETED), (State.STORING, State.FAILED)
    facts: tuple[dict[str, Any], ...] = (
        {"backend": "west", "runner": "process", "gpus": 1, "tags": ("Beta",)},
        {"backend": "east", "runner": "pod", "gpus": 4, "tags": ("gamma",)},
        {"backend": "north", "runner": "container", "gpus": 2, "tags": ("alpha",)},
        {"backend": "south", "runner": "remote", "gpus": 3, "tags": ("delta",)},
        {"backend": "local", "runner": "zone", "gpus": 8, "tags": ("echo",)},
    )
    ages = (5000, 4000, 3000, 2000, 1500)
    began_ago = (100, 300, 200)
    reported = ((30, 0.3, 0.2), (10, 0.1, 0.6), (20, 0.2, 0.4), (5, 0.4, 0.9), (50, 0.05, 0.7))
    reasons = ("gamma", "Beta", "alpha", "delta", "echo")
    with Store.open(home) as store:
        for number, name in enumerate(NAMES):
            row = seeding.add_job(store, number, name, age_seconds=ages[number], **facts[number])
            if number < 3:
                row = seeding.go(store, row, *seeding.RUN_UP, every=(ages[number] - began_ago[number]) / 3)
                set_reason(store, row.id, Reason(reasons[number]))
            else:
                row = seeding.go(
                    store, row, *seeding.RUN_UP, *ended[number - 3], every=(30, 200)[number - 3],
                    reason=Reason(reasons[number]), exit_code=(0, 3)[number - 3],
                )  # fmt: skip
            steps, loss, done = reported[number]
            seeding.report(store, row, {"loss": [1.0] * (steps - 1) + [loss]})
            seeding.report_progress(store, row, done, row.ended_us or seeding.NOW_US, seq=5)
        set_state(store, MEMORY_KEY, {"screen": "runs", "preview": False})
    return home


def names(table: JobTable) -> list[str]:
    return [row.name for row in table.window.rows] if table.window else []


def heading_line(shown: Shown, table: JobTable) -> str:
    """Return the table's own heading: the line above it has a sign, too."""
    return shown.text().splitlines()[table.region.y]


async def opened_table(shown: Shown) -> JobTable:
    await shown.until_shown(*NAMES)
    table = shown.app.screen.query_one(JobTable)
    await shown.until(lambda: all(column.name in heading_line(shown, table) for column in COLUMNS))
    return table


@journey
async def test_the_list_is_sorted_by_every_column_and_in_both_directions(varied: Home) -> None:
    """A click on each heading sorts by it both ways, below."""
    async with opened(varied, (200, 40)) as shown:
        table = await opened_table(shown)
        for column, (direction, sign) in zip(COLUMNS, cycle((("asc", "▲"), ("desc", "▼"))), strict=False):
            heading, sort = column.name, f"sort {column.name} {direction}"
            await shown.press("colon")
            await shown.type(sort)
            await shown.press("enter")
            await shown.until(lambda: names(table) == expected(heading, sign), sort)  # noqa: B023 - waited for here
            signed = SIGNED.get(heading, heading) + sign
            await shown.until(lambda: f" {signed} " in heading_line(shown, table) + " ", sort)  # noqa: B023


@journey
async def test_a_click_on_every_heading_sorts_and_another_one_turns_the_order(varied: Home) -> None:
    async with opened(varied, (200, 40)) as shown:
        table = await opened_table(shown)
        await shown.until_shown("CPUs")  # what comes above the table moves it away from below a click
        x = 1
        for column, width in list(table.painter.columns):
            signed = SIGNED.get(column.name, column.name)
            seen = set()
            for _ in range(2):
                before = heading_line(shown, table)
                await shown.pilot.click(JobTable, offset=(x + width // 2, 0))
                await shown.until(lambda: heading_line(shown, table) != before)  # noqa: B023 - waited for here
                sign = heading_line(shown, table).partition(f" {signed}")[2][:1]
                await shown.until(lambda: names(table) == expected(column.name, sign))  # noqa: B023
                seen.add(sign)
            assert seen == {"▲", "▼"}, column.name
            x += width + GAP


@journey
async def test_the_order_is_called_by_the_name_of_its_column(varied: Home) -> None:
    async with opened(varied, (200, 40)) as shown:
        table = await opened_table(shown)
        for heading, shown_as in (
            ("backend", "by backend ▲"),
            ("loss", "by loss ▼"),
            ("age", "by submitted ▼"),
        ):
            await shown.press("colon")
            await shown.type(f"sort {heading}")
            await shown.press("enter")
            await shown.until_shown(shown_as)
        assert " age▲" in heading_line(shown, table)


@journey
async def test_a_layout_and_an_order_that_were_saved_by_former_names_open(varied: Home) -> None:
    with Store.open(varied) as store:
        set_state(
            store,
            MEMORY_KEY,
            {
                "screen": "runs",
                "preview": False,
                "columns": ["state", "name", "place", "age"],
                "sort": "place",
                "descending": False,
            },
        )
    async with opened(varied, (200, 40)) as shown:
        await shown.until_shown(*NAMES, "by backend ▲")
        table = shown.app.screen.query_one(JobTable)
        assert heading_line(shown, table).split() == ["state", "name", "backend▲", "age"]
        assert names(table) == expected("backend", "▲")


@journey
async def test_an_order_by_the_column_of_losses_that_was_saved_by_its_former_name_opens(varied: Home) -> None:
    with Store.open(varied) as store:
        state = {"screen": "runs", "preview": False, "sort": "column loss", "descending": False}
        set_state(store, MEMORY_KEY, state)
    async with opened(varied, (200, 40)) as shown:
        await shown.until_shown(*NAMES, "by loss ▲")
        assert names(shown.app.screen.query_one(JobTable)) == expected("loss", "▲")


@journey
async def test_what_is_no_column_of_the_screen_sorts_too(varied: Home) -> None:
    async with opened(varied, (200, 40)) as shown:
        table = await opened_table(shown)
        for sort in ("started desc", "params.lr", "changed", "age asc"):
            await shown.press("colon")
            await shown.type(f"sort {sort}")
            await shown.press("enter")
            name = sort.partition(" ")[0]
            await shown.until_shown(f"by {'submitted' if name == 'age' else name}")
        assert names(table) == expected("age", "▲")
        await shown.press("colon")
        await shown.type("sort params.nothing")
        await shown.press("enter")
        await shown.until_shown("cannot sort by 'params.nothing'")
