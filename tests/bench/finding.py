"""Finding jobs: ``list --where`` over 10,000 jobs, ``grep`` over a gigabyte of logs beside ``grep -F``."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench.harness import FABRIC, Row, fresh_home, in_turn, seconds_of
from tests.bench.seeding import seed_jobs
from workbench.paths import Home
from workbench.store.db.database import Store

LOG_BYTES = 1_000_000_000
JOBS = 10
LINE = b"2026-01-02 03:04:05 epoch %d step %d loss 0.%05d accuracy 0.9%d and more words to come near to 99 bytes\n"
SOUGHT = "CUDA out of memory"


WHERE: Final = (
    ("state:done loss<0.3", "--sort", "loss"),
    ("params.lr=0.1",),
)
"""Filters with what else is given: a state and a metric are in the store, params in the jobs' folders."""


def where_rows() -> list[Row]:
    """``fabric list --where`` of 10,000 jobs with a metric and a param each: by a metric, and by the param alone."""
    with fresh_home() as environment:
        home = Home(Path(environment["FABRIC_HOME"]))
        seed_jobs(home, 10_000)
        _seed_metric(home)
        return [_where_row(words, environment) for words in WHERE]


def _where_row(args: Sequence[str], environment: dict[str, str]) -> Row:
    ours, empty = in_turn(
        lambda: seconds_of([FABRIC, "list", "--where", *args], environment),
        lambda: seconds_of([sys.executable, "-c", "pass"], environment),
        runs=15,
    )
    name = f"`fabric list --where '{args[0]}'{''.join(f' {word}' for word in args[1:])}`, 10,000 jobs"
    return Row(name, ours, "s", "empty Python", empty, "<= 0.3 s", ours <= 0.3)


def grep_rows() -> list[Row]:
    """``fabric grep`` for words in the logs of 10 jobs, together 1 GB, beside ``grep -F`` over the same files."""
    with fresh_home() as environment:
        home = Home(Path(environment["FABRIC_HOME"]))
        seed_jobs(home, JOBS)
        logs = _seed_logs(home)
        ours, theirs = in_turn(
            lambda: seconds_of([FABRIC, "grep", "-F", SOUGHT], environment),
            lambda: seconds_of(["grep", "-F", SOUGHT, *map(str, logs)], environment),
            runs=5,
        )
    return [
        Row(
            "`fabric grep -F`, 1 GB of logs", ours, "s", "`grep -F`", theirs, "<= 1.5 x", ours <= 1.5 * theirs
        )
    ]


def _seed_metric(home: Home) -> None:
    with Store.open(home) as store:
        store.execute(
            "INSERT INTO series (job_id, learner, name, kind, points, last_step, last, minimum, maximum) "
            "SELECT id, 1, 'train/loss', 'value', 1, 1, (seq % 100) / 100.0, 0, 1 FROM jobs"
        )


def _seed_logs(home: Home) -> list[Path]:
    block = b"".join(LINE % (i % 10, i, i * 37 % 99_999, i % 10) for i in range(10_000))
    found = []
    for folder in sorted(home.jobs.iterdir()):
        learner = home.job(folder.name).attempt(1).learner(1)
        learner.path.mkdir(parents=True, exist_ok=True)
        with learner.output.open("wb") as stream:
            for _ in range(LOG_BYTES // JOBS // len(block)):
                stream.write(block)
            stream.write(f"RuntimeError: {SOUGHT}\n".encode())
        end = learner.output.stat().st_size
        head = struct.pack("<8sQQ", b"FABRIDX1", 0, 0)
        learner.index.write_bytes(head + struct.pack("<QQQ", end, 1, 1))
        found.append(learner.output)
    return found
