"""A link of 2 Mbit/s, full of logs: what a person asks for goes first, and the host still counts as reachable."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.ssh.lab import Lab, lab
from tests.support.box import Box
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.job import TERMINAL, State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef
from workbench.store.queries.jobs import open_jobs

pytestmark = pytest.mark.soak(
    "networks of 2 Mbit/s; the gate asks over a slow pipe (tests/backends/test_priorities.py)"
)

RATE = "2mbit"
FAST = "1gbit"
FLOOD = "while :; do seq 100000 299999; sleep 0.5; done"
"""Eleven times what the link carries."""

BACKLOG_BYTES = 70_000_000
BACKLOG = (
    "echo ready; until [ -e $RESULT_DIR/go ]; do sleep 0.1; done; "
    f"yes 0123456789012345678901234567890123456789 | head -c {BACKLOG_BYTES}; "
)
PROMPT_SECONDS = 30.0
"""What a command may take on a loaded machine. At 2 Mbit/s it took 50 s, or for ever, behind the logs."""


@contextmanager
def behind_a_jump_host(box: Box, folder: Path, root: Path | None = None) -> Iterator[Lab]:
    """Make a host behind a jump host, both in networks of their own, which our configuration knows."""
    with lab(folder / "lab", box.user, Path(f"{box.key}.pub"), folder / "leases", root=root) as found:
        with box.config.open("a") as stream:
            stream.write(found.config(box.user, box.key, box.known_hosts))
        box.known_hosts.write_text(box.known_hosts.read_text() + found.known_lines())
        yield found


@contextmanager
def ground_there(home: Home, behind: Lab, **options: str) -> Iterator[Ground]:
    """Give a home whose jobs run there, by a backend with these options; nothing is left of them."""
    made = Ground(home, TargetRef("target", "ssh", "process", address="ssh://target", options=options))
    try:
        yield made
    finally:
        behind.link("up")
        behind.throttle(FAST)
        for row in open_jobs(made.store):
            made.ask(row.id, "kill")
        until(lambda: not open_jobs(made.store), seconds=120)
        made.clean_up()


@pytest.fixture
def behind(box: Box, clean_environment: Path) -> Iterator[Lab]:
    """A host behind a jump host, both in networks of their own."""
    with behind_a_jump_host(box, clean_environment) as found:
        yield found


@pytest.fixture
def ground(home: Home, behind: Lab) -> Iterator[Ground]:
    """A home whose jobs run there."""
    with ground_there(home, behind) as made:
        yield made


def log_there(box: Box, job_id: str) -> Path:
    """Return a job's log at the host."""
    (attempt,) = box.user.home.glob(f".fabric/*/*/jobs/{job_id}/attempt-1")
    return attempt / "learner-1" / "output.log"


def is_asked_to_stop(box: Box, job_id: str) -> bool:
    """Whether a stop has arrived at the host."""
    return (log_there(box, job_id).parent / "stop.json").exists()


def comes_through(ground: Ground, box: Box, busy: str) -> None:
    """Run a trivial job to its end and halt another one, while a log fills the link; see that both take seconds."""
    began = time.monotonic()
    trivial = ground.submit("echo ready")
    until(
        lambda: ground.output(trivial) == "ready\n", lambda: str(ground.row(trivial)), seconds=PROMPT_SECONDS
    )
    first_line_seconds = time.monotonic() - began
    row = ground.reaches(trivial, *TERMINAL, seconds=PROMPT_SECONDS)
    assert row.state is State.COMPLETED, row.reason
    began = time.monotonic()
    ground.ask(busy, "halt")
    until(lambda: is_asked_to_stop(box, busy), lambda: str(ground.row(busy).reason), seconds=PROMPT_SECONDS)
    print(f"first line {first_line_seconds:.2f} s, halt {time.monotonic() - began:.2f} s")


def test_a_job_that_floods_its_log_holds_up_neither_a_halt_nor_another_job(
    ground: Ground, box: Box, behind: Lab
) -> None:
    flood = ground.submit(FLOOD)
    ground.prints(flood, "100000")
    behind.throttle(RATE)
    until(lambda: log_there(box, flood).stat().st_size > len(ground.output(flood)) + 5_000_000)

    comes_through(ground, box, flood)

    assert log_there(box, flood).stat().st_size > len(ground.output(flood)) + 5_000_000
    assert "cannot be reached" not in ground.home.job(flood).events.read_text()


