"""GPUs of process jobs: leased by UUID for all learners or none, seen by nobody else, free when the learner is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from runners.shared import gpu_leases
from tests.runners.jobs import Jobs
from tests.stubs import GIB, Gpus
from tests.support.waiting import until
from workbench.errors import LaunchRefused
from workbench.job import LearnerPhase
from workbench.learner.host import learners
from workbench.learner.platform import lease_holders, leases
from workbench.paths import leases_folder

SHOW = "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $GPU_COUNT"
FOREVER = f"{SHOW}; while :; do sleep 1; done"


@pytest.fixture
def job_home() -> str:
    """A home of its own: the waiter of a home sees the GPUs of the test that it was started in."""
    return str(uuid4())


@pytest.fixture
def computing() -> Iterator[int]:
    """A process that stands for somebody else's on a GPU."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def held() -> set[str]:
    """Return the leases that somebody holds, ports left out."""
    names = [path.name for path in leases_folder().iterdir() if path.name.startswith(("GPU", "MIG"))]
    return set(lease_holders.holders(str(leases_folder()), names))


def held_become(expected: set[str]) -> bool:
    """Wait until exactly these are held: an agent lets go a moment after it has recorded the end."""
    until(lambda: held() == expected, lambda: f"the leases {expected}: {held()} are held")
    return True


