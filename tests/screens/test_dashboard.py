"""The first page of a job: where it stands, its main charts, its usage, the end of its log, at every size."""

from __future__ import annotations

import re

import pytest
from textual.content import Content
from textual.visual import VisualType
from textual.widgets import Static

from screens.jobs.dashboard import Dashboard, OverviewPage, plan
from screens.jobs.text_pages import facts_page
from screens.style.themes import paint_of
from screens.widgets.markup import path_fact
from tests.screens import seeding
from tests.screens.support import SIZES, journey, opened
from workbench.job import Reason, State
from workbench.metric_names import main_metrics
from workbench.paths import Home
from workbench.services.inspect.job_overview import JobOverview, overview
from workbench.services.inspect.job_times import expected_end_us
from workbench.services.inspect.usage_history import usage_histories
from workbench.spec import DataStore
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail, job
from workbench.store.updates.jobs import new_attempt


def test_a_small_terminal_has_one_chart_and_five_lines_of_log() -> None:
    room = plan(78, 20, head=2, charts=4, usage=1, log=60)

    assert (room.chart_columns, room.chart_rows, room.log, room.usage) == (1, 1, 5, 1)
    assert room.height == 20


def test_a_large_terminal_is_filled() -> None:
    room = plan(130, 56, head=3, charts=4, usage=4, log=60)

    assert (room.chart_columns, room.chart_rows) == (2, 2)
    assert room.log >= 12
    assert 55 <= room.height <= 56


def test_a_job_without_metrics_gives_their_room_to_the_log() -> None:
    room = plan(78, 20, head=2, charts=0, usage=0, log=60)

    assert (room.chart, room.log, room.height) == (0, 17, 20)


@pytest.mark.parametrize("size", SIZES)
def test_everything_is_seen_at_once(home: Home, size: tuple[int, int]) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)

    @journey
    async def look() -> None:
        async with opened(home, size, job="mnist-wide") as shown:
            await shown.until_shown(
                "● processing", "50%", "epoch 5/10", "train/loss", "CPU", "log of learner 1"
            )
            page = shown.app.screen.query_one(OverviewPage)
            assert "submitted" in page.plain
            if size[0] > 150:
                await shown.until_shown("train/accuracy", "submitted", "job folder")
            else:
                await shown.press("G")
                await shown.until_shown("job folder")

    look()


@pytest.mark.parametrize("size", SIZES)
def test_the_facts_are_laid_out_for_one_width_alone(
    home: Home, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    widths = []

    def record(shown: JobOverview, now_us: int, width: int) -> Content:
        widths.append(width)
        return facts_page(shown, now_us, width)

    monkeypatch.setattr("screens.jobs.dashboard.facts_page", record)

    @journey
    async def look() -> None:
        async with opened(home, size, job="mnist-wide") as shown:
            await shown.until(lambda: shown.app.screen.query(OverviewPage))
            page = shown.app.screen.query_one(OverviewPage)
            await shown.until(lambda: "job folder" in page.plain and "step 19" in page.plain)

    look()

    assert set(widths) == {66 if size[0] > 150 else size[0] - 3}


def test_a_path_that_is_too_long_goes_on_below_after_a_slash() -> None:
    shown = path_fact("log", "/home/ada/.fabric/jobs/x/attempt-1/output.log", 40).plain

    assert shown.split("\n") == [
        "  log            /home/ada/.fabric/jobs/",
        "                 x/attempt-1/output.log",
    ]
    assert path_fact("log", "a" * 30, 40).plain.split("\n")[1].strip() == "a" * 7  # there is no slash


@journey
async def test_usage_without_room_for_all_of_it_counts_the_lines_that_are_left_out(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, learners=2, gpus=2), *seeding.RUN_UP)
        for learner in (1, 2):
            seeding.sample(store, row, [(1.0, 90.0, 1 << 30)], learner=learner, gpus=2)
    async with opened(home, (80, 24), job=row.id) as shown:
        await shown.until_shown("usage: 4 more lines on its own page ─", "1 CPU", "1 GPU 0 use")
        assert "2 CPU" not in shown.text()


