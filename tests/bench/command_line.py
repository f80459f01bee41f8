"""How soon the command line answers: ``--help``, lists of many jobs and of a long array, a trivial job."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from tests.bench.harness import FABRIC, Row, fresh_home, in_turn, peer_python, seconds_of
from tests.bench.seeding import seed_array, seed_jobs
from workbench.paths import Home


def help_rows() -> list[Row]:
    """``fabric --help`` beside an empty Python and ``torchx --help``."""
    torchx = str(peer_python("torchx==0.7.0").with_name("torchx"))
    with fresh_home() as environment:
        ours, empty, theirs = in_turn(
            lambda: seconds_of([FABRIC, "--help"], environment),
            lambda: seconds_of([sys.executable, "-c", "pass"], environment),
            lambda: seconds_of([torchx, "--help"], environment),
            runs=15,
        )
    return [
        Row("`fabric --help`", ours, "s", "empty Python", empty, "<= 8 x", ours <= 8 * empty),
        Row("`fabric --help`", ours, "s", "`torchx --help`", theirs, "not slower", ours <= theirs),
    ]


def list_rows() -> list[Row]:
    """``fabric list`` with 10,000 jobs in the store."""
    with fresh_home() as environment:
        seed_jobs(Home(Path(environment["FABRIC_HOME"])), 10_000)
        ours, empty = in_turn(
            lambda: seconds_of([FABRIC, "list"], environment),
            lambda: seconds_of([sys.executable, "-c", "pass"], environment),
            runs=15,
        )
    return [Row("`fabric list`, 10,000 jobs", ours, "s", "empty Python", empty, "<= 0.2 s", ours <= 0.2)]


def array_rows() -> list[Row]:
    """What is read of an array of 100,000 jobs, 60,000 of which are over."""
    with fresh_home() as environment:
        seed_array(Home(Path(environment["FABRIC_HOME"])), 60_000, of=100_000)
        commands = {"`fabric list`": ["list"], "`fabric experiment list`": ["experiment", "list"]}
        *ours, empty = in_turn(
            *(partial(seconds_of, [FABRIC, *argv], environment) for argv in commands.values()),
            lambda: seconds_of([sys.executable, "-c", "pass"], environment),
        )
    return [
        Row(
            f"{command}, an array of which 60,000 jobs are over", seconds, "s",
            "empty Python", empty, "<= 0.5 s", seconds <= 0.5,
        )
        for command, seconds in zip(commands, ours, strict=True)
    ]  # fmt: skip


_TORCHX_WITHOUT_POLLING = """
from torchx.runner import get_runner
with get_runner() as runner:
    runner.wait(runner.run_component("utils.sh", ["true"], "local_cwd"), wait_interval=0.01)
"""


def trivial_rows() -> list[Row]:
    """A job that does nothing, as a process: the whole ``fabric run``, compared with torchx on its local scheduler.

    ``torchx run`` looks once a second whether the job has ended; by its Python API it can look more often.
    """
    python = peer_python("torchx==0.7.0")
    polling = [str(python.with_name("torchx")), "run", "-s", "local_cwd", "--wait", "utils.sh", "true"]
    api = [str(python), "-c", _TORCHX_WITHOUT_POLLING]
    with fresh_home() as environment:
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        run = [FABRIC, "run", "--runner", "process", "--", "true"]

        def in_folder(argv: list[str]) -> float:
            return seconds_of(["/usr/bin/env", "-C", str(folder), *argv], environment)

        def cold() -> float:
            seconds_of([FABRIC, "controller", "stop"], environment, expect=None)
            return in_folder(run)

        cold_seconds, *cold_peers = in_turn(cold, lambda: in_folder(polling), lambda: in_folder(api))
        warm_seconds, *warm_peers = in_turn(
            lambda: in_folder(run), lambda: in_folder(polling), lambda: in_folder(api)
        )
    names = ("`torchx run -s local_cwd`, which polls", "torchx's Python API, polled every 10 ms")
    measured = (("nothing running", cold_seconds, cold_peers), ("controller up", warm_seconds, warm_peers))
    return [
        Row(f"trivial job, process, {state}", ours, "s", name, theirs, "not slower", ours <= theirs)
        for state, ours, peers in measured
        for name, theirs in zip(names, peers, strict=True)
    ]
