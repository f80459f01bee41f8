"""A command that may use little memory ends by a sentence or by a second signal, and starts no row of controllers."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
from collections.abc import Callable
from itertools import accumulate, chain, repeat, takewhile
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import EXECUTABLE, Fabric, processes_that_name
from tests.waiting import patience, until
from workbench.controller.runtime.connect import AGAIN_SECONDS, START_SECONDS
from workbench.paths import Home

WAIT_SECONDS = 15.0
LOOKS_SECONDS = 0.05
"""How often controllers are looked for; each takes longer to start."""
LIMITS_KIB = (60_000, 100_000, 200_000)
MORE_KIB = (30_000, 50_000, 70_000, 80_000, 90_000, 120_000, 140_000, 170_000, 250_000, 400_000)


@pytest.mark.parametrize(
    "kib",
    [
        *LIMITS_KIB,
        *(pytest.param(kib, marks=pytest.mark.soak("more of the same limits")) for kib in MORE_KIB),
    ],
)
def test_a_run_that_may_use_little_memory_says_so_or_ends_with_the_second_signal(
    kib: int, fabric: Fabric, home: Home, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    command = f"ulimit -v {kib}; exec {shlex.quote(str(EXECUTABLE))} run -- 'echo hello'"
    with said.open("wb") as stream:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=fabric.folder, env=fabric.variables, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=stream,
        )  # fmt: skip
    controllers: set[int] = set()

    def has_ended() -> bool:
        controllers.update(_controllers(home))
        return process.poll() is not None

    by_itself = _comes(has_ended, WAIT_SECONDS)
    if not by_itself:
        process.send_signal(signal.SIGTERM)
        _comes(has_ended, 3)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        until(has_ended, lambda: f"the end of the command, {_text(said)}", seconds=20, every=LOOKS_SECONDS)

    shown = _text(said)
    seconds = patience(WAIT_SECONDS + 3.0)
    most = _most_controllers(seconds)
    assert _begun(home) <= most, shown
    # One that hangs keeps its lock; successors wait for that and end, one each START_SECONDS.
    assert len(controllers) <= most + seconds // START_SECONDS, shown
    assert "this is a bug" not in shown, shown
    if process.returncode in (0, -signal.SIGTERM, 143):
        return
    assert "memory" in shown.lower() or "thread" in shown.lower(), (process.returncode, shown)


def _most_controllers(seconds: float) -> int:
    """Return how many the pauses between failing ones let start in this time, and the one that goes on after it."""
    begins = accumulate(chain(AGAIN_SECONDS, repeat(AGAIN_SECONDS[-1])), initial=0.0)
    return sum(1 for _ in takewhile(lambda at: at <= seconds, begins)) + 1


def _begun(home: Home) -> int:
    """Return how many controllers began to work, by what each writes into its log then."""
    log = home.controller_log
    return log.read_text(errors="replace").count(" looks after ") if log.exists() else 0


def _controllers(home: Home) -> set[int]:
    """Return the controllers of a home that run, without children that they have just forked."""
    parents = {}
    for process in processes_that_name(str(home.path)):
        with contextlib.suppress(psutil.Error):
            if any("controller" in word and word.endswith("__main__.py") for word in process.cmdline()):
                parents[process.pid] = process.ppid()
    return {pid for pid, parent in parents.items() if parent not in parents}


def _comes(holds: Callable[[], bool], seconds: float) -> bool:
    with contextlib.suppress(AssertionError):
        until(holds, "the end of the command", seconds=seconds, every=LOOKS_SECONDS)
        return True
    return False


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
