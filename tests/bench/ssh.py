"""A host over SSH beside OpenSSH's own client, both to the same sshd on loopback."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.harness import FABRIC, Row, first_line_seconds, fresh_home, in_turn, seconds_of
from tests.support.sshd import Daemon, User, make_user, remove_user, why_not

LINES = 1_000_000
PRINT = f"import sys; line = 'x' * 98 + '\\n'; [sys.stdout.write(line) for _ in range({LINES})]"
STAMPS = 300
STAMP = (
    f"import time\nfor _ in range({STAMPS}):\n    print(time.time_ns(), flush=True)\n    time.sleep(0.02)\n"
)


@dataclass(frozen=True, slots=True)
class Ground:
    """A host, and the environment of who reaches it."""

    environment: dict[str, str]
    folder: Path
    user: User
    daemon: Daemon
    ssh: list[str]
    """OpenSSH's client, with all that it needs to know of the host."""


@contextmanager
def ground() -> Iterator[Ground]:
    """Make a host that is called ``box``."""
    if reason := why_not():
        raise SystemExit(f"this benchmark {reason}")
    with fresh_home() as environment:
        root = Path(environment["HOME"])
        root.chmod(0o755)
        (root / "leases").mkdir()
        (root / "leases").chmod(0o1777)
        user = make_user()
        daemon = Daemon(root / "sshd", settings=[f"SetEnv FABRIC_LEASES={root}/leases"])
        try:
            folder = root / ".ssh"
            folder.mkdir(mode=0o700)
            key = folder / "id_ed25519"
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
            (folder / "known_hosts").write_text(daemon.known_line())
            (folder / "config").write_text(
                f"Host box\n  HostName {daemon.address}\n  Port {daemon.port}\n  User {user.name}\n"
                f"  IdentityFile {key}\n  UserKnownHostsFile {folder}/known_hosts\n"
            )
            daemon.authorize(user, Path(f"{key}.pub"))
            daemon.start()
            work = root / "work"
            work.mkdir()
            yield Ground(environment, work, user, daemon, ["ssh", "-F", str(folder / "config"), "box"])
        finally:
            subprocess.run([FABRIC, "controller", "stop"], env=environment, capture_output=True)
            daemon.stop()
            remove_user(user)


def first_line_rows() -> list[Row]:
    """From ``fabric run`` to the first line of output, the code there already, beside ``ssh host echo``."""
    with ground() as it:
        argv = [FABRIC, "run", "-q", "--backend", "ssh://box", "--", "echo", "ready"]

        def first_line() -> float:
            return first_line_seconds(argv, it.environment, it.folder, expect=b"ready\n")

        def cold() -> float:
            subprocess.run([FABRIC, "controller", "stop"], env=it.environment, capture_output=True)
            return first_line()

        def echo() -> float:
            return seconds_of([*it.ssh, "echo", "ready"], it.environment)

        at_first, at_best, theirs = in_turn(cold, first_line, echo, runs=5)
    return [
        Row(
            "SSH: first line, cold",
            at_first,
            "s",
            "`ssh host echo`",
            theirs,
            "<= 3 x",
            at_first <= 3 * theirs,
        ),
        Row(
            "SSH: first line, warm", at_best, "s", "`ssh host echo`", theirs, "<= 2 x", at_best <= 2 * theirs
        ),
    ]


def probe_rows() -> list[Row]:
    """First contact with a host: the agent goes up, and all is found out."""
    with ground() as it:

        def probe() -> float:
            shutil.rmtree(it.user.home / ".fabric", ignore_errors=True)
            return seconds_of([FABRIC, "backend", "test", "ssh://box"], it.environment)

        (mine,) = in_turn(probe, runs=5)
    return [Row("SSH: first contact with a new host", mine, "s", "", None, "<= 2 s", mine <= 2)]


def million_line_rows() -> list[Row]:
    """1,000,000 lines of 99 bytes from the host to attached stdout, beside ``ssh host cat`` of the same file."""
    with ground() as it:
        (it.folder / "print.py").write_text(PRINT)
        target, copied = it.folder.parent / "out", it.folder.parent / "copied"
        there = it.user.home / "lines"
        with there.open("wb") as stream:
            subprocess.run([sys.executable, it.folder / "print.py"], stdout=stream, check=True)
        there.chmod(0o644)
        run = f"cd {it.folder} && {FABRIC} run -q --backend ssh://box -- cat {there} > {target}"
        cat = f"{' '.join(it.ssh)} cat {there} > {copied}"

        def ours() -> float:
            took = seconds_of(["sh", "-c", run], it.environment)
            if target.stat().st_size != 99 * LINES:
                raise SystemExit("lines were lost")
            # The peer writes its one file into the same memory each time; a job that stayed would take fresh memory,
            # which a virtual machine has to be given first: measured, that alone costs a third of the time.
            subprocess.run([FABRIC, "delete", "@last", "--yes"], env=it.environment, capture_output=True)
            return took

        mine, theirs = in_turn(ours, lambda: seconds_of(["sh", "-c", cat], it.environment), runs=9)
    return [
        Row(
            "SSH: 1,000,000 lines of 99 bytes, attached; jobs deleted between runs",
            mine,
            "s",
            "`ssh host cat`",
            theirs,
            "<= 1.5 x",
            mine <= 1.5 * theirs,
        )
    ]


def latency_rows() -> list[Row]:
    """From ``print`` at the host to the line at the reader of ``fabric run``, 99th percentile."""
    with ground() as it:
        (it.folder / "stamp.py").write_text(STAMP)
        argv = [FABRIC, "run", "-q", "--backend", "ssh://box", "--", "python3", "stamp.py"]
        reader, writer = os.pipe()
        with subprocess.Popen(
            argv, stdout=writer, stderr=subprocess.DEVNULL, cwd=it.folder, env=it.environment
        ):
            os.close(writer)
            with os.fdopen(reader, "rb") as lines:
                late = sorted((time.time_ns() - int(line)) / 1e6 for line in lines)
    p99 = late[int(0.99 * len(late))]
    median = statistics.median(late)
    return [
        Row("SSH: line printed to line read, p99", p99, "ms", "", None, "<= 150 ms", p99 <= 150),
        Row("SSH: line printed to line read, median", median, "ms", "", None, "<= 150 ms", median <= 150),
    ]