@journey
async def test_a_line_of_the_log_that_is_cut_shows_it(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1), *seeding.RUN_UP)
    seeding.journal(home, row).write(b"x" * 300 + b"\nshort\n")
    async with opened(home, (80, 24), job=row.id) as shown:
        await shown.until_shown("log ─", "short")
        (line,) = [line for line in shown.text().split("\n") if "xxx" in line]
        assert line == " " + "x" * 76 + "…"


@journey
async def test_errors_in_the_end_of_the_log_are_lit(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home, (120, 40), job="mnist-big") as shown:
        await shown.until_shown("RuntimeError: CUDA out of memory", "exit 1")
        strips = shown.app.screen._compositor.render_strips(shown.app.size)
        (line,) = [strip for strip in strips if strip.text.startswith(" RuntimeError")]
        (plain,) = [strip for strip in strips if strip.text.startswith(" starting")]
        colour = {segment.style.color for segment in line if segment.style and segment.text.strip()}
        assert colour != {segment.style.color for segment in plain if segment.style and segment.text.strip()}


@journey
async def test_a_value_that_changes_beside_a_wrapped_line_lays_nothing_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
    wide, laid_out = "words " * 60, []
    async with opened(home, (200, 60), job="mnist-wide") as shown:
        await shown.until_shown("submitted")
        page = shown.app.screen.query_one(OverviewPage)

        def record(_self: Static, _content: VisualType = "", *, layout: bool = True) -> None:
            laid_out.append(layout)

        # Nothing is awaited from here on, so the page writes nothing of its own in between.
        monkeypatch.setattr(Static, "update", record)
        for text in (f"{wide}\nran 1 s", f"{wide}\nran 2 s", f"{wide}{wide}\nran 2 s"):
            page.show(Content(text))
        monkeypatch.undo()

    assert laid_out[1:] == [False, True]


def test_what_tells_good_from_bad_comes_first() -> None:
    names = ["lr", "train/accuracy", "val/loss", "grad_norm", "train/loss", "samples_per_second", "alpha"]

    assert main_metrics(names, 4) == ("train/loss", "val/loss", "train/accuracy", "alpha")
    assert main_metrics(["lr"], 4) == ("lr",)


def test_the_end_of_a_job_is_expected_at_the_rate_of_its_progress(home: Home) -> None:
    from workbench.metrics.queries import ProgressRow

    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1), *seeding.RUN_UP)
        started = row.started_us
        assert started is not None
        quarter = ProgressRow(1, 1, started + 60 * seeding.SECOND_US, 0.25, "")
        assert expected_end_us(row, quarter) == started + 240 * seeding.SECOND_US
        assert expected_end_us(row, ProgressRow(1, 1, started, 0.5, "")) is None
        assert expected_end_us(row, ProgressRow(1, 1, started + 1, None, "")) is None
        assert expected_end_us(row, None) is None
        over = seeding.go(store, row, State.STORING, State.COMPLETED, exit_code=0)
        assert expected_end_us(over, quarter) is None


@journey
async def test_the_end_of_a_resumed_job_is_expected_at_its_rate_since_the_resume(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, age_seconds=9000), *seeding.RUN_UP)
        seeding.report(store, row, {"loss": [2.0, 1.0]})
        seeding.go(store, row, State.STORING, State.HALTED, exit_code=0, exit_by="job")
        new_attempt(store, row.id, Reason("resumed"), "ada", "cli")
        waits = seeding.go(store, row, State.PENDING)
        row = seeding.go(store, row, State.DOWNLOADING, State.PROCESSING)
        start = seeding.NOW_US - 200 * seeding.SECOND_US
        points = [
            (start, 0.5),
            (start + 100 * seeding.SECOND_US, 0.55),
            (start + 200 * seeding.SECOND_US, 0.6),
        ]
        for number, (time_us, fraction) in enumerate(points, start=1):
            seeding.report_progress(store, row, fraction, time_us, seq=number)
        overview_now = overview(store, row.id, seeding.NOW_US)
        first, last = overview_now.first_progress, overview_now.progress
        assert row.attempt == 2 and first is not None and last is not None
        assert expected_end_us(row, last, first) == seeding.NOW_US + 800 * seeding.SECOND_US
        assert expected_end_us(row, last) is None
        assert expected_end_us(row, first, first) is None  # nothing has been done since
        assert expected_end_us(waits, last, first) is None
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("60%", " 13m")
        await shown.press("enter")
        await shown.until_shown("done in about 13 min 20 s")


