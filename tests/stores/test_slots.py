"""GPUs are free when a job's command has ended: storing its results keeps no other job from them."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path

import pytest

from tests.stubs import pretend
from tests.support.images import BUSYBOX
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server
from tests.support.waiting import until
from workbench.job import State
from workbench.learner.platform import lease_holders
from workbench.paths import leases_folder

HERE = "echo model > $RESULT_DIR/model.bin; echo here; while [ ! -e $LOG_DIR/go ]; do sleep 0.05; done"


@pytest.fixture
def ground(own_ground: Ground) -> Ground:
    """Real jobs in a home of the test's own: its controller sees the GPUs that it pretends."""
    return own_ground


@pytest.fixture
def containers(own_containers: Ground) -> Ground:
    """The same in containers."""
    return own_containers


@pytest.mark.parametrize(
    "agent_dies",
    [
        pytest.param(
            False, marks=pytest.mark.soak("an agent that lives; the gate has that with containers below")
        ),
        True,
    ],
)
def test_another_job_has_the_gpu_while_results_are_stored(
    agent_dies: bool, ground: Ground, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1")
    first = ground.submit(HERE, gpus=1, cpus=1000.0, data_stores=(s3.store(),))
    ground.prints(first, "here")
    second = ground.submit("echo $CUDA_VISIBLE_DEVICES", gpus=1, cpus=1000.0)
    state = ground.learner(second).state
    until(lambda: state.exists() and json.loads(state.read_text()).get("waiting"), "it to wait at the host")
    assert lease_holders.holders(str(leases_folder()), ["GPU-1"])
    s3.stop()

    if agent_dies:
        os.kill(int(lease_holders.holders(str(leases_folder()), ["GPU-1"])["GPU-1"]["pid"]), signal.SIGKILL)
    else:
        (ground.home.job(first).attempt(1).logs / "go").touch()

    ground.reaches(first, State.STORING)
    ended = ground.ends(second)
    assert (ended.state, ground.output(second)) == (State.COMPLETED, "GPU-1\n")
    assert ground.row(first).state is State.STORING
    s3.start()
    stored = ground.ends(first)
    assert stored.state is (State.FAILED if agent_dies else State.COMPLETED), stored.reason
    assert (s3.results(first) / "model.bin").read_text() == "model\n"


@pytest.mark.parametrize(
    "agent_dies",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.soak("an agent that dies; the gate has that with processes above")
        ),
    ],
)
def test_another_container_has_the_gpu_while_results_are_stored(
    agent_dies: bool, containers: Ground, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Containers of other tests on the same engine pretend GPUs of other names.
    gpu = f"GPU-{uuid.uuid4()}"
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    pretend(tmp_path / "gpus", monkeypatch).add(gpu)
    first = containers.submit(HERE, image=BUSYBOX, gpus=1, data_stores=(s3.store(),))
    containers.prints(first, "here")
    second = containers.submit("echo $NVIDIA_VISIBLE_DEVICES", image=BUSYBOX, gpus=1)
    containers.reaches(second, State.QUEUED)
    (holder,) = lease_holders.holders(str(leases_folder()), [gpu]).values()
    s3.stop()

    if agent_dies:
        os.kill(int(holder["pid"]), signal.SIGKILL)
    else:
        (containers.home.job(first).attempt(1).logs / "go").touch()

    containers.reaches(first, State.STORING)
    ended = containers.ends(second)
    assert (ended.state, containers.output(second)) == (State.COMPLETED, f"{gpu}\n")
    assert containers.row(first).state is State.STORING
    s3.start()
    stored = containers.ends(first)
    assert stored.state is (State.FAILED if agent_dies else State.COMPLETED), stored.reason
    assert (s3.results(first) / "model.bin").read_text() == "model\n"
