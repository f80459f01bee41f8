"""What the controller costs while ten jobs run and say nothing."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import psutil

from tests.bench.harness import FABRIC, Row, fresh_home

JOBS = 10
WATCHED_SECONDS = 30.0


def rows() -> list[Row]:
    """Start the jobs, let them settle, and read the controller's CPU time over half a minute."""
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()

        def fabric(*arguments: str) -> str:
            ran = subprocess.run(
                [FABRIC, *arguments], env=environment, cwd=folder, check=True, capture_output=True, text=True
            )
            return ran.stdout

        for _ in range(JOBS):
            fabric("run", "-d", "--runner", "process", "--", "sleep", "600")
        while sum(job["state"] == "PROCESSING" for job in json.loads(fabric("list", "--json"))) < JOBS:
            time.sleep(0.1)
        controller = psutil.Process(json.loads(fabric("controller", "status", "--json"))["pid"])
        time.sleep(5)
        before = sum(controller.cpu_times()[:2])
        time.sleep(WATCHED_SECONDS)
        percent = 100 * (sum(controller.cpu_times()[:2]) - before) / WATCHED_SECONDS
        megabytes = controller.memory_info().rss / 1e6
        for job in json.loads(fabric("list", "--json")):
            fabric("kill", job["id"])
    return [
        Row("controller, 10 silent jobs, CPU", percent, "% of a core", "", None, "<= 0.3 %", percent <= 0.3),
        Row("controller, 10 silent jobs, memory", megabytes, "MB", "", None, "<= 70 MB", megabytes <= 70),
    ]
