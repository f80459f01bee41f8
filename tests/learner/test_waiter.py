"""A host's waiter: prepared attempts start when GPUs come free, in the host's order, with nobody connected."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backends.contract.errors import error_of
from tests.learner.agent import NOTES_WAITS, remove_folder
from tests.learner.waiting_jobs import SHOW, WaitingHome, WaitingJob, held, take
from tests.stubs import Gpus, pretend
from tests.support.another_user import as_another, person_process
from tests.support.disks import fill, small_disk
from tests.support.kept_agents import agent
from tests.support.naps import NAP
from tests.support.pipe_host import PipeHost
from tests.support.waiting import until
from workbench.errors import BackendUnreachable
from workbench.learner.host import agent_forks, fork_server
from workbench.learner.host.learners import markers
from workbench.learner.host.machine import secret_folder
from workbench.learner.host.operations import HostOperations
from workbench.learner.journal import state
from workbench.learner.platform import lease_holders, leases, process_table, processes, run, system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.inotify import IN_DELETE, IN_MOVED_TO, open_inotify
from workbench.learner.queue import channel
from workbench.learner.queue.entries import QueueEntry, read_entries
from workbench.learner.waiter.waiter import main as waiter_main

Homes = Callable[..., WaitingHome]
SECRET = "correct-horse-battery-staple"
FOREVER = "while :; do sleep 1; done"
ACTS = 70
"""What is done to jobs and waiters in a round of harm, one thing after another."""
FEW_ACTS = 40
"""That in the gate."""
NEVER_LOOKS = ("from workbench.learner.waiter import waiter", "waiter.LOOK_SECONDS = 100000.0")
"""Lines of Python with which a waiter looks only where somebody asks it to."""


@pytest.fixture(autouse=True)
def gpus(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """A host with two GPUs."""
    return pretend(clean_environment / "gpus", monkeypatch).add("GPU-1").add("GPU-2")


@pytest.fixture
def homes(clean_environment: Path) -> Iterator[Homes]:
    """Make homes at this host; nothing may be left running of them."""
    made: list[WaitingHome] = []

    def make() -> WaitingHome:
        made.append(WaitingHome(clean_environment / f"home-{len(made) + 1}"))
        return made[-1]

    yield make
    for home in made:
        home.clear()


@pytest.fixture
def home(homes: Homes) -> WaitingHome:
    return homes()


@pytest.fixture
def busy() -> Iterator[leases.Lease]:
    """Both GPUs, held by somebody else."""
    lease = take("GPU-1", "GPU-2")
    yield lease
    lease.release()


def noted(home: WaitingHome) -> str:
    """Return the command with which a job notes in its home that it runs."""
    return f"echo $JOB >> {home.folder}/order"


def order(home: WaitingHome) -> list[str]:
    path = home.folder / "order"
    return path.read_text().split() if path.exists() else []


# The start


def test_an_attempt_starts_when_its_gpus_come_free(
    home: WaitingHome, busy: leases.Lease, python: str
) -> None:
    job = home.wait(gpus=2, python=python)
    assert job.waits

    busy.release()

    assert job.until_over()["exit_code"] == 0
    port = job.launch()["env"]["MASTER_PORT"]
    assert job.output() == f"GPU-1,GPU-2 GPU-1,GPU-2 {port}\n"
    assert job.launch()["slots"] == ["GPU-1", "GPU-2"]


def test_a_gpu_that_comes_free_is_reported_and_not_looked_for(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(gpus=2)
    home.operations.call("hand_over", {**home.arguments(job), "argv": home.argv_with(*NEVER_LOOKS)})

    busy.release()

    assert job.until_over()["exit_code"] == 0


def test_learners_get_a_gpu_each_and_one_port_which_the_first_one_holds(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.wait(f"{SHOW}; [ $LEARNER_ID = 1 ] || exit 0; {FOREVER}", learners=2)

    busy.release()
    job.until_over(2)
    job.until_running(1)

    port = job.launch()["env"]["MASTER_PORT"]
    until(lambda: held() == {"GPU-1", f"port-{port}"}, "the second learner to let go of its GPU")
    until(lambda: job.output(1), "the first one's output")
    assert (job.output(1), job.output(2)) == (f"GPU-1 GPU-1 {port}\n", f"GPU-2 GPU-2 {port}\n")


def test_a_lease_names_its_job_and_the_agent_that_holds_it(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(FOREVER, gpus=2)
    busy.release()
    job.until_running()

    holder = lease_holders.holders(os.environ["FABRIC_LEASES"], ["GPU-1"])["GPU-1"]

    assert holder.pop("pid") in markers("FABRIC_GUARD")[job.marker()]
    owner = f"{system.user_name()} (me@box)"  # the kernel's word, and what the job says
    assert holder == {"owner": owner, "job": job.id, "attempt": 1, "home": home.uuid}


def test_the_command_sees_its_secrets_and_nothing_of_how_its_agent_was_started(
    home: WaitingHome, busy: leases.Lease
) -> None:
    command = (
        f"[ $TOKEN = {SECRET} ] && echo the same; env | grep -c -e FABRIC_AGENT -e FABRIC_GUARD; echo $TOKEN"
    )
    job = home.wait(command, secrets={"TOKEN": SECRET, "data.0.key": "k"}, gpus=2)

    busy.release()
    job.until_over()

    assert job.output() == f"the same\n0\n{'*' * len(SECRET)}\n"
    secrets = Path(job.launch()["secrets_file"])
    assert json.loads(secrets.read_text()) == {"TOKEN": SECRET, "data.0.key": "k"}
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert secrets.name == f"{home.uuid}.{job.id}-1-1.json"


def test_a_container_has_a_second_file_of_secrets_and_neither_port_nor_cpus_of_the_host(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.job("true")
    facts = {"shell_secrets_suffix": ".sh", "needs_port": False, "binds_cpus": False, "cpus": 1}
    home.hand_over(job, {"TOKEN": SECRET, "data.0.key": "k"}, **facts)
    shell = Path(secret_folder()) / f"{home.uuid}.{job.id}-1-1.sh"
    assert not shell.exists()

    busy.release()
    job.until_over()

    assert shell.read_text() == f"export TOKEN={SECRET}\n:\n"
    assert shell.stat().st_mode & 0o777 == 0o644
    assert shell.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(shell.with_suffix(".json").read_text()) == {"TOKEN": SECRET, "data.0.key": "k"}
    assert "MASTER_PORT" not in job.launch()["env"]
    assert (job.launch()["cpus"], job.launch()["reserved_cpus"]) == (None, 1.0)


def test_an_older_waiter_takes_processes_and_refuses_containers(
    home: WaitingHome, busy: leases.Lease
) -> None:
    older = ("from workbench.learner.queue import channel", "channel.FORMAT = 1")
    process, container = home.job(), home.job()
    home.operations.call("hand_over", {**home.arguments(process), "argv": home.argv_with(*older)})

    with pytest.raises(Failure, match="older than who hands a job over") as refused:
        home.hand_over(container, shell_secrets_suffix=".sh")

    assert refused.value.kind == "not_supported"
    assert process.waits
    assert container.state() == {}


def test_the_command_is_bound_to_as_many_cpus_as_it_asks_for(home: WaitingHome, busy: leases.Lease) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a machine with one CPU binds nothing")
    job = home.wait("nproc", gpus=2, cpus=1)

    busy.release()
    job.until_over()

    assert job.output() == "1\n"
    assert len(job.launch()["cpus"]) == 1


def test_gpus_of_the_wanted_type_are_given_first(home: WaitingHome, gpus: Gpus, busy: leases.Lease) -> None:
    gpus.add("GPU-3", model="Tesla V100-SXM2-16GB")
    third = take("GPU-3")
    job = home.hand_over(home.job(), gpu_type="nvidia-TeslaV100")

    third.release()
    job.until_over()

    assert job.launch()["slots"] == ["GPU-3"]


# Gates, and CPUs alone


def behind(*jobs: WaitingJob, **facts: Any) -> dict[str, Any]:
    """Return the facts of a job that comes after others, which have to complete."""
    after = [
        {
            "job": job.id,
            "attempt": 1,
            "ended": False,
            "restarts_left": 0,
            "platform_restarts_left": 3,
            "learners": [str(job.folder(number)) for number in job.learners],
        }
        for job in jobs
    ]
    return {"after": after, **facts}


def test_an_attempt_without_gpus_starts_when_what_comes_before_it_has_completed(
    home: WaitingHome, busy: leases.Lease
) -> None:
    first = home.wait("true", gpus=2)
    second = home.job("echo $CUDA_VISIBLE_DEVICES-$NVIDIA_VISIBLE_DEVICES", gpus=0)
    arguments = home.arguments(second, **behind(first))
    # It looks only where somebody reports a change.
    home.operations.call("hand_over", {**arguments, "argv": home.argv_with(*NEVER_LOOKS)})
    assert second.waits

    busy.release()

    assert second.until_over()["exit_code"] == 0
    assert second.output() == "-void\n"
    started, ended = second.state()["started_us"], first.state()["ended_us"]
    assert started >= ended


def test_an_attempt_behind_a_gate_keeps_nobody_waiting_in_the_hosts_queue(
    home: WaitingHome, busy: leases.Lease
) -> None:
    never = home.job()
    gated = home.hand_over(home.job(gpus=2), priority=90, **behind(never))
    other = home.wait(gpus=2)
    assert [one.job for one in read_entries(os.environ["FABRIC_LEASES"])] == [other.id]

    busy.release()

    other.until_over()
    assert gated.waits


def test_gates_are_changed_while_an_attempt_waits(home: WaitingHome) -> None:
    job = home.hand_over(home.job(gpus=0), begin_us=4_000_000_000_000_000)
    entry = {"job": job.id, "priority": 50, "position": 0.0, "tries": 0, "begin_us": None, "after": []}

    home.turns(handed_over=[{**entry, "begin_us": 4_000_000_000_000_000}])
    assert job.waits
    home.turns(handed_over=[entry])

    assert job.until_over()["exit_code"] == 0


def test_gates_are_changed_of_an_attempt_that_the_host_gave_to_its_waiter(home: WaitingHome) -> None:
    """What was sent last of the attempt before is the same."""
    later = 4_000_000_000_000_000
    first, second = home.hand_over(home.job(gpus=0), begin_us=later), home.job(gpus=0)
    entry = {"job": first.id, "priority": 50, "position": 0.0, "tries": 0, "begin_us": None, "after": []}
    home.turns(handed_over=[{**entry, "attempt": 1}])
    first.until_over()
    given = home.arguments(second, begin_us=later, attempt=2)
    given["ticket"]["job"] = first.id
    HostOperations().call("hand_over", given)
    assert second.waits

    home.turns(handed_over=[{**entry, "attempt": 2}])

    assert second.until_over()["exit_code"] == 0


def test_a_gate_that_is_closed_again_takes_an_attempt_out_of_the_hosts_queue(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.wait(gpus=2)
    facts = {"begin_us": 4_000_000_000_000_000, "after": []}

    home.ask(act="change", job=job.id, facts=facts)

    until(lambda: read_entries(os.environ["FABRIC_LEASES"]) == [], "its entry to go")
    assert job.waits


def test_attempts_that_ask_for_all_cpus_run_alone_in_their_order(home: WaitingHome) -> None:
    jobs = [home.job(f"{noted(home)}; sleep 0.3; {noted(home)}", gpus=0) for _ in range(3)]
    never = home.job()
    for job, position in zip(jobs, (3.0, 1.0, 2.0), strict=True):
        home.hand_over(job, cpus=1000, position=position, **behind(never))
    for job in jobs:
        home.ask(act="change", job=job.id, facts={"begin_us": None, "after": []})

    for job in jobs:
        job.until_over()
    ids = order(home)
    assert ids[::2] == ids[1::2]
    assert set(ids) == {job.id for job in jobs}


def test_an_attempt_that_is_held_back_keeps_nobody_waiting_for_cpus(
    home: WaitingHome, busy: leases.Lease, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    runs = home.hand_over(home.job(f"{NAP}until [ -e {go} ]; do nap 0.02; done", gpus=0), cpus=1000)
    until(lambda: runs.state().get("phase") == "running", "the first to run")
    waits = home.hand_over(home.job(gpus=0), cpus=1000, priority=80)
    other = home.hand_over(home.job(gpus=2), cpus=1000)
    home.ask(act="change", job=waits.id, facts={"begin_us": 4_000_000_000_000_000, "after": []})

    go.touch()
    busy.release()

    assert other.until_over()["exit_code"] == 0
    assert waits.waits


# The limit of a sweep


def limited(at_most: int, *others: WaitingJob, sweep: str = "s", **facts: Any) -> dict[str, Any]:
    """Return the facts of a job of a sweep, of which ``others`` are under way."""
    return {"limit": {"sweep": sweep, "at_most": at_most, "others": behind(*others)["after"]}, **facts}


def test_no_more_of_a_sweep_begin_than_may_be_under_way(home: WaitingHome, tmp_path: Path) -> None:
    go = [tmp_path / name for name in ("first", "second", "others")]
    wait = NAP + "until [ -e %s ]; do nap 0.02; done"
    begun = [home.hand_over(home.job(wait % path, gpus=0), **limited(2)) for path in go[:2]]
    until(lambda: all(one.state().get("phase") == "running" for one in begun), "two to run")
    jobs = [home.job(f"{noted(home)}; {wait % go[2]}", gpus=0) for _ in range(3)]
    for job, priority in zip(jobs, (40, 90, 60), strict=True):
        home.hand_over(job, priority=priority, **limited(2))
    assert all(job.waits for job in jobs)

    go[0].touch()
    until(lambda: jobs[1].state().get("phase") == "running", "the first by priority to run")
    assert jobs[0].waits
    assert jobs[2].waits
    for path in go[1:]:
        path.touch()

    for job in (*begun, *jobs):
        job.until_over()
    assert order(home)[0] == jobs[1].id
    assert set(order(home)) == {job.id for job in jobs}


def test_an_attempt_past_its_limit_keeps_nobody_waiting_in_the_hosts_queue(
    home: WaitingHome, busy: leases.Lease
) -> None:
    others = [home.job() for _ in range(2)]
    job = home.hand_over(home.job(gpus=2), priority=90, **limited(2, *others))
    other = home.wait(gpus=2)

    busy.release()
    other.until_over()
    assert job.waits
    home.ask(act="change", job=job.id, facts={"begin_us": None, "after": [], **limited(2, *others[:1])})

    assert job.until_over()["exit_code"] == 0


def test_one_that_may_begin_and_waits_for_gpus_counts_for_its_limit(
    home: WaitingHome, busy: leases.Lease
) -> None:
    first = home.hand_over(home.job(noted(home), gpus=2), **limited(1))
    second = home.hand_over(home.job(noted(home), gpus=0), position=1.0, **limited(1))
    assert first.waits
    assert second.waits

    busy.release()

    for job in (first, second):
        job.until_over()
    assert order(home) == [first.id, second.id]


def test_a_waiter_counts_what_the_one_before_it_has_started(home: WaitingHome, tmp_path: Path) -> None:
    go = tmp_path / "go"
    begun = home.hand_over(
        home.job(f"{NAP}until [ -e {go} ]; do nap 0.02; done", gpus=0, sweep="s"), **limited(1)
    )
    until(lambda: begun.state().get("phase") == "running", "the first to run")
    pid = home.waiter()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not system.start_ticks(pid), "the waiter to be gone")

    job = home.hand_over(home.job(gpus=0), **limited(1))
    other = home.hand_over(home.job(gpus=0), **limited(1, sweep="t"))

    other.until_over()
    assert job.waits
    go.touch()
    assert job.until_over()["exit_code"] == 0


def test_a_waiter_that_knows_no_limits_takes_none(home: WaitingHome, busy: leases.Lease) -> None:
    older = ("from workbench.learner.queue import channel", "channel.FORMAT = 2")
    home.operations.call("hand_over", {**home.arguments(home.job()), "argv": home.argv_with(*older)})
    job = home.job(gpus=0)

    with pytest.raises(Failure, match="older than who hands a job over") as refused:
        home.hand_over(job, **limited(1))

    assert refused.value.kind == "not_supported"
    assert job.state() == {}


def test_a_change_that_a_busy_waiter_missed_is_reported(
    home: WaitingHome, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [home.wait(gpus=2) for _ in range(2)]
    entries = [{"job": job.id, "priority": 60, "position": 0.0, "tries": 0} for job in jobs]

    def ask(*_: Any) -> Any:
        raise Failure("timeout", "The waiter does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr("workbench.learner.queue.channel.ask", ask)
        arguments = {"home": home.uuid, "waiting": [], "keep": [], "handed_over": entries}
        assert home.operations.call("line_up", arguments)["missed"] == [job.id for job in jobs]

    assert home.operations.call("line_up", arguments)["missed"] == []


def test_what_a_connection_was_sent_before_stands_until_it_is_sent_again(
    home: WaitingHome, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [home.wait(gpus=2) for _ in range(2)]
    entries = [{"job": job.id, "priority": 60, "position": 0.0, "tries": 0} for job in (first, second)]
    arguments = {"home": home.uuid, "waiting": [], "keep": []}

    def line_up(host: HostOperations, **more: Any) -> list[str]:
        missed: list[str] = host.call("line_up", {**arguments, **more})["missed"]
        return missed

    def priorities() -> dict[str, int]:
        return {one.job: one.priority for one in read_entries(os.environ["FABRIC_LEASES"])}

    assert line_up(home.operations, unchanged=[first.id]) == [first.id], "it was sent nothing of it"
    assert line_up(home.operations, handed_over=entries) == []
    assert priorities() == {first.id: 60, second.id: 60}

    home.ask(act="change", job=first.id, facts={"priority": 20})
    assert line_up(home.operations, handed_over=[{**entries[1], "priority": 70}], unchanged=[first.id]) == []
    assert priorities() == {first.id: 60, second.id: 70}

    assert line_up(home.operations, unchanged=[second.id]) == [], "the first one waits no more"
    assert line_up(home.operations, unchanged=[first.id, second.id]) == [first.id]
    other = HostOperations()
    assert line_up(other, unchanged=[second.id]) == [second.id], "another connection was sent nothing"
    other.close()


def test_a_hand_over_without_an_answer_may_have_been_one(
    home: WaitingHome, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    insist = channel.insist

    def unanswered(home: str, request: dict[str, Any], *rest: Any, **more: Any) -> Any:
        insist(home, request, *rest, **more)
        if request["act"] == "wait":
            raise Failure("timeout", "The waiter does not answer.")

    monkeypatch.setattr(channel, "insist", unanswered)
    with pytest.raises(Failure) as raised:
        home.wait()

    assert isinstance(error_of(raised.value.kind, ""), BackendUnreachable)


def test_threads_that_hand_over_at_once_start_one_waiter(
    home: WaitingHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, begun = run.spawn, []

    def counted(*arguments: Any) -> int:
        begun.append(spawn(*arguments))
        return begun[-1]

    monkeypatch.setattr(run, "spawn", counted)
    jobs = [home.job(gpus=0) for _ in range(8)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(home.hand_over, jobs))

    assert begun == [home.waiter()]
    for job in jobs:
        job.until_over()


def test_an_attempt_behind_a_gate_is_halted(home: WaitingHome) -> None:
    job = home.hand_over(home.job(gpus=0), **behind(home.job()))

    request = {"kind": "halt", "grace_seconds": 1.0, "by": "me"}
    home.operations.call("ask_to_stop", {"folder": str(job.folder()), "request": request})

    assert job.until_over()["stopped"] == "halt"
    assert job.output() == ""


# The order


def test_jobs_go_by_priority_and_position_when_who_handed_them_over_is_gone(
    home: WaitingHome, busy: leases.Lease
) -> None:
    jobs = [home.job(noted(home), gpus=2) for _ in range(5)]
    facts = [(50, 2.0), (50, 3.0), (70, 9.0), (50, 1.0), (60, 0.0)]
    client = PipeHost([sys.executable, "-I", agent(), "host"])
    for job, (priority, position) in zip(jobs, facts, strict=True):
        client.call("hand_over", **home.arguments(job, priority=priority, position=position))
    turns = client.call("line_up", home=home.uuid, waiting=[], keep=[], handed_over=[])["turns"]
    client.close()

    expected = [jobs[index].id for index in (2, 4, 3, 0, 1)]
    assert sorted(turns, key=lambda job: int(turns[job]["place"])) == expected
    busy.release()
    until(lambda: len(order(home)) == 5, lambda: f"five jobs to run: {order(home)}")
    assert order(home) == expected


def test_two_homes_wait_in_one_line(homes: Homes, busy: leases.Lease) -> None:
    one, other = homes(), homes()
    jobs = [one.job(noted(one), gpus=2), other.job(noted(one), gpus=2), one.job(noted(one), gpus=2)]
    for of, job, priority in zip((one, other, one), jobs, (50, 60, 50), strict=True):
        of.hand_over(job, priority=priority)

    busy.release()
    until(lambda: len(order(one)) == 3, lambda: f"three jobs to run: {order(one)}")

    assert order(one) == [jobs[1].id, jobs[0].id, jobs[2].id]


def test_a_job_that_waited_before_keeps_its_time_when_it_is_handed_over(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.job(gpus=2)
    home.turns(waiting=[{"job": job.id, "gpus": 2, "each": 2, "priority": 50}])
    (before,) = read_entries(os.environ["FABRIC_LEASES"])

    home.hand_over(job)

    (after,) = read_entries(os.environ["FABRIC_LEASES"])
    assert (after.job, after.since_us) == (job.id, before.since_us)


def hand_over_by_another(home: WaitingHome) -> dict[str, Any]:
    """Have a job wait by a connection, and another one hand it over, as jobs of two backends at one machine do.

    Return it as the first connection is told that it was handed over.
    """
    job = home.job(gpus=2)
    home.turns(waiting=[{"job": job.id, "gpus": 2, "each": 2, "priority": 50}])
    other = HostOperations()
    other.call("hand_over", home.arguments(job))
    other.close()
    assert job.waits
    return {"job": job.id, "priority": 50, "position": 0.0, "tries": 0, "attempt": 1}


def test_a_job_keeps_its_entry_and_its_time_when_another_connection_hands_it_over(
    home: WaitingHome, busy: leases.Lease
) -> None:
    entry = hand_over_by_another(home)
    (before,) = read_entries(os.environ["FABRIC_LEASES"])
    (file,) = Path(os.environ["FABRIC_LEASES"]).glob("queue-*")
    changes = open_inotify()
    assert changes is not None
    with contextlib.closing(changes):
        changes.add(os.environ["FABRIC_LEASES"], IN_DELETE | IN_MOVED_TO)

        home.turns(handed_over=[entry])
        home.operations.close()

        (after,) = read_entries(os.environ["FABRIC_LEASES"])  # which the waiter alone holds
        assert (after.job, after.since_us) == (entry["job"], before.since_us)
        found = {what for _, what, name in changes.read() if name == file.name}
    assert found == {IN_MOVED_TO}, "it is renewed, and never away"


def test_an_entry_stays_where_it_is_held_until_the_waiter_has_it(
    home: WaitingHome, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = hand_over_by_another(home)
    ((before, file),) = entry_files()

    def unanswered(*_: Any) -> Any:
        raise Failure("timeout", "The waiter does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(channel, "ask", unanswered)
        arguments = {"home": home.uuid, "waiting": [], "keep": [], "handed_over": [entry]}
        assert home.operations.call("line_up", arguments)["missed"] == [entry["job"]]

    assert entry_files() == [(before, file)]
    assert home.operations.call("line_up", arguments)["missed"] == []
    home.operations.close()
    assert [(one.job, one.since_us) for one, _ in entry_files()] == [(entry["job"], before.since_us)]


def test_an_older_waiter_finds_the_entry_as_it_was(
    home: WaitingHome, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = hand_over_by_another(home)
    (before,) = read_entries(os.environ["FABRIC_LEASES"])

    with monkeypatch.context() as patched:
        patched.setattr(channel, "ask", lambda *_: {"ok": True})
        home.turns(handed_over=[entry])
    home.ask(act="look")

    until(lambda: read_entries(os.environ["FABRIC_LEASES"]) == [before], "the waiter to hold it")


def test_the_entry_of_a_job_that_waits_nowhere_any_more_goes(home: WaitingHome, busy: leases.Lease) -> None:
    entry = hand_over_by_another(home)
    home.ask(act="withdraw", job=entry["job"], attempt=1)
    assert len(entry_files()) == 1

    arguments = {"home": home.uuid, "waiting": [], "keep": [], "handed_over": [entry]}
    assert home.operations.call("line_up", arguments)["missed"] == []

    assert entry_files() == []


def test_an_answer_counts_that_comes_before_its_client_goes_on(
    home: WaitingHome, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = hand_over_by_another(home)
    sendmsg = socket.socket.sendmsg

    def send_slowly(stream: socket.socket, *message: Any) -> int:
        sent = sendmsg(stream, *message)
        poll = select.poll()
        poll.register(stream, 0)
        until(lambda: poll.poll(0), "the waiter to answer and close")
        return sent

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "sendmsg", send_slowly)
        arguments = {"home": home.uuid, "waiting": [], "keep": [], "handed_over": [entry]}
        assert home.operations.call("line_up", arguments)["missed"] == []


def entry_files() -> list[tuple[QueueEntry, int]]:
    """Return the entries in the host's queue, each with the number of its file."""
    folder = Path(os.environ["FABRIC_LEASES"])
    found = {one.job: one for one in read_entries(str(folder))}
    return [
        (found[json.loads(path.read_text())["job"]], path.stat().st_ino) for path in folder.glob("queue-*")
    ]


