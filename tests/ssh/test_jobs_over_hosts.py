"""One job over two hosts: its learners at both, all of its GPUs or none, and no harm by who looks at one alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.ssh.company import second_host
from tests.ssh.seen import reason, row
from tests.stubs import Gpus
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.sshd import Daemon, processes_of
from tests.support.waiting import until
from workbench.job import State
from workbench.paths import Home

BOTH = "box1+box2"
HOLD = ("sh", "-c", "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.1; done")
SERVE = "trap 'echo saved; exit 0' TERM; echo ready $LEARNER_ID; while :; do sleep 0.1; done"


@pytest.fixture
def box_environment(clean_environment: Path) -> list[str]:
    """The first host has two GPUs."""
    return _gpus(clean_environment / "one", "1").session_variables()


@pytest.fixture
def second(box: Box, fabric: Fabric, clean_environment: Path) -> Iterator[Daemon]:
    """The second host, which has two GPUs, too; both are in the configuration."""
    leases = clean_environment / "second-leases"
    leases.mkdir()
    leases.chmod(0o1777)
    gpus = _gpus(clean_environment / "two", "2")
    with second_host(box, leases, gpus.session_variables()) as (daemon, _):
        there = f"ssh://{box.user.name}@{daemon.address}:{daemon.port}"
        fabric("backend", "add", "box1", box.address, "--untested")
        fabric("backend", "add", "box2", there, "--untested")
        yield daemon


def _gpus(path: Path, mark: str) -> Gpus:
    gpus = Gpus(path)
    for number in (1, 2):
        gpus.add(f"GPU-{mark * 8}-0000-0000-0000-00000000000{number}")
    return gpus


def give(fabric: Fabric, *words: str) -> str:
    """Start a job in the background; return its id."""
    return fabric("run", "-d", "-q", *words).stdout.strip()


def output(home: Home, job_id: str, learner: int, attempt: int = 1) -> str:
    """Return what a learner has printed, as far as it came home."""
    file = home.job(job_id).attempt(attempt).learner(learner).output
    return file.read_text() if file.exists() else ""


def is_there(box: Box, job_id: str) -> bool:
    """Say whether learners of a job run at either host."""
    for pid in processes_of(box.user):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if b"FABRIC_LEARNER" in environment and job_id.encode() in environment:
            return True
    return False


def test_a_job_has_learners_at_both_hosts_which_meet_and_are_reached_by_number(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    plan = fabric("plan", "--backend", BOTH, "--set", "learners=3", "--gpus", "1", "--", "true").stdout
    assert "box1+box2, as multinode-process" in plan
    assert "3: 1-2 at box1, 3 at box2" in plan

    show = (
        "echo learner $LEARNER_ID rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT;"
        " echo $RANK > $RESULT_DIR/$RANK"
    )
    ran = fabric(
        "run",
        "--backend",
        BOTH,
        "--set",
        "learners=3",
        "--gpus",
        "1",
        "--name",
        "meets",
        "--",
        "sh",
        "-c",
        show,
    )
    lines = sorted(line.partition("learner ")[2] for line in ran.stdout.splitlines() if "learner " in line)
    assert [line.split(" at ")[0] for line in lines] == [
        "1 rank 0 of 3",
        "2 rank 1 of 3",
        "3 rank 2 of 3",
    ]
    assert len({line.split(" at ")[1] for line in lines}) == 1

    job = fabric.json("show", "meets", "--json")
    assert (job["state"], job["backend"]) == ("COMPLETED", BOTH)
    into = fabric.folder / "brought"
    fabric("download", "meets", "results", "--to", str(into))
    assert sorted(path.name for path in (into / "results").iterdir()) == ["0", "1", "2"]

    code = "[ $RANK = 1 ] && exit 7; sleep 60"
    fabric("run", "-q", "--backend", BOTH, "--set", "learners=2", "--", "sh", "-c", code, expect=7)
    assert not is_there(box, row(home, job["id"]).id)

    keep = f"ls $CHECKPOINT_DIR; echo $LEARNER_ID > $CHECKPOINT_DIR/of-$LEARNER_ID; {SERVE}"
    serves = give(fabric, "--backend", BOTH, "--set", "learners=2", "--", "sh", "-c", keep)
    until(lambda: "ready" in output(home, serves, 2), lambda: reason(home, serves))
    where = fabric("exec", serves, "--learner", "2", "--", "sh", "-c", "echo in $LEARNER_ID").stdout
    assert where == "in 2\n"
    shown = fabric("show", serves).stdout
    assert "learner 1 at box1 running" in shown
    assert "learner 2 at box2 running" in shown
    fabric("download", serves, "checkpoints", "--to", str(into))
    assert sorted(path.name for path in (into / "checkpoints").iterdir()) == ["of-1", "of-2"]
    fabric("halt", serves)
    assert row(home, serves).state is State.HALTED
    assert ["saved" in output(home, serves, learner) for learner in (1, 2)] == [True, True]
    assert not is_there(box, serves)

    # It moves to one host with what both have made, and back.
    for attempt, backend in ((2, "box1"), (3, BOTH)):
        fabric("resume", serves, "--backend", backend, "--no-wait")
        until(partial(_is_ready, home, serves, attempt), lambda: reason(home, serves))
        assert output(home, serves, 2, attempt).startswith("of-1\nof-2\nready")
        fabric("halt", serves)


def _is_ready(home: Home, job_id: str, attempt: int) -> bool:
    return "ready" in output(home, job_id, 2, attempt)


def test_this_machine_may_be_one_of_them_and_trials_of_a_search_run_there(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    make = "echo of $LEARNER_ID; echo r > $RESULT_DIR/r$LEARNER_ID"
    ran = fabric("run", "--set", "learners=2", "--", "sh", "-c", make, FABRIC_BACKEND="local+box2")
    assert sorted(line for line in ran.stdout.splitlines() if "of" in line) == ["[1] of 1", "[2] of 2"]
    job = fabric.json("show", "@last", "--json")
    assert job["backend"] == "local+box2"
    assert sorted(path.name for path in Path(job["results"]).iterdir()) == ["r1", "r2"]
    assert fabric("logs", "@last", "--learner", "1").stdout == "of 1\n"

    manifest = fabric.folder / "search.yml"
    manifest.write_text(
        f"name: tried\nbackend: {BOTH}\nlearners: 2\nsearch: {{method: grid, params: {{lr: {{choice: [1, 2]}}}}}}\n"
        'framework: {name: custom, command: "echo lr ${params.lr}"}\n'
    )
    fabric("run", "-q", str(manifest))

    def trials() -> list[tuple[str, str]]:
        every = fabric.json("list", "--all", "--json")
        return [(one["state"], one["backend"]) for one in every if one["name"].startswith("tried")]

    until(lambda: trials() == [("COMPLETED", BOTH)] * 2, lambda: str(trials()))


def test_all_gpus_are_given_at_once_and_the_reason_names_the_host_that_lacks_some(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    holder = give(fabric, "--backend", "box2", "--gpus", "1", "--", *HOLD)
    until(lambda: row(home, holder).state is State.PROCESSING, lambda: reason(home, holder))

    job = give(fabric, "--backend", BOTH, "--set", "learners=2", "--gpus", "2", "--", "sh", "-c", SERVE)
    until(lambda: reason(home, job).startswith("box2: waits for 2 of 4 GPUs"), lambda: reason(home, job))
    assert holder in reason(home, job)
    assert row(home, job).state is State.QUEUED

    # A job of box1 alone keeps its own place in the queue there, and the other job keeps its.
    beside = give(fabric, "--backend", "box1", "--gpus", "2", "--set", "priority=60", "--", *HOLD)
    until(lambda: bool(reason(home, beside)), lambda: str(row(home, beside)))
    fabric("kill", beside)

    fabric("kill", holder)
    until(lambda: "ready" in output(home, job, 2), lambda: reason(home, job))

    # Who looks at one host alone leaves its part of the job be.
    listed = fabric("gc", "--backend", "box1")
    assert job not in listed.stdout
    fabric("gc", "--backend", "box1", "--yes")
    refused = fabric("backend", "remove", "box1", "--purge", expect=75)
    assert job in refused.stderr
    there = str(fabric.folder / "another-home")
    part = fabric("adopt", "box1", FABRIC_HOME=there)
    assert "has learners at other hosts, too" in part.stdout
    refused = fabric("adopt", "box1", job, FABRIC_HOME=there, expect=64)
    assert "cannot be adopted" in refused.stderr
    # Nor does the controller, that begins again and sweeps both for each of its targets.
    beside = give(fabric, "--backend", "box1", "--", *HOLD)
    until(lambda: row(home, beside).state is State.PROCESSING, lambda: reason(home, beside))
    fabric("controller", "stop")
    assert is_there(box, job)
    fabric("list")
    until(lambda: row(home, job).state is State.PROCESSING, lambda: reason(home, job))
    assert row(home, beside).state is State.PROCESSING
    fabric("kill", beside)
    assert is_there(box, job)
    fabric("delete", job, "--yes")
    until(lambda: not is_there(box, job), "the learners at both hosts to end")


def test_a_host_that_goes_away_is_named_and_a_stop_reaches_the_other_at_once(
    box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    job = give(fabric, "--backend", BOTH, "--set", "learners=2", "--", "sh", "-c", SERVE)
    until(lambda: "ready" in output(home, job, 2), lambda: reason(home, job))

    second.stop()
    until(lambda: "box2" in reason(home, job), lambda: reason(home, job))
    fabric("halt", job, "--no-wait")
    until(lambda: not is_there(box, job), "the learner at the first host to end")

    second.start()
    until(lambda: row(home, job).state in (State.HALTED, State.FAILED), lambda: reason(home, job))


def test_what_cannot_run_together_is_refused_with_a_hint(box: Box, second: Daemon, fabric: Fabric) -> None:
    def refused(*words: str) -> str:
        return fabric("run", *words, "--", "true", expect=64).stderr

    assert "box1+box2 is 2 hosts, and the job has 1 learner" in refused("--backend", BOTH)
    assert "--set learners=2" in refused("--backend", BOTH)
    assert "a name is missing beside a +" in refused("--backend", "box1+")
    assert "box1 is named twice" in refused("--backend", "box1+box1")
    assert "there is no backend 'box3'" in refused("--backend", "box1+box3")
    assert "is several hosts together" in refused("--backend", "box1+box2,local")
    fabric("plan", "--backend", BOTH, "--", "true", expect=64)
    manifest = fabric.folder / "manifest.yml"
    manifest.write_text(f"name: one\nbackend: {BOTH}\nframework: {{name: custom, command: 'true'}}\n")
    assert "--set learners=2" in fabric("validate", str(manifest), expect=65).stdout

    found = fabric("gpus", "--backend", BOTH).stdout
    assert "box1" in found and "box2" in found
    tested = fabric("backend", "test", BOTH).stdout
    assert "box1 python" in tested and "box2 python" in tested
    fabric("backend", "drain", BOTH, "--show", expect=64)
    many = fabric(
        "run", "--backend", BOTH, "--set", "learners=2", "--gpus", "3", "--", "true", expect=69
    ).stderr
    assert "box1: The job asks for 3 GPUs" in many
