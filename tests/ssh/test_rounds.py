"""Seeded rounds of harm to a job over SSH: every byte and point comes home once, one learner runs, nothing is left.

Each round is a test of its own. The gate does a few cheap ones; in the soak every kind comes twice, and links are cut
for minutes now and then. ``--chaos-rounds 200`` does so many.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ssh.company import COMPANY
from tests.ssh.harms import ANOTHER_ATTEMPT, HARMS, Scene
from tests.ssh.relay import Relay
from tests.support.box import Box
from tests.support.controllers import log_of
from tests.support.real_jobs import Ground
from tests.support.sshd import processes_of
from tests.support.waiting import until
from workbench.data.code.snapshot import take_snapshot
from workbench.job import TERMINAL, State
from workbench.metrics import points, series
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

pytestmark = pytest.mark.chaos

PARTS = 50
PART_BYTES = 40_000
STREAM = f"""
import os, random, signal, sys, time
from fabric_learner import report
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(os.environ["RESULT_DIR"] + "/starts", "a").write("x")
draw = random.Random(11)
for part in range({PARTS}):
    sys.stdout.buffer.write(draw.randbytes({PART_BYTES}))
    sys.stdout.flush()
    if "silent" not in sys.argv:
        report(part=part, step=part)
    time.sleep(0.03)
while "forever" in sys.argv:
    time.sleep(0.05)
"""
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
ALL = {**HARMS, **COMPANY}
KINDS = tuple(ALL)
PHASES = ("launch", "stream", "stop")
UPLOADING = ("upload", *PHASES)
CODE_BYTES = 3_000_000
SLOW_SECONDS = 0.02
"""By 64 KiB each, so that code takes a second to go up."""
SECONDS = 120.0
IN_GATE = ("0-session-upload", "7-half-open-stop")
WHY_SOAK = "rounds of harm; the gate does two, and has each of these harms in a test of its own"
LABELS = {
    "session": "SSH session killed",
    "sshd": "sshd stopped for a while",
    "host process": "agent that serves a host killed",
    "guard": "guard killed",
    "scribe": "scribe killed",
    "controller": "controller killed",
    "link": "link cut",
    "half-open": "link half open",
    "drop": "packets dropped",
    "disk": "host's disk full",
    "reboot": "host rebooted",
    "clock": "host's clock an hour ahead",
    "one session": "only session of a host killed",
    "laptop": "second laptop at the host",
    "other host": "second host with the same home",
}
"""How the soak tells of each kind of harm."""


def streamed() -> bytes:
    draw = random.Random(11)
    return b"".join(draw.randbytes(PART_BYTES) for _ in range(PARTS))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each round: its number is its seed, its kind and its phase follow from that."""
    if "seed" in metafunc.fixturenames:
        rounds = metafunc.config.getoption("--chaos-rounds") or 2 * len(KINDS)
        metafunc.parametrize("seed", [round_of(seed) for seed in range(rounds)])


def round_of(seed: int) -> pytest.ParameterSet:
    """Return a round as a test's parameter; most are for the soak."""
    name = f"{seed}-{kind_of(seed)}-{phase_of(seed)}".replace(" ", "_")
    return pytest.param(seed, id=name, marks=() if name in IN_GATE else pytest.mark.soak(WHY_SOAK))


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)]


