"""How a log's lines are shown: long ones, times, places in it, escapes, JSON."""

from __future__ import annotations

import json

from rich.style import Style

from screens.logs.document import DocumentLine
from screens.logs.render import Manner, render
from screens.style.themes import Paint
from screens.widgets.ansi import COLOURS_MAX, decoded
from tests.screens import seeding
from tests.screens.logs import job as job
from tests.screens.logs import log, numbered, open_log
from tests.screens.logs import output as output
from tests.screens.support import journey, opened
from workbench.logs.levels import Level
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
        await shown.press("right", "right", "right")
        await shown.until_shown("END")
        await shown.press("left", "left", "left", "w")
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
        await shown.press("W", "W")
        await shown.until_shown("1 of 2 lines", "last 5 m", "young")
        assert "old" not in shown.text()
        await shown.press("W", "W", "W", "W")
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
        await shown.until_shown("'soon' is not a time")


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


def test_of_a_traceback_the_line_that_names_the_exception_stands_out() -> None:
    paint = Paint({}, coloured=True)
    lines = [
        ("Traceback (most recent call last):", Level.TRACEBACK, "dim"),
        ('  File "train.py", line 7, in <module>', Level.DETAIL, "dim"),
        ("[rank0]: RuntimeError: CUDA out of memory", Level.RAISED, "bold"),
    ]
    for text, level, attribute in lines:
        line = DocumentLine(1, 0, text, level, None, settled=True)
        (strip,) = render(line, Manner(60), paint, Style())
        style = next(segment.style for segment in strip if text[:5] in segment.text)
        assert style is not None and (bool(style.bold), bool(style.dim)) == (
            attribute == "bold",
            attribute == "dim",
        )


@journey
async def test_a_line_that_is_cut_says_so_at_either_end(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"short\n" + b"a" * 70 + b"b" * 70 + b"\n")
    async with opened(home, (80, 24), job="digits") as shown:
        await open_log(shown, "short")
        await shown.until(
            lambda: any(
                line.rstrip(" \u258e").endswith("a\u2026") or "bb\u2026" in line
                for line in shown.text().splitlines()
            )
        )
        assert "short\u2026" not in shown.text()
        await shown.press("right", "right")
        await shown.until(
            lambda: any(line.strip().startswith("\u2026a") for line in shown.text().splitlines())
        )
        await shown.press("w")
        await shown.until(lambda: "\u2026" not in shown.text())


@journey
async def test_the_end_of_a_last_line_longer_than_the_screen_is_in_view(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"first\n" + b"x" * 1900 + b"THE END\n")
    async with opened(home, (80, 24), job="digits") as shown:
        await open_log(shown, "first")
        await shown.press("w")
        await shown.until_shown("THE END")
        await shown.press("g")
        await shown.until_shown("first")
        await shown.press("G")
        await shown.until_shown("THE END")


def test_a_line_of_a_hundred_thousand_colours_is_drawn_with_the_first_of_them() -> None:
    line = "".join(f"\x1b[{31 + number % 7}mA" for number in range(2000))

    shown = decoded(line)

    assert shown.plain == "A" * 2000
    assert len(shown.spans) <= COLOURS_MAX
