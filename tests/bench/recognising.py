"""What recognising metrics costs a job: the agent's CPU time, a line's way to the reader, each regular expression."""

from __future__ import annotations

import os
import random
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.harness import FABRIC, Row, fresh_home, in_turn
from tests.bench.output import STAMP, late
from tests.learner.agent import Learner
from workbench.learner.texts import Expression

LINES = 1_000_000
LINE_CHARACTERS = 200
_MODULES = ("printed", "line_values", "names")
_AT_ONE_POSITION = frozenset((
    "_UNIT", "_COUNT_WORD", "_RATIO", "_PERCENT_BEHIND", "_FIRST_STEP", "_FIRST_PAIR", "_WHOLE_EPOCH", "_NAME_BEHIND",
))  # fmt: skip
"""Expressions that are tried where something else was found; of the others all matches in a line are looked for."""
_OF_WHOLE_CELLS = frozenset(("_CELL", "_EMPTY_CELL", "_INDENTED"))
_FRAGMENTS = (
    "1", "12", ".", ",", ":", "/", "-", "+", "e", "E", "%", "|", "[", "]", "(", ")", "{", "}", "=", "==", ">", "'",
    '"', " ", "  ", "\t", "\r", "\b", "\x1b[0", "\x1b[", "m", "━", "╸", "─", "│", "nan", "inf", "Infinity", "0x",
    "loss", "step", "epoch ", "batches", "it/s", "tensor(", "np.", "train", "Valid", "ms", "GiB", "::", "1/1", "10:10",
    "2026-11-22", "1,111", "a=1", "lr: ", "A", "aA", "_", "\\", "@", "²", "é", "1%|", "3 (4 %)", "12/31 ",
)  # fmt: skip


def rows() -> list[Row]:
    """Measure all three."""
    return [*cpu_rows(), *latency_rows(), expression_row()]


def cpu_rows() -> list[Row]:
    """The agent's CPU time for a million lines that hold no metrics, with `auto` and without any extractor."""
    kinds: dict[str, Callable[[int], str]] = {
        "without numbers": lambda n: (
            "reading the next file of many that are there, nothing in it is a number, and on it goes\n"
        ),
        "of a service, with numbers": lambda n: (
            f"2026-11-22 07:{n // 60 % 60:02}:{n % 60:02},{n % 1000:03} INFO api.py:{n % 500} request {n} from "
            f"10.0.{n % 256}.{n // 256 % 256} took {n % 977}ms, status 200\n"
        ),
        "of a download, with numbers": lambda n: (
            f"[{n}/{LINES}] shard-{n:06}.tar ({n % 900}.{n % 10} MB) at {n % 90} MB/s, id={n * 7919 % 1000003}\n"
        ),
    }
    return [_cpu_row(what, line) for what, line in kinds.items()]


def _cpu_row(what: str, line: Callable[[int], str]) -> Row:
    with fresh_home() as environment, tempfile.TemporaryDirectory() as folder:
        home, os.environ["HOME"] = os.environ.get("HOME", ""), environment["HOME"]
        log = Path(folder) / "printed.log"
        with log.open("w") as out:
            out.writelines(map(line, range(LINES)))
        attempts = iter(range(1_000_000))

        def agent_seconds(metrics: dict[str, Any] | None) -> float:
            learner = Learner(Path(folder) / str(next(attempts)) / "attempt-1", f"cat {log}", metrics=metrics)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            learner.run(600)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert (learner.folder / "output.log").stat().st_size == log.stat().st_size, "lines were lost"
            (learner.folder / "output.log").unlink()
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        ours, theirs = in_turn(lambda: agent_seconds({"type": "auto"}), lambda: agent_seconds(None), runs=7)
        os.environ["HOME"] = home
    return Row(
        f"1,000,000 lines {what}, agent's CPU time with `auto`",
        ours,
        "s",
        "without any extractor",
        theirs,
        "<= 1.3 x",
        ours <= 1.3 * theirs,
    )


def latency_rows() -> list[Row]:
    """From ``print`` in the learner to the line at the reader of ``fabric run``, with ``auto`` and without."""
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        (folder / "stamp.py").write_text(STAMP)
        found: dict[str, list[float]] = {"auto": [], "plain": []}
        for _ in range(3):
            for kind, lateness in found.items():
                chosen = ["--set", f"evaluation_metrics.type={kind}"]
                argv = [FABRIC, "run", "--runner", "process", *chosen, "--", sys.executable, "stamp.py"]
                lateness += late(argv, folder, environment)
    ours, theirs = sorted(found["auto"]), sorted(found["plain"])
    p99, plain_p99 = (each[int(0.99 * len(each))] for each in (ours, theirs))
    median, plain_median = statistics.median(ours), statistics.median(theirs)
    peer = "without any extractor"
    return [
        Row(f"line printed to line read with `auto`, {what}", value, "ms", peer, plain, target, met)
        for what, value, plain, target, met in (
            ("p99", p99, plain_p99, "<= 100 ms", p99 <= 100),
            (
                "median",
                median,
                plain_median,
                "<= 1.2 x, or 1 ms more",
                median <= max(1.2 * plain_median, plain_median + 1),
            ),
        )
    ]


def expression_row(lines: int = 4000) -> Row:
    """The slowest regular expression on the line that is worst for it, of many that are made to cost."""
    worst = max(
        (_microseconds(action, line), name, line)
        for name, action in _expressions()
        for line in _worst_lines(action, lines)
    )
    return Row(
        f"slowest expression of `auto` ({worst[1]}), hostile line of {LINE_CHARACTERS} characters",
        worst[0],
        "us",
        "",
        None,
        "<= 50 us",
        worst[0] <= 50,
    )


def _expressions() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield what the collector does with each expression."""
    for module in _MODULES:
        for name, value in vars(import_module(f"workbench.learner.collectors.auto.{module}")).items():
            if isinstance(value, (re.Pattern, Expression)) and isinstance(value.pattern, str):
                if name in _OF_WHOLE_CELLS:
                    action: Callable[[str], object] = value.fullmatch
                else:
                    action = value.match if name in _AT_ONE_POSITION else value.findall
                yield f"{module}.{name}", action


def _hostile_lines(count: int) -> Iterator[str]:
    """Yield repeated fragments, and random ones by a fixed seed."""
    for one in _FRAGMENTS:
        for other in ("", *_FRAGMENTS):
            yield ((one + other) * LINE_CHARACTERS)[:LINE_CHARACTERS]
    chosen = random.Random(22)
    for _ in range(count):
        few = chosen.sample(_FRAGMENTS, chosen.randint(1, 5))
        yield "".join(chosen.choices(few, k=LINE_CHARACTERS))[:LINE_CHARACTERS]


def _worst_lines(action: Callable[[str], object], count: int, kept: int = 5) -> list[str]:
    """Return the lines that took longest at one look; a second look is to tell them from chance."""
    timed = sorted((_microseconds(action, line, looks=1), line) for line in _hostile_lines(count))
    return [line for _, line in timed[-kept:]]


def _microseconds(action: Callable[[str], object], line: str, looks: int = 20) -> float:
    """Return the least time that it takes."""
    least = float("inf")
    for _ in range(looks):
        begun = time.perf_counter()
        action(line)
        least = min(least, time.perf_counter() - begun)
    return least * 1e6
