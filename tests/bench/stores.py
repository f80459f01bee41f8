"""Data stores beside bare rclone, both from and to the same S3 server on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.harness import FABRIC, Row, fresh_home, in_turn, seconds_of
from tests.support.store_servers import KEY, SECRET, Server
from workbench.data.stores.rclone import find_rclone

SCALE = float(os.environ.get("FABRIC_BENCH_SCALE", "1"))
"""A smaller one tries the benchmark itself out."""

BIG_BYTES = int(2_000_000_000 * SCALE)
SMALL_FILES, SMALL_BYTES = int(20_000 * SCALE), 10_000
RUNS = 5


@dataclass(frozen=True, slots=True)
class Ground:
    """A home, a server, and rclone configured for it."""

    environment: dict[str, str]
    folder: Path
    """The manifest's: all that is in it is a job's code."""
    beside: Path
    """For what no job is to take for its code."""
    server: Server
    rclone: dict[str, str]

    def job(self, command: str, *, data: str = "", results: str = "") -> float:
        """Return how long a whole job takes."""
        stores = []
        if data:
            stores.append(f"training_data: {{container: {data}}}")
        if results:
            stores.append(f"training_results: {{container: {results}}}")
        manifest = self.folder / "manifest.yml"
        connection = f"{{auth_url: '{self.server.address}', user_name: {KEY}, password: {SECRET}}}"
        document = (
            f"[{{id: s, type: s3_datastore, {', '.join(stores)}, connection: {connection}}}]"
            if stores
            else "[]"
        )
        manifest.write_text(
            f"name: bench\nframework: {{command: '{command}'}}\nupload_seconds: 0\ndata_stores: {document}\n"
        )
        return seconds_of([FABRIC, "run", "-q", "--runner", "process", str(manifest)], self.environment)

    def bare(self, *args: str) -> float:
        """Return how long rclone itself takes."""
        return seconds_of([find_rclone().path, *args], self.rclone)

    def forget(self) -> None:
        """Drop what is cached, and what was copied beside it."""
        cache = Path(self.environment["FABRIC_HOME"]) / "data"
        subprocess.run(["chmod", "-R", "u+w", str(cache)], capture_output=True)
        shutil.rmtree(cache, ignore_errors=True)
        shutil.rmtree(self.beside / "copy", ignore_errors=True)


@contextmanager
def ground(*, big: bool = True, small: bool = True) -> Iterator[Ground]:
    """Serve one big file and many small ones."""
    with fresh_home() as environment:
        root = Path(environment["HOME"])
        store, folder, beside = root / "s3", root / "work", root / "beside"
        for name in ("big", "small", "results", "copies"):
            (store / name).mkdir(parents=True)
        folder.mkdir()
        beside.mkdir()
        with (store / "big" / "big.bin").open("wb") as file:
            for _ in range(max(1, BIG_BYTES >> 20) if big else 0):
                file.write(os.urandom(1 << 20))
        for number in range(SMALL_FILES if small else 0):
            below = store / "small" / f"{number % 100:02d}"
            below.mkdir(exist_ok=True)
            (below / f"{number:05d}").write_bytes(os.urandom(SMALL_BYTES))
        server = Server("s3", store)
        server.start()
        remote = {
            "TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": server.address, "ACCESS_KEY_ID": KEY,
            "SECRET_ACCESS_KEY": SECRET, "NO_CHECK_BUCKET": "true",
        }  # fmt: skip
        rclone = {"PATH": os.environ["PATH"], "HOME": str(root), "RCLONE_CONFIG": ""}
        rclone |= {f"RCLONE_CONFIG_S_{key}": value for key, value in remote.items()}
        try:
            yield Ground(environment, folder, beside, server, rclone)
        finally:
            server.stop()


def copy_rows() -> list[Row]:
    """From nothing to the command with its data, beside ``rclone copy`` and the same job without data."""
    rows = []
    with ground() as it:
        for name, what in (
            ("big", f"{BIG_BYTES / 1e9:g} GB in one file"),
            ("small", f"{SMALL_FILES} files of 10 kB"),
        ):

            def ours(name: str = name) -> float:
                it.forget()
                return it.job("true", data=name)

            def theirs(name: str = name) -> float:
                it.forget()
                return it.bare("copy", f"S:{name}", str(it.beside / "copy")) + it.job("true")

            here, bare = in_turn(ours, theirs, runs=RUNS)
            rows.append(
                _row(
                    f"{what}: a job with its data copied in",
                    here,
                    "rclone copy, and a job without data",
                    bare,
                    1.1,
                )
            )
    return rows


def cached_rows() -> list[Row]:
    """A second job with the same data, beside rclone's listing of it."""
    with ground(big=False) as it:
        it.job("true", data="small")
        listing = ("lsjson", "-R", "--files-only", "--hash", "--fast-list", "--use-server-modtime", "S:small")
        cached, plain, listed = in_turn(
            lambda: it.job("true", data="small"), lambda: it.job("true"), lambda: it.bare(*listing), runs=RUNS
        )
    what = f"{SMALL_FILES} files of 10 kB, cached: what data adds to a job"
    allowed = 1.2 * listed + 0.3
    return [
        Row(what, cached - plain, "s", "rclone lsjson", listed, "<= 1.2 x + 0.3 s", cached - plain <= allowed)
    ]


def results_rows() -> list[Row]:
    """Results of a job in the store, beside ``rclone copy`` of the same file."""
    with ground(small=False) as it:
        source = it.server.folder / "big" / "big.bin"
        target = it.beside / "source"
        target.mkdir()
        os.link(source, target / "big.bin")
        numbers = iter(range(1000))
        stored, plain, bare = in_turn(
            lambda: it.job(f"cp --reflink=auto {source} $RESULT_DIR/", results="results"),
            lambda: it.job(f"cp --reflink=auto {source} $RESULT_DIR/"),
            lambda: it.bare("copy", str(target), f"S:copies/{next(numbers)}"),
            runs=RUNS,
        )
    what = f"{BIG_BYTES / 1e9:g} GB of results: a job that stores them"
    return [_row(what, stored, "the job without a store, and rclone copy", plain + bare, 1.1)]


def memory_rows() -> list[Row]:
    """The most memory that a job's agent and its data movers have while many files are copied."""
    with ground(big=False) as it:
        most = (
            statistics.median(_most_bytes(it, lambda: it.job("true", data="small")) for _ in range(3)) / 1e6
        )
    return [
        Row(
            f"{SMALL_FILES} files of 10 kB: memory of agent and rclone",
            most,
            "MB",
            "",
            None,
            "<= 300",
            most <= 300,
        )
    ]


def _most_bytes(it: Ground, run: Callable[[], float]) -> float:
    it.forget()
    over, most = threading.Event(), [0.0]

    def look() -> None:
        while not over.is_set():
            most[0] = max(most[0], _bytes_of(it.environment["FABRIC_HOME"]))
            time.sleep(0.05)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        run()
    finally:
        over.set()
        watcher.join()
    return most[0]


def _bytes_of(home: str) -> float:
    """Return what the agents of a home and all below them use; what forked processes share counts once."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "guard" in line and any(home in word for word in line):
            with contextlib.suppress(psutil.Error):
                found |= {each.pid: each for each in (process, *process.children(recursive=True))}
    total = 0.0
    for process in found.values():
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def _row(what: str, ours: float, peer: str, theirs: float, most: float) -> Row:
    return Row(what, ours, "s", peer, theirs, f"<= {most:g} x", ours <= most * theirs)
