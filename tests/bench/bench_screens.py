"""How fast the screens are: first paint beside an empty Textual app, keys, a log of a million lines, charts, idling."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

from tests.bench import screen_bytes
from tests.bench.harness import FABRIC, Row, fresh_home, in_turn
from tests.bench.screen_floors import (
    EMPTY_APP,
    FULL_APP,
    cpu_seconds,
    data_table_costs,
    empty_app_costs,
    grep_seconds,
    idle,
    idle_empty_app,
    on_terminal,
    select_seconds,
    tail_costs,
)
from tests.support.screen_terminal import PtyTerminal
from workbench.paths import Home
from workbench.store.db.database import Store

LINES = 1_000_000
POINTS = 10_000_000
LARGE = 200, 60
"""A terminal that fills a screen."""


def rows() -> list[Row]:
    """Return every figure."""
    return [
        *first_paint(),
        *asyncio.run(_keys()),
        *asyncio.run(_long_log()),
        *asyncio.run(_live_log()),
        *_points(),
        *_charts(),
        *_search(),
        *_idle(),
        *screen_bytes.rows(),
    ]


def first_paint() -> list[Row]:
    """Time from the start of the process to the first job on the screen, of 10,000."""
    with fresh_home() as environment:
        _fill(Home(Path(environment["FABRIC_HOME"])), 10_000)
        ours, theirs = in_turn(
            lambda: _seconds_to(b"sweep-09999", [FABRIC, "tui"], environment),
            lambda: _seconds_to(b"sweep-09999", [sys.executable, "-c", EMPTY_APP], environment),
            runs=7,
        )
    return [
        Row(
            "first paint of 10,000 jobs",
            ours,
            "s",
            "an empty Textual app",
            theirs,
            "<= 2 x",
            ours <= 2 * theirs,
        ),
        Row("first paint of 10,000 jobs", ours, "s", "", None, "<= 0.6 s", ours <= 0.6),
    ]


@contextmanager
def _own_home() -> Iterator[Home]:
    """Give a home of its own, without a controller: it would take a job that runs only on paper, and start it again."""
    import pytest

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRIC_NO_CONTROLLER", "1")
        yield Home(Path(folder) / "home")


def _fill(home: Home, count: int) -> None:
    from tests.screens import seeding

    with Store.open(home) as store:
        seeding.many_runs(store, count)
        seeding.remember_runs(store)


def _seconds_to(wanted: bytes, argv: list[str], environment: dict[str, str]) -> float:
    """Start a process on a terminal of 120x40, and return how long it takes until some bytes are on it."""
    started = time.perf_counter()
    process, master = on_terminal(argv, environment)
    seen = b""
    try:
        while wanted not in seen:
            if not select.select([master], [], [], 20)[0]:
                raise SystemExit(f"{argv} never showed {wanted!r}: {seen[-500:]!r}")
            seen = (seen + os.read(master, 1 << 16))[-(1 << 17) :]
        return time.perf_counter() - started
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


async def _keys() -> list[Row]:
    """CPU from a key to its paint, at 120x40, in the table of 10,000 jobs."""
    from tests.screens.support import opened

    with _own_home() as home, _garbage_as_fabric_has_it():
        _fill(home, 10_000)
        async with opened(home, (120, 40)) as shown:
            await shown.until_shown("sweep-09999")
            await shown.pilot.pause(0.5)
            costs = []
            for _ in range(200):
                before = time.process_time()
                await shown.press("j")
                costs.append(time.process_time() - before)
        p95 = statistics.quantiles(costs, n=20)[-1] * 1000
        floor = await empty_app_costs(200, (120, 40))
        table = await data_table_costs(10_000, 200, (120, 40))
    what, plain = "key to paint in the table, p95", "a plain DataTable"
    return [
        Row(what, p95, "ms CPU", "a Static that shows the key", floor, "<= 20 ms", p95 <= 20),
        Row(what, p95, "ms CPU", plain, table, "<= 1 x", p95 <= table),
    ]


@contextmanager
def _garbage_as_fabric_has_it() -> Iterator[None]:
    """Look for garbage as seldom as the program does: with Python's own thresholds that is each 30th key."""
    import gc

    from fabric_workbench import GARBAGE_THRESHOLDS

    before = gc.get_threshold()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


