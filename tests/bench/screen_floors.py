"""What the screens are measured against: the same thing done by the plainest means, in the same run."""

from __future__ import annotations

import os
import pty
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App

EMPTY_APP = """
from textual.app import App, ComposeResult
from textual.widgets import Static
class Empty(App[None]):
    def compose(self) -> ComposeResult:
        yield Static("sweep-09999")
Empty().run()
"""
FULL_APP = """
from textual.app import App, ComposeResult
from textual.widgets import Static
class Full(App[None]):
    number = 0
    def compose(self) -> ComposeResult:
        yield Static("")
    def on_mount(self) -> None:
        self.set_interval(0.25, self.draw)
    def draw(self) -> None:
        self.number += 1
        line = f"{self.number:08}" * (self.size.width // 8)
        self.query_one(Static).update("\\n".join([line] * self.size.height))
Full().run()
"""
"""Draws a whole screen anew four times a second."""


def on_terminal(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process on a terminal of 120x40; return it and our side of the terminal."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        list(argv),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(slave)
    return process, master


def idle(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return what a program on a terminal costs while nothing happens: percent of a core, and MiB."""
    process, master = on_terminal(argv, environment)
    drain = threading.Thread(target=_drain, args=(master,), daemon=True)
    drain.start()
    try:
        time.sleep(3)
        before, began = cpu_seconds(process.pid), time.monotonic()
        time.sleep(8)
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
        status = Path(f"/proc/{process.pid}/status").read_text()
        return share * 100, int(status.split("VmRSS:")[1].split()[0]) / 1024
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        drain.join(5)
        os.close(master)


def idle_empty_app(environment: Mapping[str, str]) -> tuple[float, float]:
    """Return what an empty Textual app costs: percent of a core, and MiB."""
    return idle([sys.executable, "-c", EMPTY_APP], environment)


def _drain(master: int) -> None:
    try:
        while os.read(master, 1 << 16):
            pass
    except OSError:
        return


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def grep_seconds(file: Path, *args: str) -> float:
    """Return how long ``grep`` takes over a file, its start included."""
    started = time.perf_counter()
    subprocess.run(["grep", *args, str(file)], stdout=subprocess.DEVNULL, check=False, env={"LC_ALL": "C"})
    return time.perf_counter() - started


def tail_costs(
    file: Path, written: Callable[[], int], per_second: int, seconds: float
) -> tuple[float, float]:
    """Return how far ``tail -f`` is behind a file that grows, in ms (p95), and its share of a core.

    Args:
        file: what grows.
        written: how many lines are in it.
        per_second: how many come a second.
        seconds: how long to look.
    """
    process = subprocess.Popen(["tail", "-n", "+1", "-f", str(file)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    descriptor, read = process.stdout.fileno(), 0
    lags: list[float] = []
    try:
        began = time.monotonic()
        while time.monotonic() - began < seconds + 1.0:
            read += os.read(descriptor, 1 << 20).count(b"\n")
            if time.monotonic() - began > 1.0:  # it has caught up
                lags.append(max(0, written() - read) / per_second * 1000)
        share = cpu_seconds(process.pid) / (time.monotonic() - began)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return statistics.quantiles(lags, n=20)[-1] if len(lags) > 1 else 0.0, share


def select_seconds(database: Path, rows: int) -> float:
    """Return how long a bare SELECT of so many roll-ups takes."""
    connection = sqlite3.connect(database)
    try:
        started = time.perf_counter()
        connection.execute("SELECT * FROM rollups LIMIT ?", (rows,)).fetchall()
        return time.perf_counter() - started
    finally:
        connection.close()


async def empty_app_costs(presses: int, size: tuple[int, int]) -> float:
    """Return the processor time from a key to its paint in an app of one Static that shows the key, p95 in ms."""
    from textual import events
    from textual.app import App, ComposeResult
    from textual.widgets import Static

    class Empty(App[None]):
        def compose(self) -> ComposeResult:
            yield Static("0")

        def on_key(self, event: events.Key) -> None:
            self.query_one(Static).update(f"{event.key} {time.monotonic()}")

    return await _costs_of_key(Empty(), "j", presses, size)


async def data_table_costs(rows: int, presses: int, size: tuple[int, int]) -> float:
    """Return the processor time from a key to its paint in a plain DataTable with so many rows, p95 in ms."""
    from textual.app import App, ComposeResult
    from textual.widgets import DataTable

    class Table(App[None]):
        def compose(self) -> ComposeResult:
            yield DataTable(cursor_type="row")

        def on_mount(self) -> None:
            table = self.query_one(DataTable)
            table.add_columns("state", "name", "id", "backend", "age", "why")
            for number in range(rows):
                name = f"sweep-{rows - 1 - number:05}"
                table.add_row("completed", name, f"abc{number:06}", "local", f"{number} d", "ended with 0")

    return await _costs_of_key(Table(), "down", presses, size)


async def _costs_of_key(app: App[None], key: str, presses: int, size: tuple[int, int]) -> float:
    costs = []
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.5)
        for _ in range(presses):
            before = time.process_time()
            await pilot.press(key)
            costs.append(time.process_time() - before)
    return statistics.quantiles(costs, n=20)[-1] * 1000
