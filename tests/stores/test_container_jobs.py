"""Data stores of containers: copies bound read-only, folders and volumes where they are, results stored from afar."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.container.limits import FILE
from tests.support.images import BUSYBOX, USER
from tests.support.real_jobs import Ground
from tests.support.store_servers import SECRET, Server
from tests.support.waiting import until
from workbench.job import State
from workbench.learner.stores.mount import missing_support
from workbench.paths import Home
from workbench.spec import DataStore


def test_data_is_bound_read_only_and_results_are_stored_from_outside(containers: Ground, s3: Server) -> None:
    job_id = containers.submit(
        "echo $DATA_DIR $RESULT_DIR; find $DATA_DIR -type f | sort; cat $DATA_DIR/train.txt;"
        " touch $DATA_DIR/new 2>/dev/null || echo locked; echo model >$RESULT_DIR/model.bin;"
        " echo c >$CHECKPOINT_DIR/c",
        image=BUSYBOX,
        data_stores=(s3.store(),),
    )

    row = containers.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert containers.output(job_id).splitlines() == [
        f"/mnt/data/tf_training_data /mnt/results/tf_trained_model/{job_id}",
        "/mnt/data/tf_training_data/sub/more.txt",
        "/mnt/data/tf_training_data/train.txt",
        "one",
        "two",
        "locked",
    ]
    results = s3.results(job_id)
    assert (results / "model.bin").read_text() == "model\n"
    assert (results / "_checkpoints" / "c").read_text() == "c\n"
    assert (results / "learner-1" / "output.log").exists()


def test_a_limit_that_an_engine_does_not_raise_any_more_costs_one_attempt(
    own_containers: Ground, s3: Server, home: Home
) -> None:
    file = home.path / FILE
    file.unlink(missing_ok=True)
    own_containers.ends(own_containers.submit("true", image=BUSYBOX))
    found = json.loads(file.read_text())
    if "memlock" in next(iter(found.values())):
        pytest.skip("the engine here may raise all limits")
    file.write_text(json.dumps({key: ["memlock", "stack"] for key in found}))
    # With data that is bound the agent starts the container, and nobody who launches hears of it.
    job_id = own_containers.submit(
        "cat $DATA_DIR/train.txt", image=BUSYBOX, data_stores=(s3.store(),), max_platform_restarts=1
    )

    row = own_containers.ends(job_id)

    assert (row.state, row.attempt) == (State.COMPLETED, 2), row.reason
    assert json.loads(file.read_text()) == found


def test_an_image_with_a_user_of_its_own_reads_and_writes(containers: Ground, s3: Server) -> None:
    job_id = containers.submit(
        "id -u; cat $DATA_DIR/sub/more.txt; echo m >$RESULT_DIR/m", image=USER, data_stores=(s3.store(),)
    )

    assert containers.ends(job_id).state is State.COMPLETED
    assert containers.output(job_id).endswith("three\n")
    assert not containers.output(job_id).startswith("0\n")
    assert (s3.results(job_id) / "m").exists()


def test_several_learners_share_one_copy_and_store_once(containers: Ground, s3: Server) -> None:
    job_id = containers.submit(
        "cat $DATA_DIR/train.txt; echo $LEARNER_ID >$RESULT_DIR/from-$LEARNER_ID",
        image=BUSYBOX,
        learners=2,
        ends_when="all",
        data_stores=(s3.store(),),
    )

    assert containers.ends(job_id).state is State.COMPLETED
    assert [containers.output(job_id, learner=number) for number in (1, 2)] == ["one\ntwo\n"] * 2
    assert {path.name for path in s3.results(job_id).iterdir()} == {
        "from-1",
        "from-2",
        "learner-1",
        "learner-2",
    }


def test_the_container_knows_no_credential(containers: Ground, s3: Server) -> None:
    job_id = containers.submit(
        "env; cat /proc/1/environ; echo ready; sleep 600", image=BUSYBOX, data_stores=(s3.store(),)
    )
    containers.prints(job_id, "ready")

    inspected = subprocess.run(
        ["docker", "inspect", f"learner-{job_id.removeprefix('training-')}-a1-0"],
        capture_output=True,
        text=True,
    )
    assert job_id in inspected.stdout
    assert SECRET not in inspected.stdout
    assert SECRET not in containers.output(job_id)
    containers.ask(job_id, "kill")
    containers.ends(job_id)


def test_a_folder_of_the_host_is_used_where_it_is(containers: Ground, tmp_path: Path) -> None:
    (tmp_path / "cosdata" / "train").mkdir(parents=True)
    (tmp_path / "cosdata" / "train" / "a.txt").write_text("here\n")
    store = DataStore(
        id="hostmount",
        type="mount_volume",
        training_data="train",
        training_results="results",
        connection={"type": "host_mount", "name": "host-mount", "path": str(tmp_path / "cosdata")},
    )
    job_id = containers.submit(
        "echo $DATA_DIR $RESULT_DIR; cat $DATA_DIR/a.txt; echo m >$RESULT_DIR/m; echo c >$CHECKPOINT_DIR/c",
        image=BUSYBOX,
        data_stores=(store,),
    )

    row = containers.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert containers.output(job_id) == f"/mnt/data/train /mnt/results/results/{job_id}\nhere\n"
    results = tmp_path / "cosdata" / "results" / job_id
    assert (results / "m").read_text() == "m\n"
    assert (results / "_checkpoints" / "c").exists()
    assert (results / "learner-1" / "output.log").exists()


@pytest.fixture
def volume(engine: None) -> Iterator[str]:
    """A named volume of the engine."""
    name = "fabric-test-volume"
    subprocess.run(["docker", "volume", "create", name], check=True, capture_output=True)
    yield name
    # A job's state may be recorded a moment before the engine has removed its container, which holds the volume.
    remove = ["docker", "volume", "rm", "-f", name]
    until(lambda: subprocess.run(remove, capture_output=True).returncode == 0)


def test_a_volume_is_used_where_it_is(volume: str, containers: Ground) -> None:
    store = DataStore(id="v", type="volume", training_data="train", connection={"name": volume})
    write = "mkdir -p /mnt/volumes/$V/train; echo kept >/mnt/volumes/$V/train/x"
    first = containers.submit(write, image=BUSYBOX, env={"V": volume}, data_stores=(store,))
    assert containers.ends(first).state is State.COMPLETED
    second = containers.submit("cat $DATA_DIR/x", image=BUSYBOX, data_stores=(store,))
    containers.ends(second)

    assert containers.output(second) == "kept\n"


def test_no_container_is_left_of_a_job_whose_data_cannot_be_had(containers: Ground, s3: Server) -> None:
    job_id = containers.submit("true", image=BUSYBOX, data_stores=(s3.store(training_data="nope"),))

    assert containers.ends(job_id).reason.code == "C103"
    name = f"learner-{job_id.removeprefix('training-')}"
    listed = subprocess.run(["docker", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True)
    assert name not in listed.stdout


def test_data_that_is_to_be_mounted_is_seen_in_a_container(containers: Ground, s3: Server) -> None:
    if reason := missing_support():
        pytest.skip(reason)
    job_id = containers.submit(
        "find $DATA_DIR -type f | sort; cat $DATA_DIR/sub/more.txt",
        image=USER,
        data_stores=(s3.store(mount=True),),
    )

    row = containers.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert containers.output(job_id).splitlines() == [
        "/mnt/data/tf_training_data/sub/more.txt",
        "/mnt/data/tf_training_data/train.txt",
        "three",
    ]
    assert str(containers.home.path) not in Path("/proc/mounts").read_text()
