"""How many short jobs a second the main command runs, and what each one takes of the processor, beside others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from tests.bench.harness import FABRIC, Row, fresh_home, peer_python, until_holds
from workbench.paths import Home
from workbench.store.db.database import Store

JOBS: Final = 200
LAST_SECONDS: Final = 600.0
_HYPERQUEUE: Final = "hyperqueue==0.27.0"
_SUBMITIT: Final = "submitit==1.5.4"
_HYPERQUEUE_RUN: Final = """
import sys
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=int(sys.argv[3])))
    client, job = cluster.client(), Job()
    for _ in range(int(sys.argv[2])):
        job.program(["sh", "-c", sys.argv[1]], stdout=None, stderr=None)
    client.wait_for_jobs([client.submit(job)])
"""
_SUBMIT: Final = """
import sys
from concurrent.futures import ThreadPoolExecutor
import submitit

executor = submitit.AutoExecutor(folder=sys.argv[1], cluster="local")
run = submitit.helpers.CommandFunction(["sh", "-c", sys.argv[2]], verbose=False)
with ThreadPoolExecutor(int(sys.argv[4])) as pool:
    for _ in pool.map(lambda _: executor.submit(run).result(), range(int(sys.argv[3]))):
        pass
"""

Cost = tuple[float, float]
"""Seconds of the clock, and of the processor in all processes of the machine."""
Measure = Callable[[Path, Mapping[str, str], str, int], Cost]
"""Runs a command so many times: in a folder, with an environment, so many at once."""


def rows() -> list[Row]:
    """Measure trivial jobs, eight at a time, then jobs of a second, four at a time."""
    return [*_trivial_rows(), *_second_rows()]


def _trivial_rows() -> Iterator[Row]:
    what = f"{JOBS} trivial jobs, 8 at a time"
    seconds, cpu = _measured(_fabric, "true", 8)
    rate, each = JOBS / seconds, 1e3 * cpu / JOBS
    for name, measure in _peers(8):
        their_seconds, their_cpu = _measured(measure, "true", 8)
        yield Row(what, rate, "jobs/s", name, JOBS / their_seconds, ">= 60 jobs/s", rate >= 60)
        their_each = 1e3 * their_cpu / JOBS
        yield Row(f"{what}, CPU of a job", each, "ms", name, their_each, "<= 25 ms", each <= 25)


def _second_rows() -> Iterator[Row]:
    seconds, _ = _measured(_fabric, "sleep 1", 4)
    floor, _ = _measured(_xargs, "sleep 1", 4)
    met = seconds <= 1.1 * floor
    yield Row(f"{JOBS} jobs of 1 s, 4 at a time", seconds, "s", "`xargs -P4`", floor, "<= 1.1 x", met)


def _peers(at_once: int) -> Iterator[tuple[str, Measure]]:
    yield f"`xargs -P{at_once}`", _xargs
    if shutil.which("parallel"):
        yield f"GNU parallel, `-j{at_once}`", _parallel
    else:
        print("GNU parallel is not installed: it is left out", file=sys.stderr)
    yield f"HyperQueue, {at_once} cores, no output kept", _hyperqueue
    yield f"submitit's local executor, {at_once} at a time", _submitit


def _measured(measure: Measure, command: str, at_once: int) -> Cost:
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        return measure(folder, environment, command, at_once)


@contextmanager
def _clock() -> Iterator[list[float]]:
    """Give a list that has, once the block is over, its seconds and those of the processor."""
    cost: list[float] = []
    began, busy = time.perf_counter(), _busy_seconds()
    yield cost
    cost += [time.perf_counter() - began, _busy_seconds() - busy]


def _busy_seconds() -> float:
    """Return how long the processors have worked since the machine started: what has ended counts, too."""
    now = psutil.cpu_times()
    return float(sum(now) - now.idle - now.iowait - now.guest - now.guest_nice)


def _cost(argv: list[str], environment: Mapping[str, str], folder: Path, given: str = "") -> Cost:
    with _clock() as cost:
        subprocess.run(
            argv,
            env=environment,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            input=given.encode(),
        )
    return cost[0], cost[1]


def _numbers() -> str:
    return "".join(f"{number}\n" for number in range(1, JOBS + 1))


def _xargs(folder: Path, environment: Mapping[str, str], command: str, at_once: int) -> Cost:
    argv = ["xargs", f"-P{at_once}", "-n1", "sh", "-c", command]
    return _cost(argv, environment, folder, _numbers())


def _parallel(folder: Path, environment: Mapping[str, str], command: str, at_once: int) -> Cost:
    argv = ["parallel", f"-j{at_once}", "-n0", "sh", "-c", f"'{command}'"]
    return _cost(argv, environment, folder, _numbers())


def _hyperqueue(folder: Path, environment: Mapping[str, str], command: str, at_once: int) -> Cost:
    argv = [str(peer_python(_HYPERQUEUE)), "-c", _HYPERQUEUE_RUN, command, str(JOBS), str(at_once)]
    return _cost(argv, {**environment, "TMPDIR": str(folder)}, folder)  # it leaves its folders there


def _submitit(folder: Path, environment: Mapping[str, str], command: str, at_once: int) -> Cost:
    argv = [str(peer_python(_SUBMITIT)), "-c", _SUBMIT, str(folder / "log"), command, str(JOBS), str(at_once)]
    return _cost(argv, environment, folder)


def _fabric(folder: Path, environment: Mapping[str, str], command: str, at_once: int) -> Cost:
    """Run them as a sweep, to the end of the last one as people see it; its last work counts, too."""
    argv = [FABRIC, "run", "-q", "--set", f"params.i=1..{JOBS}", "--at-most", str(at_once), "manifest.yml"]
    (folder / "manifest.yml").write_text(
        f"name: short\nparams: {{i: 0}}\nframework: {{command: '{command}'}}\n"
    )
    began, busy = time.perf_counter(), _busy_seconds()
    subprocess.run(argv, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with Store.open(Home(Path(environment["FABRIC_HOME"]))) as store:
        sql = "SELECT count(*), coalesce(sum(state = 'COMPLETED'), 0) FROM jobs"
        until_holds(lambda: store.row(sql) == (JOBS, JOBS), LAST_SECONDS)
    seconds = time.perf_counter() - began
    subprocess.run([FABRIC, "controller", "stop"], env=environment, check=True, capture_output=True)
    return seconds, _busy_seconds() - busy
