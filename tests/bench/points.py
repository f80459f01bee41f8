"""Metric points into the store, series and roll-ups included, beside the bare ``executemany`` of the same points."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from pathlib import Path

from tests.bench.harness import Row, fresh_home, in_turn
from tests.screens.seeding import add_job
from workbench.metrics.chart_buckets import buckets
from workbench.metrics.ingestion import ingest
from workbench.metrics.queries import series
from workbench.paths import Home
from workbench.store.db.database import Store

POINTS = 500_000
BLOCK = 1000


def write_records(file: Path, points: int) -> None:
    """Write a journal's records with that many points of one metric, in blocks as collectors write them."""
    with file.open("w") as out:
        out.write(json.dumps({"format": 1, "agent": "bench", "time_us": 0, "boottime_us": 0}) + "\n")
        for block in range(points // BLOCK):
            steps = list(range(block * BLOCK, (block + 1) * BLOCK))
            record = {
                "seq": block + 1,
                "time": steps[-1],
                "kind": "metrics",
                "source": "report",
                "group": "train",
                "subid": "",
                "steps": steps,
                "times": steps,
                "values": {"loss": [1 / (step + 1) for step in steps]},
                "etimes": {},
                "texts": {},
            }
            out.write(json.dumps(record) + "\n")


def into_store(points: int) -> tuple[float, float]:
    """Ingest into a fresh store; return points a second, and the seconds that a chart of all takes."""
    with fresh_home() as environment:
        store = Store.open(Home(Path(environment["FABRIC_HOME"])))
        row = add_job(store, 1)
        records = store.home.job(row.id).attempt(1).learner(1).records
        records.parent.mkdir(parents=True, exist_ok=True)
        write_records(records, points)
        started = time.perf_counter()
        while ingest(store, row.id, 1, 1, records, limit_bytes=1 << 22):
            pass
        took = time.perf_counter() - started
        (found,) = [one for one in series(store, row.id) if one.name == "train/loss"]
        assert found.points == points
        started = time.perf_counter()
        assert buckets(store, found.id, width=120)
        chart_seconds = time.perf_counter() - started
        store.close()
    return points / took, chart_seconds


def bare(points: int) -> float:
    """Insert the same points with nothing around them; return points a second."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(
            "CREATE TABLE points (series, seq, attempt, step, time, value, PRIMARY KEY (series, seq)) WITHOUT ROWID"
        )
        rows = [(1, seq, 1, seq, seq, 1 / (seq + 1)) for seq in range(points)]
        started = time.perf_counter()
        with connection:
            connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?)", rows)
        took = time.perf_counter() - started
        connection.close()
    return points / took


def rows() -> list[Row]:
    """Time both in turn; a speed, so more is better."""
    ours, theirs = in_turn(lambda: into_store(POINTS)[0], lambda: bare(POINTS), runs=5)
    chart_ms = 1000 * into_store(2 * POINTS)[1]
    return [
        Row(
            "metric points into the store, roll-ups included",
            ours,
            "points/s",
            "bare `executemany`",
            theirs,
            ">= 0.25 x",
            ours >= theirs / 4,
        ),
        Row(
            f"a chart of {2 * POINTS:,} points",
            chart_ms,
            "ms",
            "",
            None,
            "<= 100 ms (10,000,000)",
            chart_ms <= 100,
        ),
    ]
