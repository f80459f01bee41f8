"""What an hour of use writes to a terminal, with real jobs that print and report all the time.

The hour is played key by key: most of it on a page that somebody looks at while a job runs, as people do. By default a
tenth of each stay is waited for and the bytes of that count ten times: ``FABRIC_BENCH_HOUR=1`` plays it whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Final

from tests.bench.harness import FABRIC, Row, fresh_home
from tests.screens.pty_terminal import PtyTerminal

JOBS: Final = 3
LIMIT_BYTES: Final = 2_000_000
LINK_BYTES_PER_SECOND, LINK_DELAY_SECONDS = 20_000, 0.2

PROGRAM: Final = """
import math, random, time
import fabric_learner
for step in range(1_000_000):
    loss = 2 * math.exp(-step / 600) + random.random() / 20
    print(f"step {step} loss {loss:.4f} samples/s {random.randint(800, 900)}", flush=True)
    if step % 5 == 0:
        fabric_learner.report(step=step, loss=loss, accuracy=1 - loss / 3)
    time.sleep(1)
"""

DOWN, UP, ENTER, ESCAPE = "\x1b[B", "\x1b[A", "\r", "\x1b"
_KEYS: Final = re.compile(r"\x1b\[[AB]|.", re.DOTALL)

HOUR: Final[tuple[tuple[str, float], ...]] = (
    # What is typed, a key at a time, and the minutes that somebody then looks at the page.
    (ESCAPE, 4),
    (DOWN * 2 + UP * 2, 3),
    ("/train\r", 2),
    (ESCAPE, 1),
    (ENTER, 12),
    ("l", 10),
    ("G", 3),
    ("m", 8),
    ("5", 4),
    ("1", 5),
    ("?", 1),
    (ESCAPE, 1),
    (ESCAPE, 6),
)
"""60 minutes in all: the list, a filter, a job's dashboard, its log, charts and usage, the help, and the list again."""


def rows() -> list[Row]:
    """Return how many bytes an hour writes to a terminal at the end of a slow link."""
    share = 1.0 if os.environ.get("FABRIC_BENCH_HOUR") else 0.1
    with fresh_home() as environment:
        for number in range(1, JOBS + 1):
            _start(f"train-{number}", environment)
        try:
            count = _play(environment, share)
        finally:
            subprocess.run([FABRIC, "kill", *_names(), "--no-wait"], env=environment, check=False)
            subprocess.run([FABRIC, "wait", *_names()], env=environment, check=False, capture_output=True)
    name = "bytes of an hour of use beside three running jobs" + (
        "" if share == 1 else ", from a tenth of it"
    )
    return [Row(name, count / 1e6, "MB", "", None, "< 2 MB", count < LIMIT_BYTES)]


def _names() -> list[str]:
    return [f"train-{number}" for number in range(1, JOBS + 1)]


def _start(name: str, environment: Mapping[str, str]) -> None:
    command = [FABRIC, "run", "--detach", "--quiet", "--name", name, "--", sys.executable, "-c", PROGRAM]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, env=environment, cwd=folder, check=True)


def _play(environment: Mapping[str, str], share: float) -> float:
    """Return the bytes of an hour: those of each key, and those of each stay, which may be shortened."""
    terminal = PtyTerminal(
        [FABRIC, "tui"],
        environment,
        bytes_per_second=LINK_BYTES_PER_SECOND,
        delay_seconds=LINK_DELAY_SECONDS,
    )
    try:
        terminal.until(lambda: f"train-{JOBS}" in terminal.shown)
        total = 0.0
        for keys, minutes in HOUR:
            before = terminal.count
            for key in _KEYS.findall(keys):
                terminal.type(key.encode())
                time.sleep(1.0)
            drawn, began = terminal.count, time.monotonic()
            time.sleep(minutes * 60 * share)
            stay_seconds = time.monotonic() - began
            rate = (terminal.count - drawn) / stay_seconds
            print(f"{keys!r}: {drawn - before} bytes, then {rate:.0f} a second", file=sys.stderr)
            total += drawn - before + rate * minutes * 60
        return total
    finally:
        terminal.close()
