"""What jobs cost that say nothing: the controller with ten of them, and all of fabric with two hundred."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.harness import FABRIC, Row, fresh_home
from workbench.learner.host.fork_server import COMMAND

JOBS = 10
MANY_JOBS = 200
WATCHED_SECONDS = 30.0
SETTLE_SECONDS = 5.0
_START = """
import sys, fabric_workbench as fabric
for _ in range(int(sys.argv[1])):
    fabric.run(["sleep", "900"], runner="process", set={"cpus": 0.001}, show=False)
"""


@dataclass(frozen=True)
class IdleCost:
    """What processes used while they were watched."""

    percent: float
    """Of one core."""
    megabytes: float
    """Memory that they share counts in part."""
    descriptors: int


def rows() -> list[Row]:
    """Measure ten jobs, then two hundred."""
    return [*controller_rows(), *agent_rows()]


def controller_rows() -> list[Row]:
    """Start the jobs, let them settle, and read the controller's CPU time over half a minute."""
    with fresh_home() as environment:
        controller, _ = _start(environment, JOBS)
        cost = _watch([controller])
        megabytes = controller.memory_info().rss / 1e6
        _kill(environment)
    percent = cost.percent
    return [
        Row("controller, 10 silent jobs, CPU", percent, "% of a core", "", None, "<= 0.3 %", percent <= 0.3),
        Row("controller, 10 silent jobs, memory", megabytes, "MB", "", None, "<= 70 MB", megabytes <= 70),
    ]


def agent_rows() -> list[Row]:
    """The same for two hundred jobs with their agents, and what one of them takes on the disk."""
    with fresh_home() as environment:
        controller, agents = _start(environment, MANY_JOBS)
        cost, own = _watch([controller, *agents]), _watch(agents)
        _kill(environment)
        while any(job["state"] not in ("HALTED", "FAILED") for job in _jobs(environment)):
            time.sleep(0.2)
        files, kibibytes = _on_disk(Path(environment["FABRIC_HOME"]))
    what = f"{MANY_JOBS} silent jobs"
    megabytes, descriptors = own.megabytes / MANY_JOBS, own.descriptors / MANY_JOBS
    return [
        Row(
            f"{what}, controller and agents, CPU",
            cost.percent,
            "% of a core",
            "",
            None,
            "<= 5 %",
            cost.percent <= 5,
        ),
        Row(
            f"{what}, controller and agents, memory",
            cost.megabytes,
            "MB",
            "",
            None,
            "<= 800 MB",
            cost.megabytes <= 800,
        ),
        Row(f"{what}, agents, memory a job", megabytes, "MB", "", None, "<= 12 MB", megabytes <= 12),
        Row(f"{what}, agents, descriptors a job", descriptors, "", "", None, "<= 30", descriptors <= 30),
        Row("a trivial job's files and folders", files, "", "", None, "<= 22", files <= 22),
        Row("a trivial job on disk", kibibytes, "KiB", "", None, "<= 76 KiB", kibibytes <= 76),
    ]


def _start(environment: Mapping[str, str], count: int) -> tuple[psutil.Process, Sequence[psutil.Process]]:
    """Start jobs that say nothing; return the controller and the agents once all run and have settled."""
    folder = Path(environment["HOME"]) / "work"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", _START, str(count)], env=dict(environment), cwd=folder, check=True)
    while sum(job["state"] == "PROCESSING" for job in _jobs(environment)) < count:
        time.sleep(0.2)
    status = json.loads(_fabric(environment, "controller", "status", "--json"))
    time.sleep(SETTLE_SECONDS)
    controller = psutil.Process(status["pid"])
    programs = {"guard", COMMAND}
    children = controller.children(recursive=True)
    agents = [process for process in children if programs.intersection(process.cmdline())]
    return controller, agents


def _watch(processes: Sequence[psutil.Process]) -> IdleCost:
    """Watch processes; what forks agents ends when none has been wanted for a while, and counts no more then."""
    before = {process: sum(process.cpu_times()[:2]) for process in processes if process.is_running()}
    time.sleep(WATCHED_SECONDS)
    there = [process for process in before if process.is_running()]
    used = sum(sum(process.cpu_times()[:2]) - before[process] for process in there)
    return IdleCost(
        percent=100 * used / WATCHED_SECONDS,
        megabytes=sum(process.memory_full_info().pss for process in there) / 1e6,
        descriptors=sum(process.num_fds() for process in there),
    )


def _on_disk(home: Path) -> tuple[int, int]:
    """Return how many files and folders one job has, and the KiB that they take."""
    job = next((home / "jobs").iterdir())
    found = [job, *job.rglob("*")]
    return len(found), sum(os.lstat(path).st_blocks for path in found) // 2


def _kill(environment: Mapping[str, str]) -> None:
    _fabric(environment, "kill", "--no-wait", *[job["id"] for job in _jobs(environment)])


def _jobs(environment: Mapping[str, str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(_fabric(environment, "list", "--all", "--json"))
    return found


def _fabric(environment: Mapping[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [FABRIC, *arguments], env=dict(environment), check=True, capture_output=True, text=True
    )
    return ran.stdout
