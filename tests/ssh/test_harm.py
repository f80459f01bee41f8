"""Whatever is killed or cut, every byte comes home once, one learner runs, and the job keeps its state."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.controller.stuck import stuck
from tests.ssh.relay import Relay
from tests.support.box import Box
from tests.support.controllers import answers, kill
from tests.support.kept_ground import KeptGround
from tests.support.real_jobs import Ground
from tests.support.sshd import processes_of
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller
from workbench.job import TERMINAL, State
from workbench.learner.platform.system import read_bytes
from workbench.store.db.rows import TargetRef

pytestmark = pytest.mark.chaos

STREAM = """
import random, sys, time, os
open(os.environ["RESULT_DIR"] + "/starts", "a").write("x")
draw = random.Random(11)
gate = os.environ["JOB_STATE_DIR"] + "/go-on"
for part in range(60):
    sys.stdout.buffer.write(draw.randbytes(50_000))
    sys.stdout.flush()
    time.sleep(0.03)
"""
"""Prints 3 MB in two seconds or so."""
LABELS = {
    "session": "SSH session killed",
    "agent": "agent that serves a host killed",
    "controller": "controller killed",
}
"""How the soak tells of each kind of harm."""


def streamed() -> bytes:
    """Return what it prints."""
    draw = random.Random(11)
    return b"".join(draw.randbytes(50_000) for _ in range(60))


@pytest.fixture
def ground(kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A home whose jobs run at the host, both of which other tests here have harmed."""
    with kept_ground.entered(monkeypatch) as entered:
        yield entered


@pytest.fixture
def box(kept_box: Box) -> Iterator[Box]:
    """That host."""
    yield kept_box
    if not kept_box.daemon.listens():
        kept_box.daemon.start()


def submit_stream(ground: Ground, target: TargetRef | None = None) -> str:
    return ground.submit(
        f"exec python3 -c '{STREAM}'", max_platform_restarts=3, target=target or ground.target
    )


def size(ground: Ground, job_id: str) -> int:
    file = ground.learner(job_id).output
    return file.stat().st_size if file.exists() else 0


def has_come(ground: Ground, job_id: str, count: int) -> None:
    until(lambda: size(ground, job_id) >= count or ground.row(job_id).state in TERMINAL)


def is_whole(ground: Ground, job_id: str) -> None:
    """Wait for the end, and compare all that came home."""
    row = ground.reaches(job_id, *TERMINAL)
    assert (row.state, row.exit_code, row.attempt) == (State.COMPLETED, 0, 1), row.reason
    got = ground.learner(job_id).output.read_bytes()
    assert len(got) == len(streamed())
    assert hashlib.sha256(got).hexdigest() == hashlib.sha256(streamed()).hexdigest()
    assert (ground.home.job(job_id).results / "starts").read_text() == "x", "the learner was started twice"
    assert int.from_bytes(ground.learner(job_id).index.read_bytes()[-24:-16], "little") == len(got)


def host_processes(box: Box) -> list[int]:
    """List the agents at the host that speak with us."""
    found = []
    for pid in processes_of(box.user):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since
        if b"host" in words and any(b"/agents/" in word for word in words):
            found.append(pid)
    return found


@pytest.mark.parametrize("what", ["session", "agent", "controller"])
@pytest.mark.parametrize(
    "seed",
    [0, pytest.param(1, marks=pytest.mark.soak("other moments of the same kills; the gate has one seed"))],
)
def test_killed_in_the_middle_of_the_stream(
    ground: Ground, box: Box, what: str, seed: int, note_harm: Callable[[str], None]
) -> None:
    draw = random.Random(seed)
    job_id = submit_stream(ground)
    for share in sorted(draw.uniform(0.05, 0.8) for _ in range(3)):
        has_come(ground, job_id, int(share * len(streamed())))
        note_harm(LABELS[what])
        if what == "session":
            box.daemon.kill_sessions()
        elif what == "agent":
            for pid in host_processes(box):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            kill(answers(ground.home).pid)
            ensure_controller(ground.home)

    is_whole(ground, job_id)


def test_a_host_that_is_away_for_a_while_leaves_the_job_its_state(ground: Ground, box: Box) -> None:
    job_id = submit_stream(ground)
    has_come(ground, job_id, 100_000)
    ground.reaches(job_id, State.PROCESSING)
    box.daemon.stop()
    until(lambda: "refuses the connection" in ground.row(job_id).reason.text)

    row = ground.row(job_id)
    assert row.state is State.PROCESSING
    assert row.reason.text.startswith("box cannot be reached")
    assert row.seen_us is not None
    box.daemon.start()

    is_whole(ground, job_id)


def test_a_link_that_takes_everything_and_gives_nothing_is_given_up_and_opened_anew(
    ground: Ground, box: Box
) -> None:
    relay = Relay(box.daemon)
    target = TargetRef("box", "ssh", "process", address="ssh://relayed", options={"silent_seconds": "2"})
    with box.config.open("a") as stream:
        stream.write(f"Host relayed\n  HostName 127.0.0.1\n  Port {relay.port}\n  User {box.user.name}\n")
    box.known_hosts.write_text(
        box.known_hosts.read_text() + box.daemon.known_line(f"[127.0.0.1]:{relay.port}")
    )
    try:
        job_id = submit_stream(ground, target)
        has_come(ground, job_id, 200_000)
        relay.freeze()
        until(lambda: "cannot be reached" in ground.row(job_id).reason.text)
        assert ground.row(job_id).state is State.PROCESSING
        relay.go_on()
        is_whole(ground, job_id)
    finally:
        relay.go_on()
        relay.end()


def test_a_host_that_goes_while_results_are_put_away_is_waited_for(ground: Ground, box: Box) -> None:
    job_id = ground.submit(
        "head -c 3000000 /dev/urandom > $RESULT_DIR/big; sha256sum < $RESULT_DIR/big; sleep 0.5"
    )
    until(lambda: size(ground, job_id) > 60)
    box.daemon.stop()
    until(lambda: "cannot be reached" in ground.row(job_id).reason.text)
    box.daemon.start()
    row = ground.reaches(job_id, *TERMINAL)

    assert row.state is State.COMPLETED
    made = (ground.home.job(job_id).results / "big").read_bytes()
    assert ground.output(job_id).split()[0] == hashlib.sha256(made).hexdigest()


def test_a_halt_that_was_asked_while_the_host_was_away_is_done_when_it_is_back(
    ground: Ground, box: Box
) -> None:
    job_id = ground.submit("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    ground.prints(job_id, "ready")
    box.daemon.stop()
    until(lambda: "cannot be reached" in ground.row(job_id).reason.text, lambda: stuck(ground.home, job_id))
    ground.ask(job_id, "halt")
    box.daemon.start()
    row = ground.reaches(job_id, *TERMINAL)

    assert row.state is State.HALTED
    assert "saved" in ground.output(job_id)
    until(lambda: ground.processes() == [])


def test_an_agent_of_a_learner_that_is_killed_ends_the_job_with_a_reason(ground: Ground, box: Box) -> None:
    job_id = ground.submit("echo ready; while :; do sleep 0.05; done")
    ground.prints(job_id, "ready")
    marker = f"FABRIC_GUARD={ground.uuid}/".encode()
    guards = [pid for pid in processes_of(box.user) if marker in read_bytes(f"/proc/{pid}/environ")]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in guards:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    row = ground.ends(job_id)

    assert (row.state, row.reason.code) == (State.FAILED, "S202")
    until(lambda: ground.processes() == [])
