"""What a task in a thread costs the screens: time to a job's id, and how long the thread that draws stands still.

Each is measured in a process of its own, where nothing of it was imported before, with the screens open and a timer of
10 ms on their event loop: the longest time between two of its ticks, less those 10 ms, is how long a key would wait.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.harness import Row, fresh_home
from workbench.paths import Home

FILES: Final = 2000
FILE_BYTES: Final = 25_000
TICK_SECONDS: Final = 0.01
SETTLED_SECONDS: Final = 1.0
"""How long the screens are left alone before anything is measured."""
RUNS: Final = 5
ALLOWED_MS: Final = 50.0
"""A key that waits no longer than this is not felt to wait."""


def rows() -> list[Row]:
    """Return every figure: a job started by a process and by a thread, and what is imported in a thread."""
    process, thread = _both("process"), _both("thread")
    kubernetes, docker, idle = _both("kubernetes"), _both("docker"), _both("idle")
    held = "the same with a process"
    return [
        Row("start a job with 50 MB of code", thread[0], "s", held, process[0], "<= 1 x", thread[0] <= process[0]),
        _gap("drawing stands still meanwhile", thread[1], held, process[1]),
        _gap("drawing stands still: kubernetes is imported", kubernetes[1], "nothing is done", idle[1]),
        _gap("drawing stands still: docker is imported", docker[1], "nothing is done", idle[1]),
    ]  # fmt: skip


def _gap(what: str, ours: float, peer: str, theirs: float) -> Row:
    return Row(what, ours, "ms", peer, theirs, f"<= {ALLOWED_MS:g} ms", ours <= ALLOWED_MS)


def _both(way: str) -> tuple[float, float]:
    """Return the medians of the seconds that something takes, and of the longest pause in milliseconds."""
    found = [_once(way) for _ in range(RUNS)]
    return median(seconds for seconds, _ in found), median(pause for _, pause in found)


def _once(way: str) -> tuple[float, float]:
    with fresh_home() as environment:
        folder = Path(environment["FABRIC_HOME"]).parent / "code"
        if way in ("process", "thread"):
            _write_code(folder)
        else:
            folder.mkdir()
        argv = [sys.executable, "-m", "tests.bench.screen_tasks", way, str(folder)]
        ran = subprocess.run(argv, env=environment, check=True, stdout=subprocess.PIPE)
    seconds, pause = json.loads(ran.stdout.splitlines()[-1])
    return seconds, pause


def _write_code(folder: Path) -> None:
    for number in range(FILES):
        file = folder / f"part{number // 50}" / f"module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.randbytes(FILE_BYTES))
    (folder / "manifest.yml").write_text("name: large\nframework: {command: 'true'}\n")


def _by_process(home: Home) -> None:
    from screens.workers.command_runner import call

    call(home, ["run", "--detach", "--runner", "process", "manifest.yml"])


def _by_thread(home: Home) -> None:
    from workbench.cli.framework.run_options import read_run_options
    from workbench.services.submit.start import StartReport, start_run

    request = read_run_options(["--runner", "process", "manifest.yml"])
    start_run(request, origin="tui", report=StartReport())


def _import_kubernetes(home: Home) -> None:
    import kubernetes.client  # noqa: F401 - its import is what is measured


def _import_docker(home: Home) -> None:
    import docker  # noqa: F401 - its import is what is measured


KINDS: Final[Mapping[str, Callable[[Home], None]]] = {
    "process": _by_process,
    "thread": _by_thread,
    "kubernetes": _import_kubernetes,
    "docker": _import_docker,
    "idle": lambda home: time.sleep(1),
}


async def _measure(work: Callable[[Home], None]) -> tuple[float, float]:
    from screens.app.app import FabricApp
    from workbench.cli.framework.run_options import read_run_options
    from workbench.paths import default_home

    home = Home(default_home())
    app = FabricApp(home, read_run_options=read_run_options)
    took: list[float] = []
    failed: list[Exception] = []

    def timed() -> None:
        began = time.perf_counter()
        try:
            work(home)
        except Exception as error:
            failed.append(error)
        took.append(time.perf_counter() - began)

    async with app.run_test(size=(120, 40)):
        await asyncio.sleep(SETTLED_SECONDS)
        app.background.run(timed, lambda _: None)
        longest, before = 0.0, time.perf_counter()
        while not took:
            await asyncio.sleep(TICK_SECONDS)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
    if failed:
        raise failed[0]
    return took[0], max(0.0, longest - TICK_SECONDS) * 1000


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    print(json.dumps(asyncio.run(_measure(KINDS[sys.argv[1]]))))
