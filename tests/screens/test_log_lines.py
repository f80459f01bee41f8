"""How a log's lines are shown: long ones, times, places in it, escapes, JSON."""

from __future__ import annotations

import json

from tests.screens import seeding
from tests.screens.logs import job as job
from tests.screens.logs import log, numbered, open_log
from tests.screens.logs import output as output
from tests.screens.support import journey, opened
from workbench.paths import Home
from workbench.store.db.rows import JobRow


@journey
async def test_long_lines_are_cut_scrolled_or_wrapped(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"a" * 100 + b"END\n" + numbered(1, 3))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 3")
        assert "END" not in shown.text()
        await shown.press("l", "l", "l")
        await shown.until_shown("END")
        await shown.press("h", "h", "h", "w")
        await shown.until_shown("wrap", "END", "line 3")


@journey
async def test_the_end_is_in_view_when_many_long_lines_wrap(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"".join(b"%d " % i + b"x" * 280 + b" tail %d\n" % i for i in range(100)))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "99 x")
        await shown.press("w")
        await shown.until_shown("tail 99")
        await shown.press("k", "k", "k", "k", "k", "k", "k")
        await shown.until(lambda: log(shown).state.cursor == 92)
        await shown.until_shown("tail 92")


@journey
async def test_times_since_the_start_and_of_day(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"one\n", seconds=1)
    output.write(b"two\n", seconds=60)
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "two")
        await shown.press("t")
        await shown.until_shown("+00:00:01.0  one", "+00:01:01.0  two")
        await shown.press("t")
        await shown.until_shown("14:54:21.000 one", "14:55:21.000 two")


@journey
async def test_a_window_of_minutes_counts_from_the_end(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"old\n", seconds=1)
    output.write(b"young\n", seconds=500)
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "young")
        await shown.press("3")
        await shown.until_shown("1 of 2 lines", "last 5 m", "young")
        assert "old" not in shown.text()
        await shown.press("0")
        await shown.until_shown("old")


@journey
async def test_go_to_a_line_or_a_time(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(numbered(1, 200), seconds=1)
    output.write(numbered(201, 300), seconds=60)
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 300")
        await shown.press("ctrl+g")
        await shown.type("42")
        await shown.press("enter")
        await shown.until_shown("42/300", "line 42")
        await shown.press("ctrl+g")
        await shown.type("14:55:00")
        await shown.press("enter")
        await shown.until(lambda: log(shown).state.cursor == 200)
        await shown.press("ctrl+g")
        await shown.type("soon")
        await shown.press("enter")
        await shown.until_shown("'soon' is no time")


@journey
async def test_carriage_returns_colours_and_escapes(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(
        b"10%\r50%\r100% done\r\n\x1b[31mred\x1b[0m \x1b[2Jkept\x1b]0;title\x07\n\x00nul\n[bold]markup[/]\n"
    )
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "100% done", "red kept", "␀nul", "[bold]markup[/]")
        assert "50%" not in shown.text() and "title" not in shown.text()


@journey
async def test_json_is_set_out_in_the_detail(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(b"report " + json.dumps({"loss": [0.25, 0.5]}).encode() + b"\n")
    async with opened(home, job=job.id) as shown:
        await open_log(shown, '"loss"')
        await shown.press("enter")
        await shown.until_shown('"loss": [', "0.25,")
