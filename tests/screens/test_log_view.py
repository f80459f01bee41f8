"""The view of a log: following, finding, filtering, saving, several learners, harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import MouseScrollUp
from textual.widgets import Input

from screens.logs.feed import Feed
from screens.logs.view import LogView
from tests.screens import seeding
from tests.screens.logs import job as job
from tests.screens.logs import log, numbered, open_log
from tests.screens.logs import output as output
from tests.screens.support import journey, opened
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.jobs import new_attempt


@journey
async def test_it_says_what_it_waits_for_while_there_is_no_output(home: Home, job: JobRow) -> None:
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "waiting for the first output, processing for 9 min 45 s")


@journey
async def test_new_lines_are_followed(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(numbered(1, 100))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "follow", "line 100")
        output.write(numbered(101, 110))
        await shown.until_shown("line 110", "110 lines")


@journey
async def test_scrolling_up_stops_following_and_says_how_many_lines_are_new(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 100))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "follow", "line 100")
        await shown.press("k")
        await shown.until_shown("99/100")
        before = shown.text()
        output.write(numbered(101, 105))
        await shown.until_shown("+5 new lines")
        assert "line 100" in before and "line 101" not in shown.text()
        await shown.press("f")
        await shown.until_shown("follow", "line 105")


@journey
async def test_the_wheel_stops_following_too(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(numbered(1, 100))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "follow", "line 100")
        await shown.pilot._post_mouse_events([MouseScrollUp], LogView)
        await shown.until(lambda: not log(shown).state.follow)


@journey
async def test_find_goes_to_the_nearest_hit_and_n_on(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 50) + b"needle one\n" + numbered(51, 100) + b"Needle two\n" + numbered(101, 150))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 150")
        await shown.press("slash")
        await shown.type("needle")
        await shown.press("enter")
        await shown.until(lambda: log(shown).state.cursor == 101)
        await shown.until_shown("Needle two", "/needle  2 of 2\n")
        await shown.press("N")
        await shown.until(lambda: log(shown).state.cursor == 50)
        await shown.until_shown("/needle  1 of 2\n")
        await shown.press("n")
        await shown.until(lambda: log(shown).state.cursor == 101)
        await shown.press("n")
        await shown.until_shown("no match below")


@journey
async def test_find_counts_while_it_is_typed_and_says_how_many_lines_match(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 50) + b"needle one\n" + numbered(51, 100) + b"needle two\n" + numbered(101, 150))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 150")
        await shown.press("slash")
        await shown.type("nee")
        await shown.until_shown("2 matches")
        await shown.type("dle t")
        await shown.until_shown("1 match\n")
        await shown.type("x")
        await shown.until_shown("no match")
        await shown.press("escape")
        await shown.until(lambda: "match" not in shown.text())
        await shown.press("slash")
        await shown.type("line 1")
        await shown.press("enter")
        await shown.until_shown("/line 1  62 of 62\n")
        output.write(b"line 151\n")
        await shown.until_shown("/line 1  62 of 63\n")
        await shown.press("backslash")
        await shown.type("needle")
        await shown.press("enter")
        await shown.until_shown("2 of 153 lines", "/line 1  no match")


@journey
async def test_capitals_and_regular_expressions_are_found_as_written(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 50) + b"needle one\nNeedle two\nloss 0.25\n")
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "loss 0.25")
        await shown.press("slash")
        await shown.type("Needle")
        await shown.press("enter")
        await shown.until(lambda: log(shown).state.cursor == 51)
        await shown.press("slash", *["backspace"] * 6)
        await shown.type("/loss 0/")
        await shown.press("enter")
        await shown.until(lambda: log(shown).state.cursor == 52 or "hit" in shown.text())


@journey
async def test_a_wrong_regular_expression_is_reported_and_the_line_stays_open(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 5))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 5")
        await shown.press("slash")
        await shown.type("/(/")
        await shown.press("enter")
        await shown.until_shown("is not a regular expression")
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen.focused is log(shown))


@journey
async def test_only_lines_that_fit_are_shown_and_new_ones_join_them(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"".join(b"keep %d\ndrop %d\n" % (i, i) for i in range(50)))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "drop 49")
        await shown.press("backslash")
        await shown.type("keep")
        await shown.press("enter")
        await shown.until_shown("50 of 100 lines", "only keep", "keep 49")
        assert "drop" not in shown.text().split("only keep")[1]
        output.write(b"drop 50\nkeep 50\n")
        await shown.until_shown("51 of 102 lines", "keep 50")
        await shown.press("backslash", *["backspace"] * 4)
        await shown.type("!keep")
        await shown.press("enter")
        await shown.until_shown("51 of 102 lines", "drop 50")
        await shown.press("escape")
        await shown.until_shown("102 lines", "keep 50", "drop 50")


@journey
async def test_a_last_line_without_a_newline_is_filtered_too(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(b"first\nkept to the end")
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "kept to the end")
        await shown.press("backslash")
        await shown.type("kept")
        await shown.press("enter")
        await shown.until_shown("1 of 2 lines", "\n kept to the end")
        assert "filtered" not in shown.text() and "looking" not in shown.text()
        output.write(b", longer\nkept too\nother")
        await shown.until_shown("2 of 4 lines", "kept to the end, longer", "kept too")
        await shown.press("backslash", *["backspace"] * 4)
        await shown.type("nothing")
        await shown.press("enter")
        await shown.until_shown("no line matches", "esc shows all")


@pytest.mark.parametrize("key", ["backslash", "slash"])
@journey
async def test_an_expression_that_runs_on_is_given_up_and_keys_are_taken_meanwhile(
    home: Home, job: JobRow, output: seeding.JournalWriter, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.expression.SECONDS_MAX", 0.5)
    output.write(b"loss step " * 800 + b"\n" + numbered(2, 30))
    async with opened(home, job=job.id, size=(120, 24)) as shown:
        await open_log(shown, "line 30")
        await shown.press(key)
        await shown.type("/loss.*step.*x$/")
        await shown.press("enter", "w")
        await shown.until_shown("wrap")
        await shown.until_shown("/loss.*step.*x$/ took too long", "expression", "30 lines")
        assert log(shown).state.sieve.open and log(shown).state.find is None
        await shown.press(key)
        await shown.type("line 1")
        await shown.press("enter")
        await shown.until_shown("10 of 30 lines" if key == "backslash" else "of 10")


@journey
async def test_the_cursor_stays_on_its_line_when_a_filter_is_removed(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 500))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 500")
        await shown.press("k")
        await shown.until_shown("499/500")
        # Not by the prompt: its closing changes the size, which scrolls to what is there.
        log(shown).obey("only lines that match", "line 77")
        await shown.until_shown("1/1", "line 77")
        await shown.press("escape")
        await shown.until_shown("77/500", "line 77", "line 80")


@journey
async def test_next_and_previous_error(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(
        numbered(1, 30) + b"ERROR: first\n" + numbered(31, 60) + seeding.TRACEBACK + numbered(61, 90)
    )
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 90")
        await shown.press("e")
        await shown.until_shown("ERROR: first")
        await shown.press("e")
        await shown.until_shown("Traceback (most recent call last)")
        await shown.press("enter")
        await shown.until_shown("line 62 of learner 1", "RuntimeError: CUDA out of memory", "esc closes")
        await shown.press("escape", "E")
        await shown.until(lambda: log(shown).state.cursor == 30)
        await shown.press("E")
        await shown.until_shown("no error above")


@journey
async def test_levels_hide_what_is_less_bad(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(b"INFO fine\nWARNING: odd\nERROR: bad\n" + seeding.TRACEBACK + b"INFO on\n")
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "INFO on")
        await shown.press("L")
        await shown.until_shown("5 of 7 lines", "warnings", "WARNING: odd")
        assert "INFO" not in shown.text()
        await shown.press("L")
        await shown.until_shown("4 of 7 lines", "errors")
        await shown.press("L")
        await shown.until_shown("INFO fine")


@journey
async def test_what_is_shown_is_saved_but_no_file_is_overwritten(
    home: Home, job: JobRow, output: seeding.JournalWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output.write(b"keep \x1b[31mred\x1b[0m\ndrop\nkeep two\n")
    async with opened(home, (160, 40), job=job.id) as shown:
        await open_log(shown, "keep two")
        await shown.press("backslash")
        await shown.type("keep")
        await shown.press("enter")
        await shown.until_shown("2 of 3 lines")
        for message in ("saved 2 lines", "exists already"):
            await shown.press("ctrl+s")
            await shown.until_shown("save to: digits.log")
            await shown.press("enter")
            await shown.until_shown(message)

    assert (tmp_path / "digits.log").read_text() == "keep red\nkeep two\n"


@journey
async def test_several_learners_are_merged_by_time_or_read_one_by_one(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, "pair", learners=2), *seeding.RUN_UP)
    first, second = (seeding.journal(home, row, learner=number) for number in (1, 2))
    first.write(b"first at 1\n", seconds=1)
    second.write(b"second at 2\n", seconds=2)
    first.write(b"first at 3\nfirst too\n", seconds=2)
    async with opened(home, job=row.id) as shown:
        await open_log(shown, "learner all", "1 first at 1", "2 second at 2")
        lines = [line[1:] for line in shown.text().split("\n") if " at " in line or "too" in line]
        assert lines == ["1 first at 1", "2 second at 2", "1 first at 3", "1 first too"]
        second.write(b"second at 9\n", seconds=7)
        await shown.until_shown("2 second at 9")
        await shown.press("slash")
        await shown.type("second")
        await shown.press("enter")
        await shown.until(lambda: log(shown).state.cursor in (1, 4))
        await shown.press("N", "N")
        await shown.until(lambda: log(shown).state.cursor == 1)
        await shown.press("backslash")
        await shown.type("first")
        await shown.press("enter")
        await shown.until_shown("3 of 5 lines")
        await shown.press("R")
        await shown.until_shown("learner 1", "first too")
        await shown.press("R", "escape")
        await shown.until_shown("learner 2", "second at 9")


@journey
async def test_the_log_of_an_earlier_attempt(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(b"of the first attempt\n")
    with Store.open(home) as store:
        seeding.go(store, job, State.FAILED, exit_code=1)
        new_attempt(store, job.id, Reason("resumed"), "ada", "cli")
        again = seeding.go(store, job, *seeding.RUN_UP)
    seeding.journal(home, again).write(b"of the second attempt\n")
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "attempt 2/2", "of the second")
        await shown.press("a")
        await shown.until_shown("attempt 1/2", "of the first")
        await shown.press("a")
        await shown.until_shown("attempt 2/2", "of the second")


@journey
async def test_a_file_that_is_cut_or_replaced_begins_anew(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    output.write(numbered(1, 1000))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "line 1000")
        output.folder.output.unlink()
        anew = seeding.JournalWriter(output.folder, job.submitted_us)
        anew.write(b"new file\n")
        await shown.until_shown("new file", "1 line")
        with anew.folder.output.open("r+b") as stream:
            stream.truncate(3)
        await shown.press("k", "g", "G")
        await shown.until_shown("logs")


@pytest.mark.parametrize(("key", "found"), [("backslash", "1 of 3 lines"), ("slash", "1 of 1")])
@journey
async def test_a_wrong_expression_that_is_mended_has_no_complaint_beside_it(
    home: Home, job: JobRow, output: seeding.JournalWriter, key: str, found: str
) -> None:
    output.write(b"hay\nneedle 1\nhay\n")
    async with opened(home, (120, 40), job=job.id) as shown:
        await open_log(shown, "needle 1", "3 lines")
        await shown.press(key)
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("/needle (/")
        await shown.press("enter")
        await shown.until_shown("is not a regular expression")
        await shown.press("backspace", "backspace", "backspace")
        await shown.until(lambda: "regular expression" not in shown.text())
        await shown.type("/")
        await shown.press("enter")
        await shown.until_shown("needle 1", found)


@pytest.mark.parametrize(("key", "found"), [("k", "8/9"), ("enter", "line 9 of learner 1")])
@journey
async def test_a_key_is_about_the_last_line_that_is_there_while_the_end_is_followed(
    home: Home,
    job: JobRow,
    output: seeding.JournalWriter,
    key: str,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output.write(numbered(1, 3))
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "follow", "3 lines")
        monkeypatch.setattr(Feed, "_tell", lambda self, force: None)
        output.write(numbered(4, 9))
        await shown.until(lambda: log(shown).document.count == 9)  # type: ignore[union-attr]
        await shown.press(key)
        await shown.until_shown(found)


@journey
async def test_a_line_of_fifty_megabytes(home: Home, job: JobRow, output: seeding.JournalWriter) -> None:
    output.write(b"before\n" + b"x" * (50 << 20) + b"\nafter\n")
    async with opened(home, job=job.id) as shown:
        await open_log(shown, "before", "xxxx", "after", "3 lines")
        await shown.press("k", "enter")
        await shown.until_shown("(the first 100,000 bytes)")


@journey
async def test_a_deleted_job_says_so_on_every_tab(
    home: Home, job: JobRow, output: seeding.JournalWriter
) -> None:
    from workbench.store.updates.deletion import mark_deleted

    output.write(numbered(1, 10))
    async with opened(home, job=job.id) as shown:
        await shown.until_shown("running for")
        with Store.open(home) as store:
            seeding.go(store, job, State.FAILED, exit_code=1)
            mark_deleted(store, job.id)
        await shown.until_shown("digits was deleted", "esc goes back to the jobs")
        for key in ("4", "5", "6", "7", "3"):
            await shown.press(key)
            await shown.until_shown("was deleted")
        await shown.press("x", "escape")
        await shown.until_shown("No jobs yet")