@pytest.mark.parametrize("end", ["while :; do sleep 0.1; done", "exit 0"], ids=["running", "ended"])
def test_the_logs_of_a_night_offline_hold_up_neither_a_halt_nor_another_job(
    ground: Ground, box: Box, behind: Lab, end: str
) -> None:
    jobs = [ground.submit(BACKLOG + end) for _ in range(3)]
    other = ground.submit("echo ready; while :; do sleep 0.1; done")
    for job_id in (*jobs, other):
        ground.prints(job_id, "ready")
    logs = [log_there(box, job_id) for job_id in jobs]
    behind.link("down")
    for log in logs:
        (log.parents[2] / "results" / "go").touch()
    until(lambda: all(log.stat().st_size > BACKLOG_BYTES for log in logs))
    behind.throttle(RATE)
    behind.link("up")
    until(lambda: any(len(ground.output(job_id)) > 500_000 for job_id in jobs))

    comes_through(ground, box, other)

    assert all(len(ground.output(job_id)) < BACKLOG_BYTES for job_id in jobs)


def test_on_a_host_without_python_a_flood_holds_up_neither_a_halt_nor_another_job(
    bare: tuple[Box, Path], clean_environment: Path, home: Home
) -> None:
    box, root = bare
    there = replace(box, user=replace(box.user, home=root / str(box.user.home).lstrip("/")))
    with (
        behind_a_jump_host(box, clean_environment, root) as behind,
        ground_there(home, behind) as ground,
    ):
        flood = ground.submit(FLOOD)
        ground.prints(flood, "100000")
        behind.throttle(RATE)
        until(lambda: log_there(there, flood).stat().st_size > len(ground.output(flood)) + 5_000_000)

        comes_through(ground, there, flood)

        assert log_there(there, flood).stat().st_size > len(ground.output(flood)) + 5_000_000


def counted() -> str:
    """Return ten megabytes: seven times what the link carries while they are printed."""
    return "".join(f"{number}\n" for number in range(1, 1_500_001))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_flood_over_a_slow_link_that_is_cut_again_and_again_is_complete_to_the_byte(
    home: Home, box: Box, behind: Lab, seed: int, note_harm: Callable[[str], None]
) -> None:
    draw, expected = random.Random(seed), counted()
    with ground_there(home, behind, silent_seconds="2") as ground:
        job_id = ground.submit("seq 1 750000; sleep 1; seq 750001 1500000")
        ground.prints(job_id, "1\n")
        behind.throttle("16mbit")
        for share in sorted(draw.uniform(0.01, 0.9) for _ in range(6)):
            until(
                partial(has_come, ground, job_id, round(share * len(expected))),
                lambda: f"{len(ground.output(job_id))} of {len(expected)}: {ground.row(job_id).reason}",
                seconds=90,
            )
            harm = draw.choice(["the jump host's session ends", "the target's session ends", "silence"])
            note_harm(harm)
            if harm == "silence":
                behind.link("down")
                until(partial(is_unreachable, ground, job_id), lambda: str(ground.row(job_id).reason))
                behind.link("up")
            else:
                (behind.jump if "jump" in harm else behind.target).kill_sessions()

        row = ground.reaches(job_id, *TERMINAL, seconds=120)

        assert (row.state, row.attempt) == (State.COMPLETED, 1), row.reason
        assert first_difference(ground.output(job_id), expected) is None


def is_unreachable(ground: Ground, job_id: str) -> bool:
    """Whether the job says that nothing comes from its host."""
    reason = ground.row(job_id).reason
    return reason is not None and reason.code == "S200"


def has_come(ground: Ground, job_id: str, characters: int) -> bool:
    """Whether so much of a job's output is here."""
    return len(ground.output(job_id)) >= characters


def first_difference(found: str, expected: str) -> str | None:
    """Return where two long texts differ; pytest takes minutes to compare them."""
    if found == expected:
        return None
    at = next((at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), -1)
    return f"{len(found)} of {len(expected)} characters; at {at}: {found[at - 40 : at + 40]!r}"
