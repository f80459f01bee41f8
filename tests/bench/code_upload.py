"""The upload of code over SSH, compared with rsync: all of it at first, and one changed file later."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.bench.harness import FABRIC, Row, in_turn, seconds_of
from tests.bench.ssh import Ground, ground
from workbench.paths import Home

SHARE = float(os.environ.get("FABRIC_BENCH_CODE") or 1.0)
"""How much of the code is made, for a look at a busy machine."""

LARGE_FILES, LARGE_BYTES = 10, int(14_000_000 * SHARE)
SMALL_FILES = int(3000 * SHARE)
SMALL_LINES = 480
"""About 19 kB each: 196 MB together with the large ones, which gain nothing by compression."""

MEGABYTES = round((LARGE_FILES * LARGE_BYTES + SMALL_FILES * 18_700) / 1e6)


def rows() -> Iterator[Row]:
    """From ``fabric run`` to the end of a job that does nothing, compared with rsync and ``ssh host true``."""
    if shutil.which("rsync") is None:
        raise SystemExit("this benchmark needs rsync")
    with ground() as it:
        _fill(it.folder)
        run = [FABRIC, "run", "-q", "--backend", "ssh://box", "--", "true"]
        copy = ["rsync", "-a", "-e", " ".join(it.ssh[:-1]), f"{it.folder}/", f"{it.ssh[-1]}:copied/"]
        theirs = ["sh", "-c", f"{shlex.join(copy)} && {shlex.join([*it.ssh, 'true'])}"]

        def ours_first() -> float:
            _forget(it)
            return seconds_of(run, it.environment, it.folder)

        def theirs_first() -> float:
            shutil.rmtree(it.user.home / "copied", ignore_errors=True)
            return seconds_of(theirs, it.environment)

        def ours_changed() -> float:
            _change(it.folder)
            return seconds_of(run, it.environment, it.folder)

        def theirs_changed() -> float:
            _change(it.folder)
            return seconds_of(theirs, it.environment)

        peer = "`rsync -a`, `ssh host true`"
        first, first_theirs = in_turn(ours_first, theirs_first, runs=3)
        yield Row(
            f"SSH: a job with {MEGABYTES} MB of new code",
            first,
            "s",
            peer,
            first_theirs,
            "<= 4 x",
            first <= 4 * first_theirs,
        )
        changed, changed_theirs = in_turn(ours_changed, theirs_changed, runs=5)
        yield Row(
            f"SSH: a job with one changed file among {MEGABYTES} MB",
            changed,
            "s",
            peer,
            changed_theirs,
            "<= 4 x",
            changed <= 4 * changed_theirs,
        )


def _fill(folder: Path) -> None:
    for number in range(LARGE_FILES):
        (folder / f"weights{number}.bin").write_bytes(os.urandom(LARGE_BYTES))
    for number in range(SMALL_FILES):
        part = folder / f"part{number % 30}"
        part.mkdir(exist_ok=True)
        # One call a file: one a line, which is a system call each, took minutes on a busy machine.
        digits = os.urandom(14 * SMALL_LINES).hex()
        text = "".join(f"x{line} = '{digits[28 * line : 28 * line + 28]}'\n" for line in range(SMALL_LINES))
        (part / f"m{number}.py").write_text(text)


def _change(folder: Path) -> None:
    with (folder / "part7" / "m7.py").open("a") as stream:
        stream.write("# changed\n")


def _forget(it: Ground) -> None:
    """Remove all code here and at the host, but nothing else."""
    shutil.rmtree(Home(Path(it.environment["FABRIC_HOME"])).code, ignore_errors=True)
    for folder in it.user.home.glob(".fabric/*/*/code"):
        shutil.rmtree(folder)
