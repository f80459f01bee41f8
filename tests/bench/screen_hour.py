"""What an hour of use over SSH writes to a terminal, with real jobs that print and report all the time.

The screens run behind a real sshd and are looked at through OpenSSH's client on a slow terminal. The hour is played key
by key: most of it on a page that somebody looks at while a job runs, as people do. By default a tenth of each stay is
waited for and the bytes of that count ten times. ``FABRIC_BENCH_HOUR`` is another share of them; to play it whole:
``FABRIC_BENCH_HOUR=1 python -m tests.bench screens-hour --limit 5000``.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.harness import FABRIC, Row, fresh_home
from tests.support.screen_terminal import TRUE_COLOUR, PtyTerminal
from tests.support.sshd import Daemon, User, why_not

JOBS: Final = 3
LIMIT_BYTES: Final = 2_000_000
LINK_BYTES_PER_SECOND, LINK_DELAY_SECONDS = 20_000, 0.2

PROGRAM: Final = """
import math, random, time
import fabric_learner
for step in range(1_000_000):
    is_past = step < 600
    loss = 2 * math.exp(-step / 600) + random.random() / 20
    print(f"step {step} loss {loss:.4f} samples/s {random.randint(800, 900)}", flush=not is_past)
    if step % 5 == 0:
        fabric_learner.report(step=step, loss=loss, accuracy=1 - loss / 3)
    if not is_past:
        busy = time.monotonic() + random.random() / 10
        while time.monotonic() < busy:
            pass
        time.sleep(1)
"""
"""Begins with what a job has printed and reported in ten minutes: a young one's curves are drawn again all the time."""

DOWN, UP, ENTER, ESCAPE, CTRL_P = "\x1b[B", "\x1b[A", "\r", "\x1b", "\x10"
_KEYS: Final = re.compile(r"\x1b\[[AB]|.", re.DOTALL)


class Stay(NamedTuple):
    """What is typed, a key at a time, and the page that somebody then looks at for so many minutes."""

    what: str
    keys: str
    minutes: float
    shows: tuple[str, ...]
    """What is on that page and on no other of those that a wrong key would lead to."""


LIST: Final = ("fabric › jobs", "train-1", "train-3")
HOUR: Final = (
    Stay("the list", ESCAPE, 4, LIST),
    Stay("the cursor moved", DOWN * 2 + UP * 2, 3, LIST),
    Stay("a filter", "/train\r", 2, (*LIST, " train x")),
    Stay("the list again", ESCAPE, 1, LIST),
    Stay("a dashboard", ENTER, 10, ("1 overview", "running for", "log ─")),
    Stay("the log, followed", "l", 8, ("follow", "samples/s")),
    Stay("the log, scrolled up", UP * 5, 1, ("new line", "samples/s")),
    Stay("its end", "G", 3, ("follow", "samples/s")),
    Stay("the charts", "m", 8, ("one chart", "accuracy")),
    Stay("the usage", "4", 4, ("CPU", "memory", "pid user")),
    Stay("the dashboard again", "1", 5, ("running for", "log ─")),
    Stay("the help", "?", 1, ("type to find a key",)),
    Stay("the dashboard once more", ESCAPE, 1, ("running for", "log ─")),
    Stay("a comparison", ESCAPE + "g   c", 1, ("compare 3 jobs", "accuracy", "loss")),
    Stay("the form", ESCAPE + "n", 1, ("new job", "command")),
    Stay("the palette", ESCAPE + CTRL_P, 1, ("find a command",)),
    Stay("the list at the end", ESCAPE, 6, LIST),
)
"""60 minutes in all."""


def rows() -> list[Row]:
    """Return how many bytes an hour writes to a terminal at the end of a slow link."""
    share = float(os.environ.get("FABRIC_BENCH_HOUR") or 0.1)
    if reason := why_not():
        raise SystemExit(f"this benchmark {reason}")
    with fresh_home() as environment, _sshd(environment) as argv:
        try:
            for name in _names():
                _start(name, environment)
            count = _play(argv, environment, share)
        finally:
            subprocess.run([FABRIC, "kill", *_names(), "--no-wait"], env=environment, check=False)
            subprocess.run([FABRIC, "wait", *_names()], env=environment, check=False, capture_output=True)
    part = "" if share == 1 else f", from {share:.0%} of it"
    what = f"bytes of an hour of use over SSH beside three running jobs{part}"
    return [Row(what, count / 1e6, "MB", "", None, "< 2 MB", count < LIMIT_BYTES)]


def _names() -> list[str]:
    return [f"train-{number}" for number in range(1, JOBS + 1)]


def _start(name: str, environment: Mapping[str, str]) -> None:
    command = [FABRIC, "run", "--detach", "--quiet", "--name", name, "--", sys.executable, "-c", PROGRAM]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, env=environment, cwd=folder, check=True)


@contextmanager
def _sshd(environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Start an sshd that lets in who runs this, and give the command that opens the screens through it."""
    name, root = getpass.getuser(), Path(environment["HOME"])
    key, known = root / "key", root / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with Daemon(root / "sshd") as daemon:
        daemon.authorize(User(name, Path.home(), "/bin/sh"), key.with_suffix(".pub"))
        known.write_text(daemon.known_line())
        variables = [f"{variable}={value}" for variable, value in {**environment, **TRUE_COLOUR}.items()]
        tui = shlex.join(["env", "-i", *variables, FABRIC, "tui"])
        where = [f"{name}@{daemon.address}", "-p", str(daemon.port), "-i", str(key)]
        yield ["ssh", "-F", "none", "-o", f"UserKnownHostsFile={known}", "-t", *where, tui]


def _play(argv: Sequence[str], environment: Mapping[str, str], share: float) -> float:
    """Return the bytes of an hour: those of each key, and those of each stay, which may be shortened."""
    terminal = PtyTerminal(
        argv,
        environment,
        bytes_per_second=LINK_BYTES_PER_SECOND,
        delay_seconds=LINK_DELAY_SECONDS,
    )
    try:
        terminal.until(lambda: f"train-{JOBS}" in terminal.shown)
        total = 0.0
        for stay in HOUR:
            before = terminal.count
            for key in _KEYS.findall(stay.keys):
                terminal.type(key.encode())
                time.sleep(1.0)
            terminal.until(lambda stay=stay: all(part in terminal.shown for part in stay.shows))  # type: ignore[misc]
            terminal.until_quiet(0.3)  # all of the page has arrived
            drawn, began = terminal.count, time.monotonic()
            time.sleep(stay.minutes * 60 * share)
            rate = (terminal.count - drawn) / (time.monotonic() - began)
            print(f"{stay.what}: {drawn - before} bytes, then {rate:.0f} a second", file=sys.stderr)
            total += drawn - before + rate * stay.minutes * 60
        return total
    finally:
        terminal.close()
