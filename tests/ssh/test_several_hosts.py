"""A job that names several hosts goes to the one where it can start, and to another one where that is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.company import second_host
from tests.ssh.seen import row
from tests.stubs import Gpus
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.sshd import Daemon
from tests.support.waiting import until
from workbench.job import State
from workbench.paths import Home

HOLD = ("sh", "-c", "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.1; done")
BOTH = ("--backend", "box1,box2")


@pytest.fixture
def box_environment(clean_environment: Path) -> list[str]:
    """The first host has one GPU."""
    gpus = Gpus(clean_environment / "one").add("GPU-11111111-0000-0000-0000-000000000001")
    return gpus.session_variables()


@pytest.fixture
def second(box: Box, fabric: Fabric, clean_environment: Path) -> Iterator[Daemon]:
    """The second host, which has two GPUs; both are in the configuration."""
    gpus = Gpus(clean_environment / "two")
    for number in (1, 2):
        gpus.add(f"GPU-22222222-0000-0000-0000-00000000000{number}")
    leases = clean_environment / "second-leases"
    leases.mkdir()
    leases.chmod(0o1777)
    with second_host(box, leases, gpus.session_variables()) as (daemon, _):
        fabric("backend", "add", "box1", box.address, "--untested")
        fabric(
            "backend", "add", "box2", f"ssh://{box.user.name}@{daemon.address}:{daemon.port}", "--untested"
        )
        yield daemon


def hold(fabric: Fabric, home: Home, *words: str) -> tuple[str, str]:
    """Run a job that holds its GPUs, on one of the hosts; return its id and what was said of the choice."""
    ran = fabric("run", "-d", *BOTH, *words, "--", *HOLD)
    job_id = ran.stdout.strip()
    return job_id, ran.stderr


def runs_on(home: Home, job_id: str) -> str:
    """Wait until a job runs; return where."""
    until(lambda: row(home, job_id).state is State.PROCESSING, lambda: str(row(home, job_id)))
    return row(home, job_id).target.backend


def test_jobs_fill_the_hosts_one_after_the_other_and_wait_where_the_least_is_asked_for(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    first, note = hold(fabric, home, "--gpus", "1")
    assert "on box1, where 1 of 1 GPU is free (box2: 2 of 2 GPUs are free)" in note
    assert runs_on(home, first) == "box1"

    large, note = hold(fabric, home, "--gpus", "2")
    assert "on box2, where 2 of 2 GPUs are free (box1: has 1 GPU)" in note
    assert runs_on(home, large) == "box2"

    waiting, note = hold(fabric, home, "--gpus", "1")
    assert "on box2, where 0 of 2 GPUs are free (box1: 0 of 1 GPU is free)" in note
    next_one, note = hold(fabric, home, "--gpus", "1")
    assert "on box1, where 0 of 1 GPU is free (box2: 0 of 2 GPUs are free and 1 asked for)" in note
    until(lambda: row(home, waiting).state is State.QUEUED, lambda: str(row(home, waiting)))

    fabric("kill", first, large, waiting, next_one)


def test_a_host_that_does_not_answer_is_passed_over_and_named(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    second.stop()

    ran = fabric("run", "-q", *BOTH, "--gpus", "1", "--", "sh", "-c", "echo here")
    assert ran.stdout == "here\n"
    plan = fabric("plan", *BOTH, "--gpus", "1", "--", "true")
    assert "box2: does not answer" in plan.stdout

    refused = fabric("run", *BOTH, "--gpus", "2", "--", "true", expect=69)
    assert "none of box1, box2 answers and can run the job" in refused.stderr
    assert "box1: has 1 GPU; box2: does not answer" in refused.stderr


def test_the_jobs_of_a_sweep_share_the_hosts_and_a_chain_stays_at_one(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    manifest = fabric.folder / "manifest.yml"
    manifest.write_text(
        "name: swept\ngpus: 1\nbackend: box1,box2\nparams: {n: 0}\n"
        'framework: {name: custom, command: "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.1; done"}\n'
    )
    ran = fabric("run", "-d", str(manifest), "--set", "params.n=1..3")
    jobs = ran.stdout.split()
    assert sorted(runs_on(home, job_id) for job_id in jobs) == ["box1", "box2", "box2"]

    at_second = next(job_id for job_id in jobs if row(home, job_id).target.backend == "box2")
    after = fabric("run", "-d", *BOTH, "--gpus", "1", "--after", at_second, "--", "true")
    assert f"on box2, where {at_second} is, which comes before it" in after.stderr
    fabric("kill", *jobs, after.stdout.strip())
