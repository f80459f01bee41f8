"""A host over SSH when much goes on, when code has changed, when the link is slow, and when it comes back."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import psutil

from tests.bench.harness import FABRIC, Row, in_turn
from tests.bench.ssh import Ground, ground
from tests.ssh.lab import Lab, lab
from tests.ssh.relay import Relay

JOBS = 50
WATCHED_SECONDS = 30.0
CODE_BYTES = 1 << 20
UPLOAD_BYTES = 1 << 30
RATE = "1gbit"
SLOW_RATE = "2mbit"
SLOW_RUNS = 3
AWAY_SECONDS = 5.0
COUNT = (
    "import time\nfor number in range(600):\n    print(time.time_ns(), flush=True)\n    time.sleep(0.05)\n"
)


def many_rows() -> list[Row]:
    """What 50 running jobs on one host cost here: connections, sessions there, CPU."""
    with ground() as it:
        for _ in range(JOBS):
            _fabric(it, "run", "-d", "-q", "--backend", "ssh://box", "--", "sleep", "600")
        while sum(job["state"] == "PROCESSING" for job in json.loads(_fabric(it, "list", "--json"))) < JOBS:
            time.sleep(0.2)
        controller = psutil.Process(json.loads(_fabric(it, "controller", "status", "--json"))["pid"])
        time.sleep(5)
        before = sum(controller.cpu_times()[:2])
        time.sleep(WATCHED_SECONDS)
        percent = 100 * (sum(controller.cpu_times()[:2]) - before) / WATCHED_SECONDS
        connections = len([one for one in controller.net_connections("tcp") if one.status == "ESTABLISHED"])
        channels = _sessions_of(it)
        for job in json.loads(_fabric(it, "list", "--json")):
            _fabric(it, "kill", job["id"])
    return [
        Row("SSH: 50 running jobs, connections", connections, "", "", None, "1", connections == 1),
        Row("SSH: 50 running jobs, sessions there", channels, "", "", None, "1", channels == 1),
        Row("SSH: 50 running jobs, CPU here", percent, "% of a core", "", None, "< 5 %", percent < 5),
    ]


def changed_code_rows() -> list[Row]:
    """From ``fabric run`` to the first line with 1 MB of changed code, beside the same with code that is there."""
    with ground() as it:
        blob = it.folder / "blob"
        blob.write_bytes(os.urandom(CODE_BYTES))

        def first_line() -> float:
            argv = [FABRIC, "run", "-q", "--backend", "ssh://box", "--", "echo", "ready"]
            started = time.perf_counter()
            subprocess.run(argv, cwd=it.folder, env=it.environment, check=True, capture_output=True)
            return time.perf_counter() - started

        def changed() -> float:
            blob.write_bytes(os.urandom(CODE_BYTES))
            return first_line()

        ours, known = in_turn(changed, first_line, runs=5)
    more = ours - known
    return [Row("SSH: 1 MB of changed code, more", more, "s", "", None, "<= 0.3 s", more <= 0.3)]


def upload_rows() -> list[Row]:
    """A large file to the host."""
    with ground() as it, as_user(it):
        return [_upload_row(it, "box", f"SSH: upload of {UPLOAD_BYTES >> 30} GiB")]


@contextmanager
def behind(it: Ground) -> Iterator[Lab]:
    """Make a host that is called ``target`` behind a jump host, and let this process reach it as the bench's user."""
    folder = Path(it.environment["HOME"])
    key, known = folder / ".ssh" / "id_ed25519", folder / ".ssh" / "known_hosts"
    with lab(folder / "lab", it.user, Path(f"{key}.pub"), folder / "leases") as links, as_user(it):
        with (folder / ".ssh" / "config").open("a") as stream:
            stream.write(links.config(it.user, key, known))
        with known.open("a") as stream:
            stream.write(links.known_lines())
        yield links


def throttled_upload_rows() -> list[Row]:
    """The same over a link of 1 Gbit/s and a jump host."""
    with ground() as it, behind(it) as links:
        links.throttle(RATE)
        what = f"SSH: upload of {UPLOAD_BYTES >> 30} GiB over 1 Gbit/s and a jump host"
        return [_upload_row(it, "target", what)]


def slow_rows() -> list[Row]:
    """At 2 Mbit/s, beside the same without a flood: another job's first line and a halt, while a log fills the link."""
    with ground() as it, behind(it) as links:
        _fabric(it, "run", "-q", "--backend", "ssh://target", "--", "true")  # the agent is there
        links.throttle(SLOW_RATE)
        quiet_line, quiet_halt = _first_line_seconds(it), _halt_seconds(it, "echo began; sleep 600")
        busy = "seq 100000 999999; " * 10  # 63 MB, four minutes of the link
        holder = _begin(it, f"{busy} sleep 600")
        line, halt = _first_line_seconds(it), _halt_seconds(it, "echo began; sleep 600")
        links.throttle(RATE)
        _fabric(it, "kill", holder)
    where = f"SSH, {SLOW_RATE}, a log of 63 MB on its way"
    return [
        Row(
            f"{where}: another job's first line",
            line,
            "s",
            "nothing else on its way",
            quiet_line,
            "<= 10 s",
            line <= 10,
        ),
        Row(
            f"{where}: a halt at the host",
            halt,
            "s",
            "nothing else on its way",
            quiet_halt,
            "<= 5 s",
            halt <= 5,
        ),
    ]