def test_a_job_sees_exactly_the_gpus_that_it_was_given(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").add("GPU-2").add("GPU-3")
    job = jobs.run(SHOW, gpus=2)

    seen = job.until_over()[1]

    assert job.output() == b"GPU-1,GPU-2 GPU-1,GPU-2 PCI_BUS_ID 2.000000\n"
    assert seen.slots == ("GPU-1", "GPU-2")


def test_a_process_is_given_no_two_slices_of_a_gpu(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").say(f"mig GPU-1 MIG-a {10 * GIB} 0").say(f"mig GPU-1 MIG-b {10 * GIB} 0")
    with pytest.raises(LaunchRefused, match=r"2 slices \(MIG\), and a process can use no more than one"):
        jobs.run(SHOW, gpus=2)
    gpus.add("GPU-2").add("GPU-3")
    job = jobs.run(SHOW, gpus=2)

    assert job.until_over()[1].slots == ("GPU-2", "GPU-3")


def test_a_job_without_gpus_sees_none(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1")
    job = jobs.run('echo "<$CUDA_VISIBLE_DEVICES>" $NVIDIA_VISIBLE_DEVICES $GPU_COUNT')
    job.until_over()

    assert job.output() == b"<> void 0.000000\n"
    assert held() == set()


def test_a_lease_lives_as_long_as_the_learner_and_names_it(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1")
    job = jobs.run(FOREVER, gpus=1)
    job.until_running()

    holder = lease_holders.holders(str(leases_folder()), ["GPU-1"])["GPU-1"]
    guards = learners.markers("FABRIC_GUARD")[f"{jobs.home}/{job.request.attempt.job_id}/1/1"]

    owner = f"{jobs.host.identity().user} (tester@conformance)"
    assert (holder["owner"], holder["job"]) == (owner, job.request.attempt.job_id)
    assert holder["pid"] in guards
    job.stop().until_over()
    assert held_become(set())


def test_a_lease_is_free_when_every_holder_was_killed(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1")
    job = jobs.run(FOREVER, gpus=1)
    job.until_running()

    for pid in learners.markers("FABRIC_GUARD")[f"{jobs.home}/{job.request.attempt.job_id}/1/1"]:
        os.kill(pid, signal.SIGKILL)
    job.until_over()

    assert held_become(set())


def test_a_busy_machine_says_in_words_who_has_its_gpus(jobs: Jobs, gpus: Gpus, computing: int) -> None:
    gpus.add("GPU-1").add("GPU-2").say(f"process GPU-2 {computing} {GIB} compute")
    user = jobs.host.identity().user
    lease = leases.take(["GPU-1"], str(leases_folder()), '{"owner": "anna@box", "job": "training-abcdefghj"}')
    assert lease is not None
    job = jobs.plan(SHOW, gpus=2).launch()

    name = Path(f"/proc/{computing}/comm").read_text().strip()
    assert job.progress.lines[-1] == (
        "waiting",
        f"waits for 2 of 2 GPUs: GPU 0 is held by {user} (anna)'s job training-abcdefghj, "
        f"GPU 1 computes {name} (pid {computing}) of {user}",
    )
    assert [one.waits for one in job.observe(0).seen] == [True]
    lease.release()


def test_all_learners_get_their_gpus_or_none_does(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").add("GPU-2").add("GPU-3")
    job = jobs.plan(SHOW, gpus=1, learners=3, ends_when="all")
    lease = leases.take(["GPU-2"], str(leases_folder()), "{}")
    assert lease is not None

    job.launch()
    waiting = job.observe(0).seen
    assert [(one.phase, one.waits) for one in waiting] == [(LearnerPhase.STARTING, True)] * 3
    assert held() == {"GPU-2"}
    lease.release()
    job.until_over()

    given = [job.output(number).split()[0] for number in (1, 2, 3)]
    assert sorted(given) == [b"GPU-1", b"GPU-2", b"GPU-3"]


def test_each_learner_holds_only_its_own(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").add("GPU-2")
    command = f"[ $LEARNER_ID = 1 ] && exit 0; {FOREVER}"
    job = jobs.run(command, gpus=1, learners=2, settle_seconds=300.0)

    job.until(lambda seen: 1 in seen and seen[1].phase is LearnerPhase.EXITED, "the first had ended")

    assert held_become({"GPU-2"})


def test_two_controllers_never_share_a_gpu(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").add("GPU-2")
    other = str(uuid4())
    running = [jobs.run(FOREVER, gpus=1, home=home) for home in (jobs.home, other)]
    given = [job.until_running()[1].slots for job in running]

    third = jobs.run(SHOW, gpus=1, home=other)

    assert [one.waits for one in third.observe(0).seen] == [True]
    assert sorted(given) == [("GPU-1",), ("GPU-2",)]


def test_more_gpus_than_there_are_is_refused_for_good(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").add("GPU-2").say("fail GPU-2 15")

    with pytest.raises(LaunchRefused) as refused:
        jobs.run(SHOW, gpus=1, learners=2)

    assert refused.value.code == "C104"
    assert refused.value.message.startswith(
        "The job asks for 2 GPUs (2 learners with 1 each); this machine has 1 GPU: "
        "GPU 1 cannot be used: the GPU is lost"
    )


def test_a_gpu_that_gives_no_answer_for_an_instant_is_asked_again(
    jobs: Jobs, gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.add("GPU-1").say("fail GPU-1 999")

    def recover(_seconds: float) -> None:
        gpus.only([]).add("GPU-1")

    monkeypatch.setattr(gpu_leases, "time", SimpleNamespace(monotonic=time.monotonic, sleep=recover))
    job = jobs.run(SHOW, gpus=1)
    job.until_over()

    assert job.output().split()[0] == b"GPU-1"


def test_a_driver_that_is_missing_is_reported(jobs: Jobs, gpus: Gpus) -> None:
    gpus.only(["init 18"])

    with pytest.raises(
        LaunchRefused, match=r"has none: the driver and its library are of different versions"
    ):
        jobs.run(SHOW, gpus=1)


def test_the_wanted_type_is_given_first(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1", model="Tesla K80").add("GPU-2", model="Tesla V100-SXM2-16GB").add(
        "GPU-3", model="Tesla K80"
    )
    job = jobs.run(SHOW, gpus=1, gpu_type="nvidia-TeslaV100")
    job.until_over()

    assert job.output().split()[0] == b"GPU-2"


def test_slices_are_given_by_their_own_ids(jobs: Jobs, gpus: Gpus) -> None:
    gpus.add("GPU-1").say(f"mig GPU-1 MIG-GPU-1/1/0 {GIB} 0").say(f"mig GPU-1 MIG-b {GIB} 0")
    first, second = jobs.run(FOREVER, gpus=1), jobs.run(FOREVER, gpus=1)

    given = [job.until_running()[1].slots for job in (first, second)]

    assert given == [("MIG-GPU-1/1/0",), ("MIG-b",)]


def test_the_plan_says_that_gpus_are_chosen_at_launch(jobs: Jobs) -> None:
    plan = jobs.plan(SHOW, gpus=2).plan

    native = plan.learners[0].native["launch"]
    assert plan.slots_per_learner == 2
    assert native["slots"] == ["<chosen at launch>"] * 2
    assert native["env"]["CUDA_VISIBLE_DEVICES"] == "<chosen at launch>"
    json.dumps(native)