def test_a_priority_that_is_changed_changes_the_order(home: WaitingHome, busy: leases.Lease) -> None:
    first, second = (home.wait(noted(home), gpus=2) for _ in range(2))
    assert home.turns()[first.id]["place"] == 1
    entries = [
        {"job": job.id, "gpus": 2, "each": 2, "priority": priority, "position": 0.0, "tries": 0}
        for job, priority in ((first, 50), (second, 80))
    ]

    turns = home.turns(handed_over=entries)

    assert (turns[second.id]["place"], turns[first.id]["place"]) == (1, 2)
    busy.release()
    until(lambda: order(home) == [second.id, first.id], lambda: f"both jobs to run: {order(home)}")


def test_a_large_job_that_comes_first_keeps_smaller_ones_waiting(home: WaitingHome) -> None:
    one, two = take("GPU-1"), take("GPU-2")
    large = home.wait(noted(home), gpus=2)
    small = home.wait(noted(home))

    two.release()
    until(lambda: home.turns()[small.id]["free"] == 1, "the free GPU to be seen")
    home.ask(act="look")
    assert small.waits
    one.release()

    until(lambda: order(home) == [large.id, small.id], lambda: f"both jobs to run: {order(home)}")


def test_cpus_that_running_jobs_have_reserved_are_waited_for(home: WaitingHome, busy: leases.Lease) -> None:
    everything = len(os.sched_getaffinity(0)) + 1
    first = home.wait(f"{NAP}until [ -e {home.folder}/go ]; do nap 0.05; done", cpus=everything)
    second = home.wait(cpus=1)

    busy.release()
    first.until_running()
    until(lambda: home.turns().get(second.id, {}).get("start"), "the second's turn, as far as GPUs go")
    home.ask(act="look")
    assert second.waits
    (home.folder / "go").touch()

    assert second.until_over()["exit_code"] == 0


