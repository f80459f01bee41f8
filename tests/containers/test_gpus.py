"""GPUs of containers: leased by UUID for all learners or for none, held by the agents, free afterwards."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stubs import Gpus, pretend
from tests.support.engine import MakeJob, containers_of
from tests.support.images import DEBIAN
from workbench.errors import LaunchRefused, SlotsBusy
from workbench.learner.platform import lease_holders

UNIQUE = uuid.uuid4().hex[:8]
"""Other tests at the same time pretend other GPUs on the same engine."""

UUIDS = [f"GPU-{UNIQUE}-{number}" for number in range(8)]
FOREVER = "echo $NVIDIA_VISIBLE_DEVICES; while :; do sleep 1; done"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Eight pretended GPUs; the engine has no way to give them, so it is not asked to."""
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    found = pretend(tmp_path / "gpus", monkeypatch)
    for name in UUIDS:
        found.add(name)
    return found


@pytest.fixture
def stray(engine: None) -> Iterator[str]:
    """A container with a GPU that was created by another job and not started."""
    labels = [
        f"fabric.slots={UUIDS[0]}",
        "fabric.job=training-otherjobx",
        "fabric.attempt=1",
        "fabric.learner=1",
    ]
    options = [word for label in labels for word in ("--label", label)]
    argv = ["docker", "create", *options, DEBIAN, "true"]
    name = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    yield name
    subprocess.run(["docker", "rm", name], check=True, capture_output=True)


def test_four_learners_with_two_gpus_each_hold_eight_and_give_them_back(
    make_job: MakeJob, gpus: Gpus
) -> None:
    job = make_job(FOREVER, learners=4, gpus=2).launch()
    seen = job.until_running()
    folder = os.environ["FABRIC_LEASES"]
    everything = set(UUIDS)

    held = set(lease_holders.holders(folder, everything))
    containers = containers_of(job.ref().job_id)
    for number in range(1, 5):
        assert job.until_printed(b"\n", number).decode().strip() == ",".join(seen[number].slots)
    job.stop().until_over()

    assert held == everything
    assert sorted(containers) == [one.name for one in job.plan.learners]
    assert {slot for one in seen.values() for slot in one.slots} == everything
    assert lease_holders.holders(folder, everything) == {}


def test_all_learners_get_their_gpus_or_none_does(make_job: MakeJob, gpus: Gpus) -> None:
    first = make_job(FOREVER, gpus=1).launch()
    first.until_running()
    second = make_job("true", learners=4, gpus=2)

    lines = second.launch().progress.lines
    assert lines[-1][0] == "waiting"
    assert "waits for 8 of 8 GPUs" in lines[-1][1]

    holders = lease_holders.holders(os.environ["FABRIC_LEASES"], UUIDS)
    assert len(holders) == 1
    assert {one.stopped for one in second.stop().until_over().values()} == {"kill"}
    first.stop().until_over()


def test_a_container_that_was_created_and_not_started_holds_its_gpus(
    make_job: MakeJob, gpus: Gpus, stray: str
) -> None:
    with pytest.raises(SlotsBusy, match="job otherjobx has a container with it"):
        make_job("true", gpus=8).launch()


def test_use_of_its_gpus_is_that_of_the_job(make_job: MakeJob, gpus: Gpus) -> None:
    job = make_job(FOREVER, gpus=2).launch()
    seen = job.until_running()[1]

    sample = job.until_recorded("usage")[0]
    job.stop().until_over()

    assert {one["uuid"] for one in sample["gpus"]} == set(seen.slots)


def test_more_gpus_than_there_are_are_refused(make_job: MakeJob, gpus: Gpus) -> None:
    with pytest.raises(LaunchRefused, match="asks for 9 GPUs; this machine has 8 GPUs"):
        make_job("true", gpus=9).launch()


def test_an_engine_that_cannot_give_gpus_says_what_to_install(
    make_job: MakeJob, gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FABRIC_CONTAINER_GPUS")
    argv = ["docker", "run", "--rm", "--gpus", "1", DEBIAN, "true"]
    if b"could not select device driver" not in subprocess.run(argv, capture_output=True).stderr:
        pytest.skip("the engine here has a way to give GPUs")

    seen = make_job("true", gpus=1).launch().until_over()[1]

    assert seen.reason is not None
    assert "cannot give GPUs to containers" in seen.reason.text
    assert "container toolkit" in seen.reason.hint


def test_gpus_that_are_lost_while_a_container_runs_are_named(make_job: MakeJob, gpus: Gpus) -> None:
    says = "echo step 1; echo 'Failed to initialize NVML: Unknown Error' >&2; echo Traceback; exit 1"
    lost = make_job(says, gpus=1).launch().until_over()[1]
    without = make_job(says).launch().until_over()[1]

    assert lost.reason is not None
    assert lost.reason.code == "S105"
    assert "it lost its GPUs while it ran: Failed to initialize NVML: Unknown Error" in lost.reason.text
    assert "cgroupfs" in lost.reason.hint
    assert without.reason is not None
    assert without.reason.code == "C201"