def phase_of(seed: int) -> str:
    """The second time round each kind comes in another phase; what ends learners comes while they run."""
    kind = kind_of(seed)
    if kind in ANOTHER_ATTEMPT or kind in ("scribe", "disk"):
        return "stream"
    phases = PHASES if kind == "clock" else UPLOADING
    return phases[(seed + seed // len(KINDS)) % len(phases)]


@pytest.fixture
def box_settings(request: pytest.FixtureRequest) -> list[str]:
    one = kind_of(request.getfixturevalue("seed")) == "one session"
    return ["MaxSessions 1", "MaxStartups 1"] if one else []


@pytest.fixture
def box_environment(request: pytest.FixtureRequest) -> list[str]:
    if kind_of(request.getfixturevalue("seed")) != "clock":
        return []
    if not FAKETIME.exists():
        pytest.skip("needs libfaketime (Debian's faketime)")
    return [
        f"LD_PRELOAD={FAKETIME}",
        "FAKETIME=+3600",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "FAKETIME_NO_CACHE=1",
    ]


@pytest.fixture
def box_knows_us(seed: int) -> bool:
    """The disk that fills up is mounted where the agent would lie."""
    return kind_of(seed) != "disk"


@pytest.fixture
def scene(home: Home, box: Box, seed: int, chaos_rounds: int | None) -> Iterator[Scene]:
    """A host behind a relay that delays, and a home whose jobs run there."""
    draw = random.Random(seed)
    small = box.user.home / ".fabric"
    if kind_of(seed) == "disk":
        small.mkdir(mode=0o700)
        options = f"size=12m,mode=0700,uid={box.user.uid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(small)], check=True)
    delay = SLOW_SECONDS if phase_of(seed) == "upload" else draw.choice((0.0, 0.0, 0.005))
    relay = Relay(box.daemon, delay_seconds=delay)
    with box.config.open("a") as stream:
        stream.write(f"Host relayed\n  HostName 127.0.0.1\n  Port {relay.port}\n  User {box.user.name}\n")
    box.known_hosts.write_text(
        box.known_hosts.read_text() + box.daemon.known_line(f"[127.0.0.1]:{relay.port}")
    )
    target = TargetRef("box", "ssh", "process", address="ssh://relayed", options={"silent_seconds": "2"})
    ground = Ground(home, target)
    try:
        yield Scene(box, ground, relay, draw, lasting=chaos_rounds is not None)
        ground.clean_up()
    finally:
        relay.go_on()
        relay.end()
        if kind_of(seed) == "disk":
            for pid in processes_of(box.user):
                subprocess.run(["kill", "-9", str(pid)], check=False)
            until(lambda: not processes_of(box.user), "its processes to end")
            subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_round(scene: Scene, seed: int, tmp_path: Path, note_harm: Callable[[str], None]) -> None:
    kind, phase = kind_of(seed), phase_of(seed)
    ground, draw = scene.ground, scene.draw
    # What a command writes to a full disk itself is lost, and none of our affair.
    words = ["silent"] * (kind == "disk") + ["forever"] * (phase == "stop")
    command = f"exec python3 -c '{STREAM}' {' '.join(words)}"
    code_hash = ""
    if phase == "upload":
        command = f"sha256sum -c --status sums && {command}"
        code_hash = large_code(ground.home, tmp_path / "code", draw)
    job_id = ground.submit(command, max_platform_restarts=3, code_hash=code_hash)
    output = ground.learner(job_id).output
    if phase == "launch":
        time.sleep(draw.uniform(0.0, 0.8))
    elif phase == "upload":
        share = draw.uniform(0.05, 0.9) * CODE_BYTES
        until(lambda: uploaded(scene) >= share, lambda: log_of(ground.home))
    else:
        share = draw.uniform(0.05, 0.7) * PARTS * PART_BYTES
        until(lambda: output.exists() and output.stat().st_size >= share, lambda: log_of(ground.home))
    if phase == "stop":
        ground.ask(job_id, "halt")
    note_harm(LABELS[kind])
    ALL[kind](scene)
    row = ground.reaches(job_id, *TERMINAL, seconds=SECONDS)

    wanted = State.HALTED if phase == "stop" else State.COMPLETED
    assert (row.state, row.attempt) == (wanted, 2 if kind in ANOTHER_ATTEMPT else 1), (
        row.reason,
        log_of(ground.home),
    )
    got = ground.learner(job_id, row.attempt).output.read_bytes()
    assert got == there(scene, job_id, row.attempt)
    if wanted is State.COMPLETED:
        assert got == streamed()
        assert kind == "disk" or recorded(scene, job_id, row.attempt) == list(range(PARTS))
    else:
        assert streamed().startswith(got)
    starts = ground.home.job(job_id).results / "starts"
    assert starts.read_text() == "x" * row.attempt, "a learner was started twice"
    is_gone_when_deleted(scene, job_id)


def large_code(home: Home, folder: Path, draw: random.Random) -> str:
    """Make code that takes a while to go up, with what proves it whole; return its hash."""
    folder.mkdir()
    content = draw.randbytes(CODE_BYTES)
    (folder / "blob").write_bytes(content)
    (folder / "sums").write_text(f"{hashlib.sha256(content).hexdigest()}  blob\n")
    return take_snapshot(folder, home).code_hash


def uploaded(scene: Scene) -> int:
    """Return how much of the code has come to the host."""
    # On its way it is a part, hidden at first; once it is there, contents.
    patterns = ("code/*", "code/.*", "code/parts/*", "code/parts/.*", "code/files/*/*")
    files = [file for pattern in patterns for file in scene.box.user.home.glob(f".fabric/*/*/{pattern}")]
    return max((file.stat().st_size for file in files if file.is_file()), default=0)


def there(scene: Scene, job_id: str, attempt: int) -> bytes:
    """Return what the host has of a job's output."""
    (file,) = scene.box.user.home.glob(f".fabric/*/*/jobs/{job_id}/attempt-{attempt}/learner-1/output.log")
    return file.read_bytes()


def recorded(scene: Scene, job_id: str, attempt: int) -> list[int]:
    """Return the steps that a job's metric has in the store."""
    (found,) = series(scene.ground.store, job_id)
    shown = points(scene.ground.store, found.id)
    return [int(point.step or 0) for point in shown if point.attempt == attempt]


def is_gone_when_deleted(scene: Scene, job_id: str) -> None:
    """Delete a job, and look for anything of its own that is left."""
    ground, user = scene.ground, scene.box.user
    ground.ask(job_id, "delete")
    until(lambda: ground.row(job_id).deleted_us is not None, lambda: log_of(ground.home), seconds=SECONDS)
    until(lambda: ground.processes() == [])
    assert not list(user.home.glob(f".fabric/*/*/jobs/{job_id}"))
    assert not list(Path("/dev/shm").glob(f"fabric-{user.uid}/*{job_id}*"))
    until(lambda: not ground.home.job(job_id).path.exists())