async def _long_log() -> list[Row]:
    """Open, search and filter a log of a million lines (99 MB)."""
    from screens.logs.document import Sieve
    from screens.logs.view import LogView
    from tests.screens import seeding
    from tests.screens.support import opened
    from workbench.logs.grep import Pattern

    with _own_home() as home:
        with Store.open(home) as store:
            job = seeding.go(store, seeding.add_job(store, 1, "long"), *seeding.RUN_UP)
        writer = seeding.journal(home, job)
        for start in range(0, LINES, 10_000):
            writer.write(b"".join(b"%07d " % n + b"x" * 90 + b"\n" for n in range(start, start + 10_000)))
        writer.write(b"needle\n")
        async with opened(home, (120, 40), job=job.id) as shown:
            await shown.until_shown("1 overview")
            view = shown.app.screen.query_one(LogView)
            memory = _memory_mib()
            # It was opened with the screen, in the background: time it anew.
            started = time.perf_counter()
            view.open_log()
            await _until(lambda: view.document is not None and view.document.count == LINES + 1)
            opening = time.perf_counter() - started
            memory = _memory_mib() - memory
            document = view.document
            assert document is not None
            await _until(lambda: len(document.sources[0].levels.kinds) >= LINES)
            started = time.perf_counter()
            found = document.search(
                Pattern("needle", literal=True), 0, backward=False, cancelled=lambda: False
            )
            finding = time.perf_counter() - started
            assert found == LINES
            started = time.perf_counter()
            view.feed.sift(Sieve(Pattern("99 x", literal=True)))
            await _until(lambda: document.count and document.epoch > 0 and document.count < LINES)
            filtering = time.perf_counter() - started
            floor = _read_seconds(writer.folder.output)
            grep = grep_seconds(writer.folder.output, "-c", "needle")
            first = grep_seconds(writer.folder.output, "-m", "30", "99 x")
    return [
        Row(
            "log of 1,000,000 lines opened",
            opening,
            "s",
            "reading the file once",
            floor,
            "<= 0.3 s",
            opening <= 0.3,
        ),
        Row(
            "memory that it takes",
            memory,
            "MiB",
            "8 bytes a line",
            LINES * 8 / (1 << 20),
            "<= 40 MiB",
            memory <= 40,
        ),
        Row("find through it", finding, "s", "`grep -c`", grep, "<= 0.5 s", finding <= 0.5),
        Row("filter, first hits", filtering, "s", "`grep -m 30`", first, "<= 0.1 s", filtering <= 0.1),
    ]


async def _until(condition: Callable[[], Any]) -> None:
    """Wait without the pilot, whose pauses ask every widget whether it rests: that would be measured, too."""
    deadline = time.monotonic() + 60
    while not condition():
        await asyncio.sleep(0.005)
        if time.monotonic() > deadline:
            raise SystemExit("it took a minute")


def _read_seconds(file: Path) -> float:
    started = time.perf_counter()
    with file.open("rb") as stream:
        while stream.read(1 << 20):
            pass
    return time.perf_counter() - started


