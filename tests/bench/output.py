"""How fast output travels: a million lines to attached stdout, and one line from print to screen."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.harness import FABRIC, Row, fresh_home, in_turn, seconds_of

LINES = 1_000_000
PRINT = f"yes {'x' * 98} | head -n {LINES}"
"""As quick as a command can print: a learner's Python is told not to buffer, so its own writes would be timed."""
PRINTED = 300_000
STAMPS = 300
STAMP = (
    f"import time\nfor _ in range({STAMPS}):\n    print(time.time_ns(), flush=True)\n    time.sleep(0.02)\n"
)


def million_line_rows() -> list[Row]:
    """1,000,000 lines of 99 bytes from a process job to attached stdout, beside the same piped to a file, and cat."""
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        target = folder.parent / "out"
        copied = folder.parent / "copied"
        run = f"cd {folder} && {FABRIC} run --runner process -- '{PRINT}' > {target}"
        floor = f"cd {folder} && ({PRINT}) | cat > {target} && cat {target} > {copied}"

        def ours() -> float:
            took = seconds_of(["sh", "-c", run], environment)
            assert target.stat().st_size == 99 * LINES, "lines were lost"
            return took

        mine, theirs = in_turn(ours, lambda: seconds_of(["sh", "-c", floor], environment), runs=5)
    return [
        Row(
            "1,000,000 lines of 99 bytes, process, attached",
            mine,
            "s",
            "same piped to a file, and `cat`",
            theirs,
            "<= 2 x",
            mine <= 2 * theirs,
        )
    ]


def buffering_rows() -> list[Row]:
    """Python that only prints, as jobs have it (``PYTHONUNBUFFERED=1``), compared with other ways to buffer."""
    print_lines = f"for _ in range({PRINTED}): print('{'x' * 98}')"
    by_line = f"import sys; sys.stdout.reconfigure(line_buffering=True)\n{print_lines}"
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        (folder / "print.py").write_text(print_lines)
        (folder / "by_line.py").write_text(by_line)

        def job(script: str, *options: str) -> Callable[[], float]:
            argv = [FABRIC, "run", "--runner", "process", *options, "--", sys.executable, script]
            return lambda: seconds_of(argv, environment, folder)

        unbuffered, line_buffered, buffered, idle = in_turn(
            job("print.py"),
            job("by_line.py", "-e", "PYTHONUNBUFFERED="),
            job("print.py", "-e", "PYTHONUNBUFFERED="),
            lambda: seconds_of(
                [FABRIC, "run", "--runner", "process", "--", sys.executable, "-c", ""], environment, folder
            ),
            runs=5,
        )
    microseconds = 1e6 / PRINTED
    what = f"Python that only prints, {PRINTED:,} lines: "
    peer = "`PYTHONUNBUFFERED=` (in blocks)"
    return [
        Row(
            f"{what}as jobs have it, unbuffered",
            unbuffered,
            "s",
            peer,
            buffered,
            "<= 4 x",
            unbuffered <= 4 * buffered,
        ),
        Row(
            f"{what}line by line", line_buffered, "s", peer, buffered, "<= 4 x", line_buffered <= 4 * buffered
        ),
        Row(
            "what `PYTHONUNBUFFERED=1` costs a line",
            (unbuffered - idle) * microseconds,
            "us",
            peer,
            (buffered - idle) * microseconds,
            "<= 20 us",
            (unbuffered - idle) * microseconds <= 20,
        ),
    ]


def latency_rows() -> list[Row]:
    """From ``print`` in the learner to the line at the reader of ``fabric run``, 99th percentile."""
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        (folder / "stamp.py").write_text(STAMP)
        argv = [FABRIC, "run", "--runner", "process", "--", sys.executable, "stamp.py"]
        ours, floor = (
            sorted(late(command, folder, environment)) for command in (argv, [sys.executable, "stamp.py"])
        )
    p99 = ours[int(0.99 * len(ours))]
    return [
        Row(
            "line printed to line read, p99",
            p99,
            "ms",
            "a bare pipe",
            floor[int(0.99 * len(floor))],
            "<= 100 ms",
            p99 <= 100,
        ),
        Row(
            "line printed to line read, median",
            statistics.median(ours),
            "ms",
            "a bare pipe",
            statistics.median(floor),
            "<= 100 ms",
            True,
        ),
    ]


def late(argv: list[str], folder: Path, environment: dict[str, str]) -> list[float]:
    """Run a command that prints the time, and return how many milliseconds late each line is read."""
    reader, writer = os.pipe()
    with subprocess.Popen(argv, stdout=writer, stderr=subprocess.DEVNULL, cwd=folder, env=environment):
        os.close(writer)
        with os.fdopen(reader, "rb") as lines:
            return [(time.time_ns() - int(line)) / 1e6 for line in lines]
