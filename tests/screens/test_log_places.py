"""Going to a step of a log, and selecting lines of it."""

from __future__ import annotations

import pytest

from screens.logs.view import LogView
from tests.screens import seeding
from tests.screens.support import journey, opened
from workbench.paths import Home
from workbench.store.db.database import Store


@journey
async def test_a_step_is_gone_to_by_when_it_was_reported_or_where_it_is_named(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1), *seeding.RUN_UP)
        writer = seeding.journal(home, row)
        for number in range(200):
            writer.write(b"line %d\n" % number, seconds=1)
        writer.write(b"Step: 0777 of old\n", seconds=1)
        seeding.report(store, row, {"loss": [1.0] * 100})
    async with opened(home, job=row.id) as shown:
        await shown.until_shown("1 overview")
        await shown.press("l", "ctrl+g")
        await shown.type("step 50")
        await shown.press("enter")
        view = shown.app.screen.query_one(LogView)
        await shown.until(lambda: view.state.cursor == 48)  # printed when step 50 was reported
        await shown.press("ctrl+g")
        await shown.type("s777")
        await shown.press("enter")
        await shown.until(lambda: view.state.cursor == 200)
        await shown.press("ctrl+g")
        await shown.type("step 9999")
        await shown.press("enter")
        await shown.until_shown("no such step below")


@journey
async def test_lines_are_selected_and_copied(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1), *seeding.RUN_UP)
        writer = seeding.journal(home, row)
        for number in range(20):
            writer.write(b"\x1b[31mline %d\x1b[0m\n" % number)
    copied: list[str] = []
    async with opened(home, job=row.id) as shown:
        monkeypatch.setattr(shown.app, "copy_to_clipboard", copied.append)
        await shown.until_shown("1 overview")
        await shown.press("l")
        await shown.until_shown("line 19")
        await shown.press("g", "j", "v", "j", "j")
        await shown.until_shown("3 lines selected")
        await shown.press("y")
        await shown.until(lambda: copied == ["line 1\nline 2\nline 3"])
        await shown.press("v", "k")
        await shown.until_shown("2 lines selected")
        await shown.press("escape")
        await shown.until(lambda: "selected" not in shown.text())
        await shown.press("y")
        await shown.until(lambda: len(copied) == 2)
    assert copied[1] == "line 2"
