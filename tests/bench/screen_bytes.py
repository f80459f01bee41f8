"""What the screens write to a terminal: bytes a key, bytes a second, and how long a key takes over a slow link."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.bench.harness import FABRIC, Row, fresh_home
from tests.support.screen_terminal import PtyTerminal
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job

JOBS = 10_000
DATA_TABLE = f"""
from textual.app import App
from textual.widgets import DataTable
class Table(App[None]):
    def compose(self):
        yield DataTable(cursor_type="row")
    def on_mount(self):
        table = self.query_one(DataTable)
        table.add_columns("state", "name", "id", "backend", "age", "why")
        for n in range({JOBS}):
            row = "completed", f"sweep-{{{JOBS} - 1 - n:05}}", f"abc{{n:06}}", "local", f"{{n}} d", "ended with 0"
            table.add_row(*row)
Table().run()
"""
DOWN = b"\x1b[B"
LINK_BYTES_PER_SECOND, LINK_DELAY_SECONDS = 20_000, 0.2
LINES_PER_SECOND = 1000
KEYS = 20
"""How many keys are pressed; the median of their bytes counts."""


def rows() -> list[Row]:
    """Return every figure."""
    from tests.screens import seeding

    with fresh_home() as environment:
        with Store.open(Home(Path(environment["FABRIC_HOME"]))) as store:
            seeding.many_runs(store, JOBS)
            seeding.remember_runs(store)
        idle, key = _list_bytes([FABRIC, "tui"], environment)
        _, floor = _list_bytes([sys.executable, "-c", DATA_TABLE], environment)
        with Store.open(Home(Path(environment["FABRIC_HOME"]))) as store:
            newest = [job(store, seeding.job_id(JOBS - 1 - at)) for at in range(KEYS + 5)]
            seeding.print_and_report(store, [row for row in newest if row is not None])
            still, filled = _list_bytes([FABRIC, "tui"], environment, shows="epoch 59 loss")
            with seeding.working(store):
                working, _ = _list_bytes([FABRIC, "tui"], environment, shows="at-work", keys=0)
    slow = _key_over_a_slow_link()
    scrolled = _bytes_beside_a_log()
    return [
        Row("bytes a second, idle list of 10,000 jobs", idle, "B/s", "", None, "0", idle == 0),
        Row("bytes a key in it", key, "B", "a plain DataTable", floor, "<= 2 x", key <= 2 * floor),
        Row(
            "bytes a second, the same with chart and log in the preview",
            still,
            "B/s",
            "",
            None,
            "0",
            still == 0,
        ),
        Row(
            "bytes a key where it changes chart and log of the preview",
            filled,
            "B",
            "",
            None,
            "<= 6 kB",
            filled <= 6000,
        ),
        Row(
            "bytes a second, the list beside a job that prints and reports each second",
            working,
            "B/s",
            "",
            None,
            "<= 1 kB/s",
            working <= 1000,
        ),
        Row(
            "bytes a second, a log scrolled up while 1,000 lines/s come",
            scrolled,
            "B/s",
            "",
            None,
            "<= 2 kB/s",
            scrolled <= 2000,
        ),
        Row(
            "key to its paint over 20 kB/s and 200 ms, beside 1,000 lines/s",
            slow,
            "s",
            "the link, both ways",
            2 * LINK_DELAY_SECONDS,
            "<= 2 s",
            slow <= 2,
        ),
    ]


def _list_bytes(
    argv: Sequence[str], environment: Mapping[str, str], shows: str = f"sweep-{JOBS - 1:05}", keys: int = KEYS
) -> tuple[float, float]:
    """Return how many bytes a list writes each second while no key is pressed, and how many for a key."""
    terminal = PtyTerminal(argv, environment)
    try:
        terminal.until(lambda: shows in terminal.shown)
        terminal.until_quiet(0.7 if keys else 0.2)
        idle = _bytes_per_second(terminal)
        costs = []
        for _ in range(keys):
            before = terminal.count
            terminal.type(DOWN)
            terminal.until_quiet(0.4)
            costs.append(terminal.count - before)
        return idle, statistics.median(costs or [0])
    finally:
        terminal.close()


def _bytes_per_second(terminal: PtyTerminal, seconds: float = 5.0) -> float:
    before, began = terminal.count, time.monotonic()
    time.sleep(seconds)
    return (terminal.count - before) / (time.monotonic() - began)


def _bytes_beside_a_log() -> float:
    """Return how many bytes a second a log writes that somebody has scrolled up in, while lines come."""
    with fresh_home() as environment, _chatty(Home(Path(environment["FABRIC_HOME"]))):
        terminal = PtyTerminal([FABRIC, "tui", "chatty"], environment)
        try:
            terminal.until(lambda: "1 overview" in terminal.shown)
            terminal.type(b"l")
            terminal.until(lambda: "follow" in terminal.shown and "loss" in terminal.shown)
            terminal.type(b"k" * 5)
            terminal.until(lambda: "new lines" in terminal.shown)
            return _bytes_per_second(terminal)
        finally:
            terminal.close()


def _key_over_a_slow_link() -> float:
    """Return how many seconds the help takes to appear while a log is followed, the median of five."""
    with fresh_home() as environment, _chatty(Home(Path(environment["FABRIC_HOME"]))):
        terminal = PtyTerminal(
            [FABRIC, "tui", "chatty"],
            environment,
            bytes_per_second=LINK_BYTES_PER_SECOND,
            delay_seconds=LINK_DELAY_SECONDS,
        )
        try:
            terminal.until(lambda: "1 overview" in terminal.shown)
            terminal.type(b"l")
            terminal.until(lambda: "loss" in terminal.shown)
            took = []
            for _ in range(5):
                shown = terminal.count
                terminal.until(lambda shown=shown: terminal.count > shown + 40_000)  # type: ignore[misc]
                terminal.type(b"?")
                took.append(terminal.until(lambda: "esc closes" in terminal.shown))
                terminal.type(b"\x1b")
                terminal.until(lambda: "esc closes" not in terminal.shown)
            return statistics.median(took)
        finally:
            terminal.close()


def _chatty(home: Home) -> AbstractContextManager[None]:
    """Have a job that prints lines all the time."""
    from tests.screens import seeding

    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, "chatty"), *seeding.RUN_UP)
    return seeding.printing(home, row, LINES_PER_SECOND)


def main() -> None:
    """Print the figures."""
    from tests.bench.harness import table

    print(table(rows()))


if __name__ == "__main__":
    main()