# Stops


def test_a_stop_before_the_start_is_the_end_and_the_command_never_runs(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.wait(noted(home), gpus=1, learners=2)
    request = {"kind": "halt", "grace_seconds": 30.0, "by": "anna@box"}

    for number in job.learners:
        home.operations.call("ask_to_stop", {"folder": str(job.folder(number)), "request": request})

    ends = [job.until_over(number) for number in job.learners]
    assert [(one["stopped"], one["exit_code"], one["started_us"]) for one in ends] == [
        ("halt", None, None)
    ] * 2
    assert {one["reason"]["text"] for one in ends} == {"halted by anna@box"}
    until(lambda: not any(job.status(number)["alive"] for number in job.learners), "their locks to be free")
    assert home.turns() == {}
    busy.release()
    assert home.wait(gpus=2).until_over()["exit_code"] == 0
    assert order(home) == []


def test_who_asks_for_a_stop_says_so_to_the_waiter(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(gpus=2)
    argv = home.argv_with(*NEVER_LOOKS, "waiter.AGAIN_SECONDS = ()")
    home.operations.call("hand_over", {**home.arguments(job), "argv": argv})
    assert all(home.waiter() for _ in range(3))  # it has looked after what it was handed

    request = {"kind": "halt", "by": "anna@box"}
    home.operations.call("ask_to_stop", {"folder": str(job.folder()), "request": request})

    assert job.until_over()["stopped"] == "halt"


def test_a_stop_is_obeyed_though_nobody_says_so(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(noted(home), gpus=2)

    state.ask_to_stop(str(job.folder()), {"kind": "kill", "by": "anna@box"})

    end = job.until_over()
    assert (end["stopped"], end["reason"]["text"]) == ("kill", "killed by anna@box")


def test_a_waiter_that_was_stopped_by_a_signal_is_woken_for_a_stop(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.wait(gpus=2)
    os.kill(home.waiter(), signal.SIGSTOP)

    state.ask_to_stop(str(job.folder()), {"kind": "halt", "by": "anna@box"})
    home.operations.call("rouse_agents", {"marker": job.marker(), "folder": str(job.folder())})

    assert job.until_over()["stopped"] == "halt"


def test_a_removed_job_is_forgotten(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(noted(home), gpus=2, learners=1)

    remove_folder(job.attempt)

    until(lambda: home.turns() == {}, "its entry to go")
    busy.release()
    assert home.wait(gpus=2).until_over()["exit_code"] == 0
    assert not job.attempt.exists()


# Deaths


def test_a_killed_waiter_leaves_what_waits_to_the_next_one(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(noted(home), gpus=1, learners=2)
    (before,) = read_entries(os.environ["FABRIC_LEASES"])
    pid = home.waiter()

    os.kill(pid, signal.SIGKILL)
    until(lambda: not system.start_ticks(pid), "the waiter to die")

    seen = [job.status(number) for number in job.learners]
    assert [(one["alive"], one["state"]["phase"], one["state"]["waiting"]) for one in seen] == [
        (False, "starting", True)
    ] * 2
    assert home.turns() == {}
    assert not any(processes.find(job.marker(number)) for number in job.learners)
    home.hand_over(job)
    assert home.waiter() != pid and job.waits
    assert [one.since_us for one in read_entries(os.environ["FABRIC_LEASES"])] == [before.since_us]
    busy.release()
    until(lambda: order(home) == [job.id] * 2, lambda: f"both learners to run: {order(home)}")


def test_a_waiter_that_dies_in_the_middle_of_a_start_starts_no_learner_twice(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.job(noted(home), gpus=1, learners=2)
    dies = (
        "import os",
        "from workbench.learner.platform import run",
        "spawn, begun = run.spawn, []",
        "def dying(*arguments):",
        "    begun.append(spawn(*arguments) if not begun else os.kill(os.getpid(), 9))",
        "    return begun[-1]",
        "run.spawn = dying",
    )
    home.operations.call("hand_over", {**home.arguments(job), "argv": home.argv_with(*dies)})
    busy.release()
    job.until_over(1)
    until(lambda: not job.status(2)["alive"], "the waiter to die")

    home.hand_over(job)
    job.until_over(2)

    assert order(home) == [job.id] * 2
    assert job.launch(1)["env"]["MASTER_PORT"] == job.launch(2)["env"]["MASTER_PORT"]


def test_a_waiter_that_is_asked_to_end_lets_go_of_everything(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(gpus=2)
    pid = home.waiter()

    os.kill(pid, signal.SIGTERM)
    until(lambda: not system.start_ticks(pid), "the waiter to end")

    assert not job.status()["alive"]
    assert read_entries(os.environ["FABRIC_LEASES"]) == []


def test_a_terminal_that_is_closed_ends_no_waiter(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(gpus=2)
    pid = home.waiter()

    os.kill(pid, signal.SIGHUP)

    assert home.waiter() == pid and job.waits


def test_a_waiter_ends_when_nothing_waits_and_leaves_its_log_alone(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.wait(gpus=2)
    pid = home.waiter()
    busy.release()
    job.until_over()

    until(lambda: not system.start_ticks(pid), "the waiter to end")

    assert {path.name for path in home.folder.iterdir()} == {"jobs", "waiter.log"}
    assert (home.folder / "waiter.log").read_text() == ""
    assert held() == set()
    assert not list(Path(os.environ["FABRIC_LEASES"]).glob("*queue-*"))
    assert home.waiter() == 0


# Handing over again


def test_handing_over_twice_makes_one_start_with_what_came_last(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.job(f"{noted(home)}; [ $TOKEN = second ]", gpus=2)
    home.hand_over(job, {"TOKEN": "first"}, priority=10)
    home.hand_over(job, {"TOKEN": "second"}, priority=90)
    assert [one.priority for one in read_entries(os.environ["FABRIC_LEASES"])] == [90]

    busy.release()

    assert job.until_over()["exit_code"] == 0
    home.hand_over(job)
    assert home.ask(act="list")["waiting"] == []
    assert order(home) == [job.id]


def test_a_learner_that_has_begun_is_left_to_its_agent(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(f"echo $LEARNER_ID $MASTER_PORT; [ $LEARNER_ID = 2 ] || {FOREVER}", learners=2)
    document = job.launch(1)
    job.write(1, {**document, "env": {**document["env"], "MASTER_PORT": "29999"}})
    guard = subprocess.Popen(document["guard"], start_new_session=True)
    running = job.until_running(1)

    home.hand_over(job)
    assert not job.status(1)["state"].get("waiting") and job.status(2)["state"]["waiting"]
    busy.release()
    job.until_over(2)

    assert job.output(2) == "2 29999\n"
    assert job.state(1)["pid"] == running["pid"]
    state.ask_to_stop(str(job.folder(1)), {"kind": "kill"})
    guard.wait()


def test_a_second_agent_of_a_learner_that_waits_starts_nothing(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(noted(home), gpus=2)
    before = job.state()

    assert subprocess.run(job.launch()["guard"], check=False).returncode == 0

    assert job.state() == before and job.waits
    assert order(home) == []


def test_an_agent_takes_no_descriptor_for_its_lock_that_is_none(home: WaitingHome) -> None:
    job = home.job("echo ran", gpus=1)
    with (home.folder / "other").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        for named in (str(stream.fileno()), "999", "nonsense"):
            with (job.folder() / "agent.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                subprocess.run(
                    job.launch()["guard"],
                    env={"FABRIC_AGENT_LOCK": named},
                    pass_fds=[stream.fileno()],
                    check=True,
                )

    assert job.state() == {}


# What cannot be started


def test_a_job_whose_agent_is_gone_ends_with_the_reason(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(learners=2)
    for number in job.learners:
        job.write(number, {**job.launch(number), "guard": ["/gone/python", "guard"]})
    home.hand_over(job, {"TOKEN": SECRET})

    busy.release()

    first, second = (job.until_over(number) for number in job.learners)
    assert first["reason"] == {
        "text": "/gone/python cannot be started: No such file or directory.",
        "code": "S101",
        "hint": "",
    }
    assert first["decided"] and not second["decided"]
    assert (second["stopped"], second["reason"]["text"]) == ("settle", "stopped, since learner 1 has failed")
    until(lambda: held() == set(), "what was leased to be free")
    assert not list(Path(os.environ["XDG_RUNTIME_DIR"]).rglob("*.json"))


def test_a_learner_that_runs_ends_with_one_that_could_not_be_started(
    home: WaitingHome, busy: leases.Lease
) -> None:
    job = home.job(f"{noted(home)}; {FOREVER}", learners=2)
    fails = (
        "from workbench.learner.platform import run",
        "spawn, begun = run.spawn, []",
        "def failing(*arguments):",
        "    if begun: raise OSError(28, 'No space left on device')",
        "    begun.append(spawn(*arguments))",
        "    return begun[-1]",
        "run.spawn = failing",
    )
    home.operations.call("hand_over", {**home.arguments(job), "argv": home.argv_with(*fails)})

    busy.release()

    assert job.until_over(2)["reason"]["code"] == "S101"
    assert "No space left on device" in job.state(2)["reason"]["text"]
    assert job.until_over(1)["reason"]["text"] == "stopped, since learner 2 has failed"
    assert home.ask(act="list")["waiting"] == []
    assert order(home) in ([], [job.id])


def test_an_agent_that_ends_before_it_has_begun_ends_its_job(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(gpus=2)
    job.write(1, {**job.launch(), "guard": ["sh", "-c", "echo no room; exit 1"]})
    home.hand_over(job)

    busy.release()

    end = job.until_over()
    assert (end["reason"]["code"], end["decided"]) == ("S101", True)
    assert end["reason"]["text"] == "its agent could not be started: no room"
    until(lambda: not job.status()["alive"], "its lock to be free")


def test_an_agent_whose_command_is_nonsense_ends_its_job(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(gpus=2)
    job.write(1, {**job.launch(), "guard": ["python\0"]})
    home.hand_over(job)

    busy.release()

    assert job.until_over()["reason"]["text"] == "its agent cannot be started: embedded null byte"


def test_a_launch_document_that_is_gone_ends_its_job(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(gpus=2)
    (job.folder() / "launch.json").write_text("{")

    busy.release()

    assert job.until_over()["reason"]["text"] == "its launch.json cannot be read"


def test_a_job_waits_until_a_full_disk_has_room(
    homes: Homes, clean_environment: Path, busy: leases.Lease
) -> None:
    with small_disk(clean_environment / "home-1"):
        home = homes()
        job = home.wait(noted(home), gpus=2)
        fill(home.folder)

        busy.release()
        stall = str(until(lambda: job.state().get("stall"), lambda: f"the reason: {job.state()}"))
        assert job.waits and "No space left" in stall
        (home.folder / "filling").unlink()

        assert job.until_over()["exit_code"] == 0
        home.clear()


def test_a_job_waits_while_the_folder_of_leases_cannot_be_used(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(gpus=2)
    folder = Path(os.environ["FABRIC_LEASES"])
    (folder / "GPU-2").unlink()
    (folder / "GPU-2").mkdir()

    busy.release()
    stall = until(lambda: job.state().get("stall"), lambda: f"the reason: {job.state()}")
    assert job.waits and "GPU-2" in str(stall)
    (folder / "GPU-2").rmdir()

    assert job.until_over()["exit_code"] == 0


def test_nothing_is_left_of_a_hand_over_that_fails(home: WaitingHome) -> None:
    job = home.job(gpus=1, learners=2)
    (job.folder(2) / "launch.json").unlink()

    with pytest.raises(Failure, match=r"learner-2 has no launch\.json"):
        home.hand_over(job)

    assert [job.status(number)["state"] for number in job.learners] == [None, None]
    assert not job.status(1)["alive"]
    assert home.ask(act="list")["waiting"] == []


# Who may ask


def test_a_waiter_answers_no_other_user(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(gpus=2)
    with person_process(
        f"""
        import socket
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect({home.address!r})
            try:
                stream.sendall(b'{{"act": "list"}}\\n')
                answer = stream.recv(100)
            except ConnectionError:
                answer = b""
        print("answer:", answer, flush=True)
        """
    ) as process:
        output = process.communicate()[0]

    assert output == b"answer: b''\n"
    assert home.ask(act="list")["waiting"] == [{"job": job.id, "attempt": 1}]


def test_no_secret_is_given_to_another_user_who_has_the_name(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.job(gpus=2)
    with person_process(
        f"""
        import socket
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind({home.address!r})
            listener.listen()
            print("listens", flush=True)
            stream, _ = listener.accept()
            print("received:", stream.recv(100), flush=True)
        """
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"

        with pytest.raises(Failure, match="has the name of this home's waiter") as refused:
            home.hand_over(job, {"TOKEN": SECRET})

        assert process.communicate()[0] == b"received: b''\n"
    assert refused.value.kind == "not_allowed"
    assert job.status()["state"] is None


def test_there_is_one_waiter_of_a_home(home: WaitingHome, busy: leases.Lease) -> None:
    home.wait(gpus=2)
    pid = home.waiter()

    second = subprocess.run(
        [*home.arguments(home.job())["argv"], home.uuid], check=False, capture_output=True
    )

    assert (second.returncode, second.stderr) == (0, b"")
    assert home.waiter() == pid


def test_a_waiter_that_cannot_be_started_is_reported_with_its_last_words(home: WaitingHome) -> None:
    job = home.job()
    arguments = {**home.arguments(job), "argv": ["sh", "-c", "echo it is broken >&2"]}

    with pytest.raises(
        Failure, match=r"The waiter at the host could not be started: it is broken"
    ) as refused:
        home.operations.call("hand_over", arguments)

    assert refused.value.kind == "failed"


GARBAGE = [
    (b"nonsense\n", "something that it does not understand"),
    (b"[1]\n", "something that it does not understand"),
    (b'{"act": "dance"}\n', "something that it does not know"),
    (b'{"act": "wait"}\n', "not understood as a ticket (KeyError)"),
    (b'{"act": "wait", "format": 99}\n', "older than who hands a job over"),
    (b'{"act": "wait", "ticket": [], "secrets": 7}\n', "not understood as a ticket"),
    (b'{"act": "wait", "ticket": 7}\n', "not understood as a ticket (AttributeError)"),
    (b'{"act": "change", "job": "JOB", "facts": {"priority": "high"}}\n', "not a number"),
    (b"\xff\xfe\x00\n", "something that it does not understand"),
    (b"[" * 100_000 + b"\n", "something that it does not understand"),
]
"""What somebody sends to a waiter, and what he is answered."""


def test_garbage_ends_nothing(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait(gpus=2)
    pid = home.waiter()

    for request_line, message in GARBAGE:
        with home.connected() as stream:
            stream.sendall(request_line.replace(b"JOB", job.id.encode()))
            answer = json.loads(stream.makefile().read())

        assert message in answer["message"], request_line[:80]
        assert home.ask(act="list")["waiting"] == [{"job": job.id, "attempt": 1}], request_line[:80]
        assert job.waits and home.waiter() == pid, request_line[:80]


def test_clients_that_say_nothing_keep_nobody_from_asking(home: WaitingHome, busy: leases.Lease) -> None:
    home.wait(gpus=2)
    silent = [home.connected() for _ in range(20)]

    assert home.waiter()

    for stream in silent:
        stream.close()


# Secrets


def everything_on_disks(*folders: Path) -> bytes:
    return b"".join(path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file())


def test_secrets_are_in_memory_alone_while_a_job_waits(
    home: WaitingHome, clean_environment: Path, busy: leases.Lease
) -> None:
    job = home.wait(f"[ $TOKEN = {SECRET[::-1]} ]", secrets={"TOKEN": SECRET[::-1]}, gpus=2)
    proc = Path(f"/proc/{home.waiter()}")

    assert SECRET[::-1].encode() not in everything_on_disks(clean_environment).replace(
        (job.folder() / "launch.json").read_bytes(), b""
    )
    assert SECRET[::-1].encode() not in (proc / "environ").read_bytes() + (proc / "cmdline").read_bytes()

    (clean_environment / "run").rename(clean_environment / "away")
    (clean_environment / "run").mkdir(mode=0o700)
    busy.release()
    assert job.until_over()["exit_code"] == 0


def test_a_job_starts_though_the_folder_for_secrets_was_removed(
    home: WaitingHome, clean_environment: Path, busy: leases.Lease
) -> None:
    job = home.wait(f"[ $TOKEN = {SECRET} ]", secrets={"TOKEN": SECRET}, gpus=2)

    remove_folder(clean_environment / "run")
    busy.release()

    assert job.until_over()["exit_code"] == 0
    Path(job.launch()["secrets_file"]).unlink()


def test_no_process_of_the_same_user_reads_what_a_waiter_holds(tmp_path: Path) -> None:
    uuid = str(tmp_path)

    def can_read(pid: int) -> bool:
        try:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
        except PermissionError:
            return False
        return True

    def tries() -> None:
        # Who changed its user is hidden until it executes something, or says otherwise.
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        assert can_read(os.getppid()) is False and can_read(os.getpid())
        waiter = os.fork()
        if waiter == 0:
            os._exit(waiter_main(str(tmp_path), uuid))
        other = os.fork()
        if other == 0:
            signal.pause()
        try:
            until(lambda: channel.ask(uuid, {"act": "list"}, 1.0), despite=(Failure,))
            assert can_read(other) and not can_read(waiter)
        finally:
            os.kill(waiter, signal.SIGKILL)
            os.kill(other, signal.SIGKILL)

    as_another(tries)


# Kept over a restart


@pytest.fixture
def resumes(home: WaitingHome) -> Path:
    """What is run when the machine has started; that it is there has tickets kept."""
    script = home.folder / "resume.sh"
    script.touch(mode=0o600)
    return script


def restart(home: WaitingHome, resumes: Path) -> None:
    """End what runs of a home as a restart does, and run what the machine runs then."""
    pid = home.waiter()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not system.start_ticks(pid), "the waiter to die")
    for file in home.folder.glob("jobs/*/*/*/state.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "boot_id": "0-before"}))
    resume(resumes)
    until(home.waiter, "the waiter to be there")


def resume(script: Path) -> None:
    """Do what the machine does when it has started."""
    subprocess.run(["sh", "-c", 'setsid sh "$0" </dev/null >/dev/null 2>&1 &', str(script)], check=True)


def kept(home: WaitingHome) -> list[str]:
    """Return the names of the files of those that are kept."""
    return sorted(path.name for path in home.folder.glob("waiting/*"))


def test_what_waits_is_kept_where_its_owner_wants_it(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    job = home.wait(noted(home), gpus=2)

    assert kept(home) == [f"{job.id}-1.json"]
    (file,) = home.folder.glob("waiting/*")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert str(home.folder) in resumes.read_text()
    assert resumes.stat().st_mode & 0o777 == 0o600
    busy.release()
    job.until_over()
    assert kept(home) == []


def test_nothing_is_kept_unless_that_is_wanted(home: WaitingHome, busy: leases.Lease) -> None:
    home.wait(noted(home), gpus=2)

    assert kept(home) == []
    assert not (home.folder / "resume.sh").exists()


def test_what_waited_starts_in_its_order_after_a_restart_with_nobody_connected(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    jobs = [home.wait(noted(home), gpus=2, priority=priority) for priority in (50, 50, 50)]
    home.turns(handed_over=[{"job": jobs[2].id, "priority": 90, "position": 0.0, "tries": 0, "weight": 1.0}])

    restart(home, resumes)
    until(lambda: all(job.waits for job in jobs), lambda: f"{[job.state() for job in jobs]}")
    busy.release()

    for job in jobs:
        assert job.until_over()["exit_code"] == 0
    assert order(home) == [jobs[2].id, jobs[0].id, jobs[1].id]
    assert kept(home) == []


def test_what_has_begun_or_ended_before_a_restart_is_left_alone(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    halted, waits, removed = (home.wait(noted(home), gpus=2) for _ in range(3))
    before = {path: path.read_bytes() for path in home.folder.glob("waiting/*")}
    home.operations.call("ask_to_stop", {"folder": str(halted.folder()), "request": {"kind": "halt"}})
    halted.until_over()
    remove_folder(removed.attempt)
    until(lambda: len(kept(home)) == 1, lambda: str(kept(home)))
    for path, content in before.items():
        path.write_bytes(content)  # as a power cut may leave it

    restart(home, resumes)
    busy.release()

    assert waits.until_over()["exit_code"] == 0
    assert order(home) == [waits.id]
    assert kept(home) == []


def test_who_launches_anew_has_decided_and_what_was_kept_is_forgotten(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    """A controller that took the job back may have halted it since, which nobody at the host would know."""
    job, other = home.wait(noted(home), gpus=2), home.wait(noted(home), gpus=2)
    anew = job.folder() / "new"
    anew.write_text((job.folder() / "launch.json").read_text())
    anew.rename(job.folder() / "launch.json")

    restart(home, resumes)
    until(lambda: other.waits, lambda: f"{other.state()}")

    assert not job.waits
    assert kept(home) == [f"{other.id}-1.json"]


def test_a_kept_file_that_is_garbage_keeps_nobody_from_waiting(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    job = home.wait(gpus=2)
    for number, content in enumerate(("", "{", "[]", '{"format": 1}', '{"format": 1, "ticket": 3}')):
        (home.folder / "waiting" / f"a{number}-1.json").write_text(content)

    restart(home, resumes)

    until(lambda: job.waits, lambda: f"{job.state()}")
    assert kept(home) == [f"{job.id}-1.json"]


def test_what_a_newer_fabric_keeps_is_left_to_it(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    job = home.wait(gpus=2)
    (home.folder / "waiting" / "a-1.json").write_text('{"format": 9}')

    restart(home, resumes)

    until(lambda: job.waits, lambda: f"{job.state()}")
    assert kept(home) == ["a-1.json", f"{job.id}-1.json"]


def test_nothing_is_kept_any_more_once_that_is_switched_off(
    home: WaitingHome, busy: leases.Lease, resumes: Path
) -> None:
    job = home.wait(gpus=2)

    resumes.unlink()
    remove_folder(home.folder / "waiting")
    home.turns(handed_over=[{"job": job.id, "priority": 90, "position": 0.0, "tries": 0, "weight": 1.0}])

    assert kept(home) == []
    busy.release()
    assert job.until_over()["exit_code"] == 0
    assert kept(home) == []


def test_secrets_are_not_kept_and_the_job_says_where_they_are(
    home: WaitingHome, clean_environment: Path, busy: leases.Lease, resumes: Path
) -> None:
    job = home.wait(f"[ $TOKEN = {SECRET[::-1]} ]", secrets={"TOKEN": SECRET[::-1]}, gpus=2, laptop="mine")
    other = home.wait(gpus=2)

    restart(home, resumes)

    until(lambda: other.waits, lambda: f"{other.state()}")
    (launch,) = job.attempt.glob("learner-1/launch.json")
    assert SECRET[::-1].encode() not in everything_on_disks(clean_environment).replace(
        launch.read_bytes(), b""
    )
    assert job.state()["stall"] == "needs its secrets again: run fabric on mine"
    assert not job.status()["alive"]
    home.hand_over(job, {"TOKEN": SECRET[::-1]})
    assert job.waits
    busy.release()
    assert job.until_over()["exit_code"] == 0


def test_a_job_that_lacks_its_secrets_is_halted(home: WaitingHome, busy: leases.Lease, resumes: Path) -> None:
    job = home.wait(FOREVER, secrets={"TOKEN": SECRET}, gpus=2)
    restart(home, resumes)
    until(lambda: job.state().get("stall"), lambda: f"{job.state()}")

    assert kept(home) == [f"{job.id}-1.json"]
    home.operations.call("ask_to_stop", {"folder": str(job.folder()), "request": {"kind": "halt"}})

    assert job.until_over()["stopped"] == "halt"
    assert kept(home) == [], "it may hold secrets, and no other waiter may come"


def test_secrets_are_kept_where_the_backend_says_so(
    home: WaitingHome, clean_environment: Path, busy: leases.Lease, resumes: Path
) -> None:
    job = home.wait(f"[ $TOKEN = {SECRET} ]", secrets={"TOKEN": SECRET}, gpus=2, secrets_at_host=True)

    restart(home, resumes)
    until(lambda: job.waits, lambda: f"{job.state()}")
    busy.release()

    assert job.until_over()["exit_code"] == 0
    until(lambda: kept(home) == [])


def test_a_full_disk_keeps_nobody_from_waiting(home: WaitingHome, busy: leases.Lease, resumes: Path) -> None:
    (home.folder / "waiting").write_text("somebody's file is in the way")

    job = home.wait(gpus=2)

    busy.release()
    assert job.until_over()["exit_code"] == 0
    assert f"a restart would not leave {job.id} waiting" in (home.folder / "waiter.log").read_text()


# What it costs


def long_waits(note: Path, last: int = 0) -> list[str]:
    """Return of a waiter's last waits, or of all, those that were as long as where there is nothing to see."""
    lines = note.read_text().splitlines()[-last:]
    return [line for line in lines if line.endswith("over") and float(line.split()[0]) > 1]


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_many_that_wait_cost_little(home: WaitingHome, busy: leases.Lease) -> None:
    note = home.folder / "waits"
    argv = home.argv_with(NOTES_WAITS.replace("{FILE}", repr(str(note))))
    for _ in range(300):
        home.operations.call("hand_over", {**home.arguments(home.job(gpus=2)), "argv": argv})
    pid = home.waiter()

    until(lambda: len(long_waits(note, last=3)) == 3, "the waiter to come to rest")
    used = cpu_ticks(pid)
    until(lambda: len(long_waits(note, last=6)) == 6, "three looks more, none of which led to another one")
    assert cpu_ticks(pid) - used < 30
    assert processes.proportional_bytes(pid) < 50 << 20
    assert len(home.ask(act="list")["waiting"]) == 300
    assert len(read_entries(os.environ["FABRIC_LEASES"])) == 100


def test_a_lease_that_nobody_can_take_is_not_tried_without_end(home: WaitingHome) -> None:
    """Somebody who reads a lease with a lock keeps it from being taken, and is no holder."""
    busy = take("GPU-1", "GPU-2")
    note = home.folder / "waits"
    job = home.job(gpus=2)
    argv = home.argv_with(NOTES_WAITS.replace("{FILE}", repr(str(note))))
    home.operations.call("hand_over", {**home.arguments(job), "argv": argv})
    with (Path(os.environ["FABRIC_LEASES"]) / "GPU-1").open() as stream:
        busy.release()
        until(lambda: _shared(stream.fileno()), "the lease to be free")
        home.ask(act="look")

        before = len(long_waits(note))
        until(lambda: len(long_waits(note)) >= before + 3, "three looks that led to none")
        assert job.waits

    assert job.until_over()["exit_code"] == 0


def _shared(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# Random harm


def has_ended(home: WaitingHome, job: WaitingJob) -> bool:
    """Say whether a job has ended, and do what a controller does where nobody is left who would start it."""
    seen = [job.status(number) for number in job.learners]
    phases = [(one["state"] or {}).get("phase", "starting") for one in seen]
    if any(not one["alive"] and phase == "starting" for one, phase in zip(seen, phases, strict=True)):
        home.hand_over(job)
    return set(phases) == {"exited"}


@pytest.mark.chaos
def test_waiters_are_killed_at_random_instants(
    homes: Homes,
    gpus: Gpus,
    clean_environment: Path,
    chaos_rounds: int | None,
    note_harm: Callable[[str], None],
) -> None:
    """Each learner runs once, unless it was stopped, and no two of them on one GPU."""
    gpus.add("GPU-3")
    notes = clean_environment / "notes"
    command = (
        f"for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do exec {{lock}}> {clean_environment}/$gpu; "
        f"flock -n $lock || echo shared $gpu >> {notes}; done; "
        f"echo $JOB $LEARNER_ID >> {notes}; sleep 0.05"
    )
    for seed in range(1 if chaos_rounds is None else chaos_rounds):
        chance = random.Random(seed)
        both = [homes(), homes()]
        script = both[1].folder / "resume.sh"
        script.touch()
        jobs: list[tuple[WaitingHome, WaitingJob]] = []
        stopped: set[str] = set()
        for _ in range(FEW_ACTS if chaos_rounds is None else ACTS):
            home = chance.choice(both)
            act = chance.choice(("new", "new", "new", "kill", "again", "again", "stop", "change", "resume"))
            if act == "new":
                learners, each = chance.choice(((1, 1), (1, 2), (2, 1), (3, 1)))
                jobs.append((home, home.job(command, learners=learners, gpus=each)))
                home.hand_over(
                    jobs[-1][1], {"A": "b"}, priority=chance.choice((40, 50, 60)), secrets_at_host=True
                )
            elif act == "resume":
                resume(script)
            elif act == "kill" and (pid := home.waiter()):
                note_harm("waiter killed")
                os.kill(pid, signal.SIGKILL)
            elif act == "again":
                for one in jobs:
                    has_ended(*one)
            elif act == "stop" and jobs:
                owner, job = chance.choice(jobs)
                stopped.update(f"{job.id} {number}" for number in job.learners)
                for number in job.learners:
                    request = {"kind": "halt", "by": "anna@box", "grace_seconds": 0.0}
                    arguments = {"folder": str(job.folder(number)), "request": request}
                    owner.operations.call("ask_to_stop", arguments)
            elif act == "change":
                own = [job.id for owner, job in jobs if owner is home]
                facts = {"priority": chance.choice((40, 50, 60)), "position": chance.random(), "tries": 0}
                home.turns(handed_over=[{"job": one, **facts} for one in own])
        until(lambda: all([has_ended(*one) for one in jobs]), lambda: [one.id for _, one in jobs])  # noqa: B023, C419

        every = Counter(f"{job.id} {number}" for _, job in jobs for number in job.learners)
        ran = Counter(notes.read_text().splitlines())
        assert ran - every == Counter(), seed
        assert set(every - ran) <= stopped, seed
        notes.unlink()
        resume(script)  # one that was halted while no waiter was there is forgotten by the next one
        until(lambda: kept(both[1]) == [], lambda: f"{seed}: {kept(both[1])}")  # noqa: B023


# Agents that are forked


def fork_servers(home: WaitingHome) -> list[int]:
    """List the processes of a home's waiter that fork agents."""
    waiter = home.waiter()
    found = [pid for pids in markers("FABRIC_GUARD_ROOM").values() for pid in pids]
    table = process_table.read()  # those of other tests come and go
    return [pid for pid in found if pid in table and table[pid].parent == waiter]


def a_fork_server(home: WaitingHome) -> int:
    """Wait until the waiter has one, which is ready."""

    def ready() -> list[int]:
        found = fork_servers(home)
        return [pid for pid in found if system.read_text(f"/proc/{pid}/comm").strip() == fork_server.NAME]

    (pid,) = until(ready, "a process that forks agents")
    return pid


def test_agents_of_several_attempts_are_forked_by_one_process(home: WaitingHome, busy: leases.Lease) -> None:
    jobs = [home.wait(f"{SHOW}; {FOREVER}") for _ in range(2)]
    server = a_fork_server(home)
    busy.release()

    agents = [job.until_running()["pid"] for job in jobs]
    table = process_table.read()
    assert [table[pid].parent for pid in agents] == [server, server]
    for job, pid in zip(jobs, agents, strict=True):
        assert pid in markers("FABRIC_GUARD")[job.marker()]
        assert b"FABRIC_GUARD_ROOM" not in system.read_bytes(f"/proc/{pid}/environ")
        assert (job.folder() / "guard.log").exists()


def test_a_forked_agent_holds_what_is_its_own_alone(home: WaitingHome, busy: leases.Lease) -> None:
    jobs = [home.wait(f"{SHOW}; {FOREVER}") for _ in range(2)]
    a_fork_server(home)
    busy.release()
    for job in jobs:
        job.until_running()
    assert {"GPU-1", "GPU-2"} <= held()

    (jobs[0].folder() / "stop.json").write_text('{"kind": "kill"}')
    jobs[0].until_over()

    until(lambda: len(held() & {"GPU-1", "GPU-2"}) == 1, "its GPU to be free")
    assert not jobs[0].status()["alive"]
    assert jobs[1].status()["alive"]


def test_one_attempt_alone_has_no_process_that_forks(home: WaitingHome, busy: leases.Lease) -> None:
    job = home.wait()

    assert fork_servers(home) == []
    busy.release()
    assert job.until_over()["exit_code"] == 0


def test_a_process_that_forks_ends_with_its_waiter_and_its_agents_go_on(
    home: WaitingHome, busy: leases.Lease
) -> None:
    jobs = [home.wait(f"{SHOW}; {FOREVER}") for _ in range(2)]
    server = a_fork_server(home)
    busy.release()
    for job in jobs:
        job.until_running()

    os.kill(home.waiter(), signal.SIGKILL)

    until(lambda: not system.start_ticks(server), "it to end")
    assert all(job.status()["alive"] for job in jobs)


def test_attempts_start_though_the_process_that_forks_was_killed(
    home: WaitingHome, busy: leases.Lease
) -> None:
    jobs = [home.wait(f"{SHOW}; echo end") for _ in range(3)]
    os.kill(a_fork_server(home), signal.SIGKILL)
    busy.release()

    assert [job.until_over()["exit_code"] for job in jobs] == [0, 0, 0]
    assert [job.output().count("end") for job in jobs] == [1, 1, 1]


def test_attempts_start_once_though_the_process_that_forks_does_not_answer(
    home: WaitingHome, busy: leases.Lease
) -> None:
    jobs = [home.wait(f"{SHOW}; echo end") for _ in range(2)]
    server = a_fork_server(home)
    os.kill(server, signal.SIGSTOP)
    busy.release()

    assert [job.until_over()["exit_code"] for job in jobs] == [0, 0]
    until(lambda: not system.start_ticks(server), "it to be killed")
    assert [job.output().count("end") for job in jobs] == [1, 1]
    until(lambda: not held() & {"GPU-1", "GPU-2"}, "what it was sent to be free")


def test_a_marker_without_room_is_an_agent_of_its_own(home: WaitingHome, busy: leases.Lease) -> None:
    server = agent_forks.ForkServer(str(home.folder / "log"), ["python3", "agent"])
    environment = {"FABRIC_GUARD": "x" * 400}

    assert server.start(["python3", "agent", "guard", "/folder"], environment, "/log", [3]) == 0
    server.close()
