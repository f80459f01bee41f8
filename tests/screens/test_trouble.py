from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from screens.app.app import FabricApp, exit_summary, run
from screens.jobs.table import JobTable
from tests.screens import seeding
from tests.screens.support import journey, opened
from workbench.cli.framework.run_options import read_run_options
from workbench.errors import UnknownName
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import open_jobs


@journey
async def test_a_locked_store_is_reported_and_read_as_soon_as_it_is_free(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.workers.reader.LOCKED_SECONDS", 0.05)
    monkeypatch.setattr("screens.workers.reader.RETRY_SECONDS", 0.05)
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    holder = sqlite3.connect(home.database, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")

    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("is locked by another process", "try again in a moment")
        holder.close()
        await shown.until_shown("3 jobs", "mnist-big")
        await shown.until(lambda: "locked" not in shown.text())


@journey
async def test_a_store_of_a_newer_version_is_reported(home: Home) -> None:
    with Store.open(home) as store:
        store.execute("PRAGMA user_version = 99")

    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("from a newer version of fabric")
        # Where the line breaks depends on the home's path.
        assert "(upgrade fabric)" in " ".join(shown.text().split())


@journey
async def test_a_store_that_turns_newer_meanwhile_keeps_the_last_rows(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
        async with opened(home, (120, 40)) as shown:
            await shown.until_shown("mnist-big")
            store.execute("PRAGMA user_version = 99")
            message = (
                "was changed by another version",
                "from a newer version of fabric",
            )  # now, and a second later
            await shown.until(
                lambda: any(each in shown.text() for each in message) and "mnist-big" in shown.text()
            )


@journey
async def test_a_bug_in_a_query_is_reported_and_the_screens_stay(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.workers.reader.RETRY_SECONDS", 0.05)
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)

    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oops")

    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        with monkeypatch.context() as patch:
            patch.setattr("screens.jobs.queries.window", broken)
            with Store.open(home) as store:
                seeding.add_job(store, 9, "newcomer", age_seconds=1)
            await shown.until_shown("reading failed: ZeroDivisionError: oops", "mnist-big")
        await shown.until_shown("newcomer")


@journey
async def test_a_job_file_that_is_gone_is_reported_in_the_overview(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.three_runs(store)[2]
    home.job(row.id).job_file.unlink()

    async with opened(home, (120, 40), job=row.id) as shown:
        await shown.until_shown("cannot be read", "running for")
        await shown.press("5")
        await shown.until_shown("cannot be read")


def test_an_unknown_job_is_refused_before_the_screen_is_taken(home: Home) -> None:
    with pytest.raises(UnknownName):
        run(home, read_run_options=read_run_options, job="nothing-like-it")


def test_leaving_says_which_jobs_go_on(home: Home) -> None:
    with Store.open(home) as store:
        rows = seeding.three_runs(store)
        for number in range(20, 32):
            seeding.add_job(store, number, f"waiting-{number}")
        summary = exit_summary(open_jobs(store))

    assert summary.startswith("13 jobs are still running or waiting:\n")
    assert "waiting-31" in summary and "  and 3 more\n" in summary
    assert rows[0].name not in summary
    assert exit_summary([]) == ""
    assert "1 job is still running or waiting:" in exit_summary([rows[2]])


@journey
async def test_leaving_asks_nobody_and_ends_with_zero(home: Home) -> None:
    async with opened(home) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("q")
        await shown.until(lambda: shown.app.return_code == 0)


@journey
async def test_without_colours_the_cursor_is_still_seen(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)

    async with opened(home) as shown:
        await shown.until_shown("mnist-big")
        assert shown.app.no_color
        rows = shown.app.screen._compositor.render_strips(shown.app.size)
        marked = [strip for strip in rows if any(s.style and s.style.reverse for s in strip)]
        assert "mnist-wide" in marked[0].text
        await shown.press("T")
        await shown.until_shown("NO_COLOR is set")


@journey
async def test_every_theme_paints_every_role(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("mnist-big")
        for theme in sorted(shown.app.available_themes):
            shown.app.theme = theme
            await shown.pilot.pause()
            for role in ("processing", "failed", "dim", "curve-1", "curve-8", "key", "error"):
                assert shown.app.paint.style(role).color is not None, f"{theme}: {role}"


@journey
async def test_with_ascii_nothing_else_is_drawn(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from screens.style.glyphs import glyphs

    monkeypatch.setenv("FABRIC_ASCII", "1")
    glyphs.cache_clear()
    with Store.open(home) as store:
        row = seeding.three_runs(store)[2]
    async with opened(home, (120, 40), job=row.id) as shown:
        await shown.until_shown("* processing")
        for key in "1234567":
            await shown.press(key)
            await shown.pilot.pause(0.1)
            assert shown.text().isascii(), shown.text()
            await shown.press("right_square_bracket") if key in "23" else None
        shown.app.go_home()
        for key in ("n", "P", "B", "ctrl+o", "question_mark"):
            await shown.press(key)
            await shown.pilot.pause(0.1)
            assert shown.text().isascii(), shown.text()
            await shown.press("escape")
            shown.app.go_home()


@journey
async def test_keys_are_answered_while_somebody_else_writes_for_long(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("mnist-big")
        holder = sqlite3.connect(home.database, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")  # nobody else can write: neither a request nor how the screens look
        try:
            await shown.press("s", "S")
            for key, part in (("question_mark", "Keys"), ("n", "give a command, e.g.")):
                await shown.press(key)
                await shown.until_shown(part)
                await shown.press("escape")
            await shown.press("G")
            await shown.until(lambda: shown.app.screen.query_one(JobTable).job is not None)
        finally:
            holder.close()
        with Store.open(home) as store:
            seeding.add_job(store, 9, "newcomer", age_seconds=1)
        await shown.until_shown("newcomer")


@journey
async def test_the_smallest_terminal_does_not_break_it(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("1 overview")
        for size in ((20, 5), (1, 1), (60, 15), (200, 60), (3, 40), (80, 24)):
            await shown.pilot.resize_terminal(*size)
            await shown.pilot.pause()
        await shown.until_shown("1 overview", "running for")


def test_the_app_starts_no_thread_before_it_runs(home: Home) -> None:
    FabricApp(home, read_run_options=read_run_options)
    assert not home.path.exists()


def test_nothing_is_imported_for_the_list_that_only_other_pages_and_the_parser_need() -> None:
    script = (
        "import sys; import workbench.cli.commands.upkeep.open_screens, screens.app.app; print(*sys.modules)"
    )
    argv = [sys.executable, "-c", script]
    imported = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())

    late = {
        "typer",
        "backends.contract.host",
        "screens.charts.queries",
        "screens.jobs.files",
        "screens.launch.draft",
        "workbench.learner",
        "workbench.manifest",
        "workbench.metrics.queries",
        "workbench.store.updates",
    }
    assert imported & late == set()
