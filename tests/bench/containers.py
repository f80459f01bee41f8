"""Containers beside ``docker run``: a trivial job, a million lines, a hundred small jobs two at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.harness import FABRIC, Row, fresh_home, in_turn, seconds_of
from tests.bench.output import LINES, PRINT, STAMP, late
from tests.support.images import DEBIAN, ensure_images, why_not

SMALL_JOBS = 100
AT_ONCE = 2
QUEUE = """
import fabric_workbench as fabric
jobs = [
    fabric.run(["true"], runner="container", image="{image}", set={{"cpus": 1}}, show=False) for _ in range({count})
]
for job in jobs:
    job.wait(show=False, check=True)
"""
"""All queued by one process, as a sweep is: its start counts, as does that of ``xargs`` and of every ``docker run``.

A hundred commands would measure Python's start a hundred times, which the trivial job's row does already; what is
measured here is the queue: slots given back, the next job launched, none of it waiting for a time to pass.
"""


def rows() -> list[Row]:
    """Measure what can be measured where an engine answers."""
    if reason := why_not():
        raise SystemExit(f"containers cannot be measured here: {reason}")
    ensure_images()
    return [*trivial_rows(), *million_line_rows(), *latency_rows()]


def repository(folder: Path, environment: Mapping[str, str]) -> Path:
    """Make a git repository with one file that is changed."""
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")
    for args in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *identity, *args], cwd=folder, env=dict(environment), check=True)
    (folder / "train.py").write_text("print('hello again')\n")
    return folder


def trivial_rows() -> list[Row]:
    """``true`` in a container, from the command to its end, with the controller up and without.

    In a folder as users have it: a repository with a change that is not committed, which is recorded with each job.
    """
    with fresh_home() as environment:
        folder = repository(Path(environment["HOME"]) / "work", environment)
        docker = ["docker", "run", "--rm", DEBIAN, "true"]
        ours = ["sh", "-c", f"cd {folder} && exec {FABRIC} run --image {DEBIAN} --runner container -- true"]

        def cold() -> float:
            subprocess.run([FABRIC, "controller", "stop"], env=environment, capture_output=True)
            return seconds_of(ours, environment)

        first, warm, theirs = in_turn(
            cold, lambda: seconds_of(ours, environment), lambda: seconds_of(docker, environment), runs=7
        )
    return [
        Row(
            "trivial job, container", first, "s", "`docker run --rm`", theirs, "<= 2.0 x", first <= 2 * theirs
        ),
        Row(
            "trivial job, container, controller up",
            warm,
            "s",
            "`docker run --rm`",
            theirs,
            "<= 1.3 x",
            warm <= 1.3 * theirs,
        ),
    ]


def million_line_rows() -> list[Row]:
    """1,000,000 lines of 99 bytes from a container to attached stdout."""
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        (folder / "print.sh").write_text(PRINT)
        target = folder.parent / "out"
        run = f"cd {folder} && {FABRIC} run --image {DEBIAN} --runner container -- sh print.sh > {target}"
        docker = f"docker run --rm -v {folder}:/w {DEBIAN} sh /w/print.sh > {target}"

        def whole(words: str) -> float:
            took = seconds_of(["sh", "-c", words], environment)
            assert target.stat().st_size == 99 * LINES, "lines were lost"
            return took

        mine, theirs = in_turn(lambda: whole(run), lambda: whole(docker), runs=5)
    return [
        Row(
            "1,000,000 lines of 99 bytes, container, attached",
            mine,
            "s",
            "`docker run`",
            theirs,
            "<= 0.6 x",
            mine <= 0.6 * theirs,
        )
    ]


def latency_rows() -> list[Row]:
    """From ``print`` in a container to the line at the reader of ``fabric run``, 99th percentile."""
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        (folder / "stamp.py").write_text(STAMP)
        run = [FABRIC, "run", "--image", DEBIAN, "--runner", "container", "--", "python3", "stamp.py"]
        docker = ["docker", "run", "--rm", "-v", f"{folder}:/w", DEBIAN, "python3", "/w/stamp.py"]
        ours, theirs = (sorted(late(command, folder, environment)) for command in (run, docker))
    at = int(0.99 * len(ours))
    return [
        Row(
            "line printed in a container to line read, p99",
            ours[at],
            "ms",
            "`docker run`",
            theirs[at],
            "<= 100 ms",
            ours[at] <= 100,
        )
    ]


def queue_rows() -> list[Row]:
    """A hundred small jobs on two CPUs beside as many ``docker run``, two at a time."""
    if reason := why_not():
        raise SystemExit(f"containers cannot be measured here: {reason}")
    ensure_images()
    with fresh_home() as environment:
        one = f"docker run --rm --cpus 1 {DEBIAN} sh -c true"
        docker = ["sh", "-c", f"seq {SMALL_JOBS} | xargs -P {AT_ONCE} -I N {one}"]
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        ours = [sys.executable, "-c", QUEUE.format(image=DEBIAN, count=SMALL_JOBS)]
        # Once before: the controller is up, as the engine is.
        seconds_of([sys.executable, "-c", QUEUE.format(image=DEBIAN, count=1)], environment, folder)
        mine = seconds_of(ours, environment, folder)
        theirs = seconds_of(docker, environment)
    return [
        Row(
            f"{SMALL_JOBS} small jobs in containers, {AT_ONCE} at a time",
            mine,
            "s",
            f"{SMALL_JOBS} `docker run`",
            theirs,
            "<= 1.2 x",
            mine <= 1.2 * theirs,
        )
    ]