@journey
async def test_results_that_went_to_a_store_are_named_by_its_address(home: Home) -> None:
    bucket = DataStore("lab", "s3", training_results="trained", connection={"auth_url": "http://box:9000"})
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, data_stores=(bucket,)), *seeding.RUN_UP)
        seeding.remember_runs(store)
        assert overview(store, row.id, seeding.NOW_US).results == f"http://box:9000 trained/{row.id}"
    async with opened(home, (200, 60), job=row.id) as shown:
        await shown.until_shown("1 overview", "http://box:9000 trained/training-")


def test_usage_is_read_as_stretches_of_time_with_limits(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, gpus=1), *seeding.RUN_UP)
        seeding.sample(store, row, [(0, 100.0, 1 << 30), (10, 300.0, 2 << 30), (100, 200.0, 3 << 30)])
        found = usage_histories(store, row.id, detail(store, row.id).spec, width=3, learners=8)
        current = job(store, row.id)

    cpu = next(history for history in found if history.measure == "cpu_percent")
    assert current is not None and cpu.last == 200.0
    assert cpu.values == (300.0, None, 200.0)
    gpu = next(history for history in found if history.measure == "utilization_percent")
    assert (gpu.gpu, gpu.limit) == ("GPU-0", 100.0)


@journey
async def test_usage_stands_against_its_limits(home: Home) -> None:
    gib = 1 << 30
    with Store.open(home) as store:
        row = seeding.add_job(store, 1, gpus=2, cpus=4.0, memory_bytes=38 * gib)
        row = seeding.go(store, row, *seeding.RUN_UP)
        seeding.sample(store, row, [(10.0 * at, 20.0 * at, at * gib) for at in range(1, 20)], gpus=2)
    async with opened(home, (120, 40), job=row.id) as shown:
        await shown.until_shown("1 overview", "GPU 1 memory")
        dashboard = shown.app.screen.query_one(Dashboard)

        found = {
            name: re.search(rf"{name} +(\S+(?: GiB)?)(?: of (\S+(?: GiB)?))? +([▁-█]+)", dashboard.plain)
            for name in ("CPU", "memory", "GPU 0 use", "GPU 0 memory", "GPU 1 memory")
        }
        values = {name: one and one.groups() for name, one in found.items()}
        lines = dashboard.made_lines()
        warning = paint_of(dashboard).style("warning").color

    curve = "".join("▁▂▃▄▅▆▇█"[int(at / 20 * 8)] for at in range(1, 20))
    half = "".join("▁▂▃▄▅▆▇█"[int(at / 38 * 8)] for at in range(1, 20))
    assert values == {
        "CPU": ("380%", "400%", curve),
        "memory": ("19.0 GiB", "38.0 GiB", half),
        "GPU 0 use": ("95%", None, curve),
        "GPU 0 memory": ("76.0 GiB", "80.0 GiB", curve),
        "GPU 1 memory": ("76.0 GiB", "80.0 GiB", curve),
    }
    lit = [part.text for line in lines for part in line if part.style and part.style.color == warning]
    assert [one.strip() for one in lit] == ["76.0 GiB"] * 2


@journey
async def test_a_terminal_that_is_too_small_shows_the_last_lines_of_the_job(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home, (40, 10), job="mnist-wide") as shown:
        await shown.until_shown("fabric needs 60x15, this is 40x10", "step 19 loss", "step 18 loss")
        await shown.press("escape")
        await shown.until_shown("fabric needs 60x15, this is 40x10", "step 19 loss")