async def _live_log() -> list[Row]:
    """Follow a log that grows by 50,000 lines a second."""
    from screens.logs.view import LogView
    from tests.screens import seeding
    from tests.screens.support import opened

    with _own_home() as home:
        with Store.open(home) as store:
            job = seeding.go(store, seeding.add_job(store, 1, "live"), *seeding.RUN_UP)
        writer = seeding.journal(home, job)
        writer.write(b"first\n")
        async with opened(home, (120, 40), job=job.id) as shown:
            await shown.until_shown("1 overview")
            await shown.press("l")
            await shown.until_shown("first")
            view = shown.app.screen.query_one(LogView)
            stop, block = threading.Event(), b"".join(b"%04d " % n + b"x" * 94 + b"\n" for n in range(500))
            written = [1]

            def write() -> None:
                start = time.monotonic()
                while not stop.wait(max(0.0, start + (written[0] - 1) / 50_000 - time.monotonic())):
                    writer.write(block)
                    written[0] += 500

            thread = threading.Thread(target=write)
            thread.start()
            await shown.pilot.pause(1.0)
            lags, cpu, began = [], time.process_time(), time.monotonic()
            while time.monotonic() - began < 4:
                await shown.pilot.pause(0.05)
                lags.append((written[0] - view.state.known_rows) / 50_000 * 1000)
            share = (time.process_time() - cpu) / (time.monotonic() - began)
            tail, tail_share = tail_costs(writer.folder.output, lambda: written[0], 50_000, 3)
            stop.set()
            thread.join()
    lag = statistics.quantiles(lags, n=20)[-1]
    return [
        Row("log of 50,000 lines/s, behind by, p95", lag, "ms", "`tail -f`", tail, "<= 200 ms", lag <= 200),
        Row(
            "the same, with the writer in this process",
            share,
            "cores",
            "`tail -f`",
            tail_share,
            "<= 1 core",
            share <= 1,
        ),
    ]


def _points() -> list[Row]:
    """Read the points of one chart of a series of ten million."""
    from screens.charts.plot import ChartView
    from screens.charts.queries import Charted, charts_page
    from tests.screens import seeding

    with _own_home() as home:
        with Store.open(home) as store:
            job = seeding.go(store, seeding.add_job(store, 1, "points"), *seeding.RUN_UP)
            seeding.many_points(store, job, POINTS)
            charted = (Charted(job.id, "points", 0),)
            costs = []
            for _ in range(5):
                started = time.perf_counter()
                page = charts_page(charted, ("train/loss",), 110, ChartView(), ("value",))(store)
                drawn = _draw(page.charts["train/loss"])
                costs.append(time.perf_counter() - started)
        floor = statistics.median(select_seconds(home.database, 220) for _ in range(5)) * 1000
    assert drawn > 30
    seconds = statistics.median(costs)
    what = f"chart of {POINTS:,} points, read and drawn"
    return [Row(what, seconds * 1000, "ms", "a bare SELECT of 220 rows", floor, "<= 100 ms", seconds <= 0.1)]


def _draw(data: Any) -> int:  # a ChartData
    from screens.charts.plot import ChartView, draw, x_axis

    return len(draw(data.curves, ChartView(), x_axis(data.curves, ChartView()), 120, 38))


def _charts() -> list[Row]:
    """Twelve charts, and a dashboard with four, of a job that reports four times a second."""
    names = [f"m{number:02}" for number in range(12)]
    all_charts = _live_charts(names, b"m", ("m00", "m11"))
    four = ["loss", "accuracy", "error", "f1"]
    dashboard = _live_charts(four, b"", four)
    floor = _full_screen()
    peer = "a Static that fills the screen"
    return [
        Row(what, share * 100, "% of a core", peer, floor * 100, "<= 10 %", share <= 0.1)
        for what, share in (
            ("twelve charts at 4 Hz", all_charts),
            ("a dashboard with four charts at 4 Hz", dashboard),
        )
    ]


