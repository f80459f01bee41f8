"""Data stores of a job at a host over SSH: rclone goes there, data and results never pass through this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.box import Box
from tests.support.real_jobs import Ground
from tests.support.store_servers import SECRET, Server
from workbench.job import State
from workbench.paths import Home
from workbench.spec import DataStore
from workbench.store.db.rows import TargetRef


@pytest.fixture
def there(home: Home, box: Box) -> Iterator[Ground]:
    """A home whose jobs run at the host."""
    made = Ground(home, TargetRef("box", "ssh", "process", address=box.address))
    yield made
    made.clean_up()


@pytest.mark.new_host
def test_data_is_brought_to_the_host_and_results_are_stored_from_there(there: Ground, s3: Server) -> None:
    job_id = there.submit(
        "id -un; cat $DATA_DIR/train.txt; echo model >$RESULT_DIR/model.bin", data_stores=(s3.store(),)
    )

    row = there.ends(job_id)

    assert row.state is State.COMPLETED, row.reason
    assert there.output(job_id).endswith("one\ntwo\n")
    assert (s3.results(job_id) / "model.bin").read_text() == "model\n"
    assert (s3.results(job_id) / "learner-1" / "output.log").read_text() == there.output(job_id)


def test_no_credential_is_left_on_the_hosts_disk(there: Ground, box: Box, s3: Server) -> None:
    name = "data_stores.0.connection.password"
    store = s3.store(connection={"password": f"${{secret:{name}}}"})
    job_id = there.submit("true", data_stores=(store,), secret_values={name: SECRET})
    assert there.ends(job_id).state is State.COMPLETED

    files = [
        path for path in Path(box.user.home).rglob("*") if path.is_file() and path.stat().st_size < 1 << 20
    ]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_host_path_that_only_this_machine_has_is_refused_before_anything_starts(
    there: Ground, tmp_path: Path
) -> None:
    store = DataStore(
        id="mine",
        type="host_path",
        training_data="no-such-folder",
        connection={"path": str(tmp_path / "gone")},
    )
    job_id = there.submit("true", data_stores=(store,))

    row = there.ends(job_id)

    assert (row.state, row.reason.code) == (State.FAILED, "C104")
    assert "which does not exist on" in row.reason.text


def test_results_in_a_folder_of_the_host_come_home_where_they_are_wanted(
    there: Ground, box: Box, home: Home
) -> None:
    store = DataStore(
        id="its",
        type="host_path",
        training_results="out",
        connection={"path": str(box.user.home)},
    )
    command = "mkdir $RESULT_DIR/sub; echo model >$RESULT_DIR/sub/model.bin"
    job_id = there.submit(command, data_stores=(store,), fetch_results=True)

    assert there.ends(job_id).state is State.COMPLETED
    assert (home.job(job_id).results / "sub" / "model.bin").read_text() == "model\n"
