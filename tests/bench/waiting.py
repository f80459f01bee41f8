"""How fast a host hands one GPU from job to job, what jobs cost that wait there, a decision over many, and an array."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import psutil

from tests.bench.harness import FABRIC, Row, fresh_home, until_holds
from tests.quick.controller.long_queue import KINDS, LongQueue
from tests.stubs import Gpus, nvml_library

JOBS = 40
MANY_JOBS = 1000
"""So many of a home wait at a host."""

LONG_QUEUE_JOBS = 10_000
ARRAY_JOBS = 100_000
WATCHED_SECONDS = 20.0
LAST_SECONDS = 300.0
_START = """
import sys, fabric_workbench as fabric
for _ in range(int(sys.argv[1])):
    fabric.run(["sleep", sys.argv[2]], runner="process", gpus=1, set={"name": sys.argv[3]}, show=False)
"""


def rows() -> list[Row]:
    """Measure the gap between two jobs with the controller there and killed, then what those cost that wait."""
    gaps = (_gap_row("controller up"), _gap_row("no controller"))
    return [*gaps, *_cost_rows(), *map(_decision_row, KINDS), *_array_rows()]


def _gap_row(who: str) -> Row:
    with fresh_home() as environment:
        _add_gpu(environment)
        _submit(environment, 1, "900", "holder")
        until_holds(lambda: [one["phase"] for one in _states(environment)] == ["running"], LAST_SECONDS)
        _submit(environment, JOBS, "0.1", "short")
        until_holds(lambda: len(_waiting(environment)) == JOBS, LAST_SECONDS)
        holder = _processes(environment, "sleep 900")
        if who == "no controller":
            _stop_controller(environment)
        for pid in holder:
            os.kill(pid, signal.SIGTERM)
        until_holds(lambda: len(_ended(environment)) == JOBS + 1, LAST_SECONDS)
        times = sorted(_ended(environment))[1:]  # without the holder
        gaps = [(after[0] - before[1]) / 1e3 for before, after in pairwise(times)]
        _kill(environment)
    gap = statistics.quantiles(gaps, n=20)[-1]
    what = f"from a job's end to the next one's start on its GPU, p95, {who}"
    return Row(what, gap, "ms", "", None, "<= 50 ms", gap <= 50)


def _cost_rows() -> list[Row]:
    with fresh_home() as environment:
        _add_gpu(environment)
        _submit(environment, 1, "900", "holder")
        until_holds(lambda: [one["phase"] for one in _states(environment)] == ["running"], LAST_SECONDS)
        _submit(environment, MANY_JOBS, "0.1", "short")
        until_holds(lambda: len(_waiting(environment)) == MANY_JOBS, LAST_SECONDS)
        _stop_controller(environment)
        waiter = psutil.Process(_waiting(environment)[0])
        time.sleep(2 * WATCHED_SECONDS / 10)
        before = sum(waiter.cpu_times()[:2])
        time.sleep(WATCHED_SECONDS)
        percent = 100 * (sum(waiter.cpu_times()[:2]) - before) / WATCHED_SECONDS
        megabytes = waiter.memory_full_info().pss / 1e6
        waiter.kill()
        _kill(environment)
    what = f"{MANY_JOBS:,} jobs that wait at a host"
    return [
        Row(f"{what}, memory", megabytes, "MB", "", None, "<= 50 MB", megabytes <= 50),
        Row(f"{what}, CPU", percent, "% of a core", "", None, "<= 1 %", percent <= 1),
    ]


def _decision_row(kind: str) -> Row:
    queue = LongQueue(LONG_QUEUE_JOBS, kind)
    taken = []
    for _ in range(5):
        began = time.process_time()
        queue.evaluate()
        taken.append(1e3 * (time.process_time() - began))
    what = f"{LONG_QUEUE_JOBS:,} jobs that wait {kind}: which may start, CPU"
    return Row(what, min(taken), "ms", "", None, "<= 50 ms", min(taken) <= 50)


def _array_rows() -> list[Row]:
    """An array: how long the command takes, and what the controller needs of memory once jobs of it are over."""
    with fresh_home() as environment:
        folder = Path(environment["FABRIC_HOME"]).parent / "work"
        folder.mkdir()
        (folder / "manifest.yml").write_text(
            "name: array\nparams: {i: 0}\nframework: {command: 'echo ${params.i}'}\n"
        )
        argv = [FABRIC, "run", "-q", "manifest.yml", "--set", f"params.i=1..{ARRAY_JOBS}", "--at-most", "8"]
        began = time.monotonic()
        subprocess.run(argv, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        taken = time.monotonic() - began
        until_holds(lambda: len(_ended(environment)) >= ARRAY_JOBS / 1000, LAST_SECONDS)
        (controller,) = _controllers(environment)
        megabytes = psutil.Process(controller).memory_full_info().pss / 1e6
        subprocess.run([FABRIC, "kill", "array"], env=environment, check=True, capture_output=True)
        _stop_controller(environment)
    what = f"an array of {ARRAY_JOBS:,} jobs"
    return [
        Row(f"{what}, submitted", taken, "s", "", None, "<= 5 s", taken <= 5),
        Row(f"{what}, the controller's memory", megabytes, "MB", "", None, "<= 300 MB", megabytes <= 300),
    ]


def _controllers(environment: Mapping[str, str]) -> list[int]:
    home = environment["FABRIC_HOME"]
    words = ((one.pid, one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))
    return [pid for pid, line in words if home in line and any("controller" in word for word in line)]


def _kill(environment: Mapping[str, str]) -> None:
    for state in ("queued", "running"):
        argv = [FABRIC, "kill", "--no-wait", "--where", f"state:{state}"]
        subprocess.run(argv, env=environment, capture_output=True, check=False)


def _add_gpu(environment: dict[str, str]) -> None:
    environment |= Gpus(Path(environment["FABRIC_HOME"]).parent / "gpus").add("GPU-1").env()
    environment["LD_LIBRARY_PATH"] = str(nvml_library())


def _submit(environment: Mapping[str, str], count: int, seconds: str, name: str) -> None:
    argv: Sequence[str] = [sys.executable, "-c", _START, str(count), seconds, name]
    folder = Path(environment["FABRIC_HOME"]).parent / "work"
    folder.mkdir(exist_ok=True)
    subprocess.run(argv, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _states(environment: Mapping[str, str]) -> list[dict[str, object]]:
    files = Path(environment["FABRIC_HOME"]).glob("jobs/*/attempt-1/learner-1/state.json")
    return [json.loads(file.read_text()) for file in files]


def _waiting(environment: Mapping[str, str]) -> list[int]:
    return [int(str(one["pid"])) for one in _states(environment) if one.get("waiting")]


def _ended(environment: Mapping[str, str]) -> list[tuple[int, int]]:
    ended = [one for one in _states(environment) if one["phase"] == "exited"]
    return [(int(str(one["started_us"])), int(str(one["ended_us"]))) for one in ended]


def _processes(environment: Mapping[str, str], command: str) -> list[int]:
    home = environment["FABRIC_HOME"]
    return [
        one.pid
        for one in psutil.process_iter(["cmdline", "environ"])
        if " ".join(one.info["cmdline"] or ()) == command and home in str(one.info["environ"])
    ]


def _stop_controller(environment: Mapping[str, str]) -> None:
    subprocess.run([FABRIC, "controller", "stop"], env=environment, check=True, capture_output=True)