def _live_charts(names: Sequence[str], keys: bytes, shows: Sequence[str]) -> float:
    """Return the share of a core that the screens take while another process gives metrics four points a second."""
    from tests.screens import seeding

    with fresh_home() as environment, Store.open(Home(Path(environment["FABRIC_HOME"]))) as store:
        job = seeding.go(store, seeding.add_job(store, 1, "charts"), *seeding.RUN_UP)
        seeding.report(store, job, {name: seeding.falling(1000) for name in names})
        terminal = PtyTerminal([FABRIC, "tui", job.id], environment, LARGE)
        try:
            terminal.until(lambda: "1 overview" in terminal.shown)
            terminal.type(keys)
            terminal.until(lambda: all(part in terminal.shown for part in shows))
            steps = iter(range(1001, 100_000))
            _share_of(terminal, 2, lambda: seeding.one_more_point(store, job, names, next(steps)))
            return _share_of(terminal, 10, lambda: seeding.one_more_point(store, job, names, next(steps)))
        finally:
            terminal.close()


def _full_screen() -> float:
    """Return the share of a core that an app takes which draws a whole screen anew four times a second."""
    with fresh_home() as environment:
        terminal = PtyTerminal([sys.executable, "-c", FULL_APP], environment, LARGE)
        try:
            terminal.until(lambda: "00000003" in terminal.shown)
            return _share_of(terminal, 10, lambda: None)
        finally:
            terminal.close()


def _share_of(terminal: PtyTerminal, seconds: float, act: Callable[[], object]) -> float:
    """Return the share of a core of what runs on a terminal, while something is done four times a second."""
    spent, began = cpu_seconds(terminal.process.pid), time.monotonic()
    while time.monotonic() - began < seconds:
        act()
        time.sleep(0.25)
    return (cpu_seconds(terminal.process.pid) - spent) / (time.monotonic() - began)


def _search() -> list[Row]:
    """CPU from what was read of a search of 1,000 trials to its table, curves and scatter at 200x60."""
    from screens.charts import plot
    from screens.charts.plot import ChartView
    from screens.jobs.search_pages import curves_chart, scatter_values, trial_table
    from tests.screens import seeding
    from workbench.services.inspect.search_standing import SearchReader

    with _own_home() as home, Store.open(home) as store:
        reader = SearchReader(seeding.search(store, 1_000, epochs=81, has_jobs=False))
        standing = reader(store)
    assert standing is not None
    costs = []
    for number in range(1, 11):
        before = time.process_time()
        trial_table(standing, "best", is_reversed=False)
        curves = curves_chart(standing, number).curves
        plot.draw(curves, ChartView(), plot.x_axis(curves, ChartView()), 100, 25)
        scatter_values(standing, number, "lr", logarithmic=False).draw(100, 25, marked=False)
        costs.append(time.process_time() - before)
    cost = statistics.median(costs) * 1000
    return [Row("a search of 1,000 trials, drawn whole", cost, "ms CPU", "", None, "<= 100 ms", cost <= 100)]


def _idle() -> list[Row]:
    """CPU and memory of the screens with 200 jobs while nothing happens."""
    with fresh_home() as environment:
        _fill(Home(Path(environment["FABRIC_HOME"])), 200)
        share, memory = idle([FABRIC, "tui"], environment)
        floor, least = idle_empty_app(environment)
    peer = "an empty Textual app"
    return [
        Row("idle with 200 jobs", share, "% of a core", peer, floor, "<= 3 %", share <= 3),
        Row("memory, idle", memory, "MiB", peer, least, "<= 120 MiB", memory <= 120),
    ]


def main() -> None:
    """Print the figures that were named, or all."""
    from tests.bench.harness import table

    known: dict[str, Callable[[], list[Row]]] = {
        "paint": first_paint,
        "keys": lambda: _run(_keys()),
        "log": lambda: _run(_long_log()),
        "live": lambda: _run(_live_log()),
        "points": _points,
        "charts": _charts,
        "idle": _idle,
        "bytes": screen_bytes.rows,
    }
    print(table([row for name in sys.argv[1:] or known for row in known[name]()]))


def _run(coroutine: Coroutine[Any, Any, list[Row]]) -> list[Row]:
    return asyncio.run(coroutine)


if __name__ == "__main__":
    main()