def _first_line_seconds(it: Ground) -> float:
    """Return the median time from ``fabric run`` to the first line."""

    def once() -> float:
        argv = [FABRIC, "run", "-q", "--backend", "ssh://target", "--", "echo", "ready"]
        started = time.perf_counter()
        with subprocess.Popen(argv, cwd=it.folder, env=it.environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            return time.perf_counter() - started

    return statistics.median(once() for _ in range(SLOW_RUNS))


def _halt_seconds(it: Ground, command: str) -> float:
    """Return the median time from ``fabric halt`` to the request's arrival at the host."""

    def once() -> float:
        job = _begin(it, command)
        (learner,) = it.user.home.glob(f".fabric/*/*/jobs/{job}/attempt-1/learner-1")
        started = time.perf_counter()
        _fabric(it, "halt", "--no-wait", job)
        while not (learner / "stop.json").exists():
            time.sleep(0.01)
        return time.perf_counter() - started

    return statistics.median(once() for _ in range(SLOW_RUNS))


def _begin(it: Ground, command: str) -> str:
    """Begin a job, and wait until something that it printed is here."""
    job = _fabric(it, "run", "-d", "-q", "--backend", "ssh://target", "--", "sh", "-c", command).strip()
    while not _fabric(it, "logs", "--tail", "1", job):
        time.sleep(0.05)
    return job


def _upload_row(it: Ground, name: str, what: str) -> Row:
    """Write a large file to a host, beside ``ssh host 'cat > f' < file``."""
    from backends.contract.host import BackendOptions
    from backends.ssh.backend import SshBackend

    with tempfile.TemporaryFile() as source:
        for _ in range(UPLOAD_BYTES >> 20):
            source.write(os.urandom(1 << 20))
        with closing(SshBackend(BackendOptions(name, "ssh", f"ssh://{name}")).open()) as host:

            def ours() -> float:
                source.seek(0)
                started = time.perf_counter()
                host.put(source, f"{it.user.home}/ours")
                return time.perf_counter() - started

            def theirs() -> float:
                source.seek(0)
                started = time.perf_counter()
                subprocess.run([*it.ssh[:-1], name, "cat > theirs"], stdin=source, check=True)
                return time.perf_counter() - started

            mine, peer = in_turn(ours, theirs, runs=3)
    return Row(what, mine, "s", "`ssh host 'cat > f' < file`", peer, "<= 1.2 x", mine <= 1.2 * peer)


def back_rows() -> list[Row]:
    """From the link's return to the right state with all that was printed meanwhile."""
    with ground() as it:
        config = Path(it.environment["HOME"]) / ".ssh" / "config"
        relay = Relay(it.daemon)
        try:
            with config.open("a") as stream:
                stream.write(
                    f"Host relayed\n  HostName 127.0.0.1\n  Port {relay.port}\n  User {it.user.name}\n"
                )
            with (config.parent / "known_hosts").open("a") as stream:
                stream.write(it.daemon.known_line(f"[127.0.0.1]:{relay.port}"))
            (it.folder / "count.py").write_text(COUNT)
            job = _fabric(
                it, "run", "-d", "-q", "--backend", "ssh://relayed", "--", "python3", "count.py"
            ).strip()
            while not _fabric(it, "logs", job):
                time.sleep(0.1)
            relay.cut()
            time.sleep(AWAY_SECONDS)
            relay.join()
            back = time.time()
            while True:
                lines = _fabric(it, "logs", job).split()
                shown = json.loads(_fabric(it, "show", job, "--json"))
                if int(lines[-1]) / 1e9 > back and "cannot be reached" not in shown["reason"]:
                    break
            took = time.time() - back
            gap = max(int(two) - int(one) for one, two in pairwise(lines)) / 1e9
            _fabric(it, "kill", job)
        finally:
            relay.end()
    if gap > 1:
        raise SystemExit(f"a gap of {gap:.1f} s is in the output")
    return [
        Row("SSH: right state and no gap after the link is back", took, "s", "", None, "<= 5 s", took <= 5)
    ]


def _fabric(it: Ground, *args: str) -> str:
    ran = subprocess.run(
        [FABRIC, *args], env=it.environment, cwd=it.folder, check=True, capture_output=True, text=True
    )
    return ran.stdout


def _sessions_of(it: Ground) -> int:
    """Count the processes there that speak with us: each is one session channel."""
    uid = it.user.uid
    return sum(
        1
        for process in psutil.process_iter(["uids", "cmdline"])
        if process.info["uids"]
        and process.info["uids"].real == uid
        and "host" in (process.info["cmdline"] or [])
    )


@contextmanager
def as_user(it: Ground) -> Iterator[None]:
    """Reach hosts from this process as the bench's user does."""
    before = {name: os.environ.get(name) for name in ("HOME", "FABRIC_HOME")}
    os.environ.update({name: it.environment[name] for name in before if name in it.environment})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
