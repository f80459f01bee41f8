"""A command that may use little memory ends by a sentence or by a second signal, and starts no row of controllers."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import accumulate, chain, repeat, takewhile
from pathlib import Path

import psutil
import pytest

from tests.support.command import EXECUTABLE, Fabric
from tests.support.waiting import patience, until
from workbench.controller.client.connect import AGAIN_SECONDS, START_SECONDS
from workbench.paths import Home

WAIT_SECONDS = 8.0
LOOKS_SECONDS = 0.05
"""How often controllers are looked for; each takes longer to start."""
LOOKS_EACH = 20
"""How often a process is looked at: until it has become what it was forked for."""
LIMITS_KIB = (60_000, 100_000)
MORE_KIB = (30_000, 50_000, 70_000, 80_000, 90_000, 120_000, 140_000, 170_000, 200_000, 250_000, 400_000)


@pytest.mark.parametrize(
    "kib",
    [
        *LIMITS_KIB,
        *(
            pytest.param(kib, marks=pytest.mark.soak("more of the same limits; the gate has two"))
            for kib in MORE_KIB
        ),
    ],
)
def test_a_run_that_may_use_little_memory_says_so_or_ends_with_the_second_signal(
    kib: int, fabric: Fabric, home: Home, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    command = f"ulimit -v {kib}; exec {shlex.quote(str(EXECUTABLE))} run -- 'echo hello'"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=fabric.folder, env=fabric.variables, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=stream,
        )  # fmt: skip
    controllers = _Controllers(home)

    def has_ended() -> bool:
        controllers.look()
        return process.poll() is not None

    by_itself = _comes(has_ended, WAIT_SECONDS)
    if not by_itself:
        process.send_signal(signal.SIGTERM)
        _comes(has_ended, 3)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        until(has_ended, lambda: f"the end of the command, {_text(output)}", seconds=20, every=LOOKS_SECONDS)

    shown = _text(output)
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


class _Controllers:
    """Those of a home that were seen, without children that they have just forked.

    A new process is looked at a few times, for what it becomes: to read all of a machine's processes twenty times a
    second would take a core.
    """

    def __init__(self, home: Home) -> None:
        self._variable = os.fsencode(f"={home.path}")
        self._looks: Counter[str] = Counter()
        self._parents: dict[int, int] = {}

    def look(self) -> None:
        """Look for new ones."""
        for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - it is done all the time
            if self._looks[name] < LOOKS_EACH:
                self._looks[name] += 1
                with contextlib.suppress(OSError, psutil.Error):
                    if self._is_controller(Path("/proc", name)):
                        self._parents[int(name)] = psutil.Process(int(name)).ppid()

    def _is_controller(self, process: Path) -> bool:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return any(b"controller" in word and word.endswith(b"__main__.py") for word in words) and (
            self._variable in (process / "environ").read_bytes()
        )

    def __len__(self) -> int:
        return sum(parent not in self._parents for parent in self._parents.values())


def _comes(holds: Callable[[], bool], seconds: float) -> bool:
    with contextlib.suppress(AssertionError):
        until(holds, "the end of the command", seconds=seconds, every=LOOKS_SECONDS)
        return True
    return False


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
