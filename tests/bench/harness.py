"""What every benchmark shares: whole processes timed in turn with their peer, medians, and the table of results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FABRIC = str(Path(sys.executable).with_name("fabric"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fabric-bench"

END_SECONDS: Final = 120.0
"""How long the end of a benchmark may take whose time is up: what it has made is removed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its floor or peer, both medians from the same run."""

    what: str
    ours: float
    unit: str
    peer: str
    """What it was measured against, in words; empty when the target is absolute."""
    theirs: float | None
    target: str
    met: bool

    @property
    def ratio(self) -> float | None:
        """Ours over theirs."""
        return self.ours / self.theirs if self.theirs else None


class TimeIsUp(Exception):
    """A benchmark has taken longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp where the block still runs after so many seconds, and once more where its end takes too long."""

    def end(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, END_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def running(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that ends with the block, together with all that it started in its session."""
    with subprocess.Popen(
        argv,
        env=dict(environment),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def until_holds(holds: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition of processes that are measured.

    Raises:
        TimeoutError: it does not hold after so many seconds.
    """
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError("the jobs are not as far as they should be")
        time.sleep(0.05)


def seconds_of(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path | None = None, *, expect: int | None = 0
) -> float:
    """Run a whole process, its output thrown away, and return how long it took."""
    started = time.perf_counter()
    with subprocess.Popen(
        argv,
        env=dict(environment),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, stderr = process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    took = time.perf_counter() - started
    if expect is not None and process.returncode != expect:
        raise SystemExit(f"{argv} ended with {process.returncode}: {stderr.decode(errors='replace')[-2000:]}")
    return took


def first_line_seconds(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, *, expect: bytes
) -> float:
    """Run a process to its end, and return how long its first line of output took."""
    started = time.perf_counter()
    with running(argv, environment, folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - started
        _, stderr = process.communicate()
    if line != expect:
        raise SystemExit(f"{argv} printed {line!r}: {stderr.decode(errors='replace')[-2000:]}")
    return took


def in_turn(*measures: Callable[[], float], runs: int = 9) -> list[float]:
    """Call the measures in turn, one warm-up first, and return each one's median: drift hits all alike.

    ``FABRIC_BENCH_RUNS`` replaces the number of runs, for a look at a busy machine.
    """
    runs = int(os.environ.get("FABRIC_BENCH_RUNS") or runs)
    for measure in measures:
        measure()
    rounds = [[measure() for measure in measures] for _ in range(runs)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


@contextmanager
def fresh_home() -> Iterator[dict[str, str]]:
    """Give an environment with an empty home and a controller that ends with it."""
    root = Path(tempfile.mkdtemp(prefix="fab-bench-"))
    (root / "run").mkdir(mode=0o700)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "FABRIC_HOME": str(root / "fabric"),
        "FABRIC_CONFIG": str(root / "config.toml"),
        "FABRIC_LEASES": str(root / "leases"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "FABRIC_NO_CONTROLLER": "1",
        "LANG": "C.UTF-8",
    }
    try:
        yield environment
    finally:
        subprocess.run([FABRIC, "controller", "stop"], env=environment, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


def peer_python(*packages: str) -> Path:
    """Return the interpreter of a cached environment that has these packages: the peers are not ours to depend on."""
    folder = CACHE / "-".join(package.replace("==", "-") for package in packages)
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        (folder / ".complete").touch()
    return python


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| what | ours | peer or floor | ratio | target | met |", "|---|---|---|---|---|---|"]
    for row in rows:
        theirs = f"{row.peer}: {row.theirs:.3g} {row.unit}" if row.theirs is not None else "-"
        ratio = f"{row.ratio:.2f}" if row.ratio else "-"
        lines.append(
            f"| {row.what} | {row.ours:.3g} {row.unit} | {theirs} | {ratio} | {row.target} | "
            f"{'yes' if row.met else '**no**'} |"
        )
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    """Return the rows as one JSON document."""
    return json.dumps([{name: getattr(row, name) for name in Row.__slots__} for row in rows], indent=2)
