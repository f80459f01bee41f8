"""What the screens write to a terminal: bytes a key, bytes a second, and how long a key takes over a slow link."""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.harness import FABRIC, Row, fresh_home
from tests.screens.pty_terminal import PtyTerminal
from workbench.paths import Home
from workbench.store.db.database import Store

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


def rows() -> list[Row]:
    """Return every figure."""
    from tests.screens import seeding

    with fresh_home() as environment:
        with Store.open(Home(Path(environment["FABRIC_HOME"]))) as store:
            seeding.many_runs(store, JOBS)
            seeding.remember_runs(store)
        idle, key = _list_bytes([FABRIC, "tui"], environment)
        _, floor = _list_bytes([sys.executable, "-c", DATA_TABLE], environment)
    slow = _key_over_a_slow_link()
    return [
        Row("bytes a second, idle list of 10,000 jobs", idle, "B/s", "", None, "0", idle == 0),
        Row("bytes a key in it", key, "B", "a plain DataTable", floor, "<= 2 x", key <= 2 * floor),
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


def _list_bytes(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return how many bytes a list writes each second while nothing happens, and how many for a key."""
    terminal = PtyTerminal(argv, environment)
    try:
        terminal.until(lambda: f"sweep-{JOBS - 1:05}" in terminal.shown)
        terminal.until_quiet()
        before, began = terminal.count, time.monotonic()
        time.sleep(5)
        idle = (terminal.count - before) / (time.monotonic() - began)
        costs = []
        for _ in range(20):
            before = terminal.count
            terminal.type(DOWN)
            terminal.until_quiet(0.4)
            costs.append(terminal.count - before)
        return idle, statistics.median(costs)
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


@contextmanager
def _chatty(home: Home) -> Iterator[None]:
    """Have a job that prints lines all the time, no two alike."""
    from tests.screens import seeding

    with Store.open(home) as store:
        job = seeding.go(store, seeding.add_job(store, 1, "chatty"), *seeding.RUN_UP)
    writer, stop, numbers = seeding.journal(home, job), threading.Event(), random.Random(20)

    def write() -> None:
        while not stop.wait(0.05):
            lines = LINES_PER_SECOND // 20
            writer.write(b"".join(b"loss %.20f\n" % (numbers.random() * 10**50) for _ in range(lines)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    """Print the figures."""
    from tests.bench.harness import table

    print(table(rows()))


if __name__ == "__main__":
    main()
