"""Data stores of type ``job``: another job's results as data, wherever they are kept."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import fabric_workbench
from tests.support.box import Box
from tests.support.command import Fabric, until_runs
from tests.support.store_servers import KEY, SECRET, Server
from tests.support.stored_jobs import make_detail
from workbench.errors import InputMissing, UsageError
from workbench.job import JobId
from workbench.paths import Home
from workbench.services.submit.dependencies import Parent, check_results
from workbench.spec import DataStore, Framework, JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.store.updates.jobs import insert_job

CHILD = """\
name: train
framework: {name: custom, command: 'cat $DATA_DIR/d.txt'}
data_stores:
- {type: job, training_data: {container: prepare}}
"""


def parent_of(store: str) -> str:
    return (
        "name: prepare\nframework: {name: custom, command: 'echo data > $RESULT_DIR/d.txt'}\n"
        f"data_stores:\n- {store}\n"
    )


def in_s3(s3: Server) -> str:
    s3.write("results/.keep", "")
    return (
        "{id: far, type: mount_cos, training_results: {container: results}, connection:"
        f" {{auth_url: '{s3.address}', user_name: {KEY}, password: {SECRET}}}}}"
    )


def parent(store: DataStore | None, target: TargetRef) -> Parent:
    spec = JobSpec(
        name="prepare", framework=Framework(command="true"), data_stores=(store,) if store is not None else ()
    )
    return Parent(JobId("training-23456789a"), spec, target, {})


def test_results_that_went_to_a_store_are_read_from_there(fabric: Fabric, home: Home, s3: Server) -> None:
    (fabric.folder / "prepare.yml").write_text(parent_of(in_s3(s3)))
    (fabric.folder / "train.yml").write_text(CHILD)
    fabric("run", "prepare.yml", "-q")
    before = fabric.json("show", "prepare", "--json")

    ran = fabric("run", "train.yml", "-q")
    child = fabric.json("show", "train", "--json")

    assert ran.stdout == "data\n"
    assert (s3.folder / "results" / before["id"] / "d.txt").read_text() == "data\n"
    assert SECRET not in (home.job(child["id"]).path / "job.json").read_text()
    assert SECRET not in ran.stderr
    # The child's own results stay with it.
    assert not (s3.folder / "results" / child["id"]).exists()


@pytest.mark.soak(
    "a file's documents and a store; the gate has a store above, and the documents of a file below"
)
def test_the_documents_of_one_file_pass_them_on_through_a_store(fabric: Fabric, s3: Server) -> None:
    (fabric.folder / "chain.yml").write_text(f"{parent_of(in_s3(s3))}---\n{CHILD}")

    planned = fabric("run", "chain.yml", "--plan")
    fabric("run", "chain.yml", "-q")

    assert "train" in planned.stdout
    assert fabric("logs", "train").stdout == "data\n"


def test_results_in_a_folder_are_read_in_it(fabric: Fabric, tmp_path: Path) -> None:
    (tmp_path / "kept" / "results").mkdir(parents=True)
    folder = (
        "{id: near, type: host_path, training_results: {container: results}, connection:"
        f" {{path: '{tmp_path}/kept'}}}}"
    )
    (fabric.folder / "chain.yml").write_text(f"{parent_of(folder)}---\n{CHILD}")

    fabric("run", "chain.yml", "-q")

    assert fabric("logs", "train").stdout == "data\n"


def test_results_that_came_home_from_a_host_are_read_here_and_not_there(fabric: Fabric, box: Box) -> None:
    (fabric.folder / "train.yml").write_text(CHILD)
    fabric("backend", "add", "box", box.address)
    fabric(
        "run",
        "-q",
        "--backend",
        "box",
        "--name",
        "prepare",
        "--",
        "sh",
        "-c",
        "echo data > $RESULT_DIR/d.txt",
    )

    here = fabric("run", "train.yml", "-q")
    there = fabric("run", "train.yml", "--backend", "box", expect=64)

    assert here.stdout == "data\n"
    assert "read where they are kept, on this machine; this job runs on box" in there.stderr
    assert "Traceback" not in there.stderr


def test_a_backend_that_does_not_reach_them_is_refused_in_a_sentence() -> None:
    here, box = (
        TargetRef("local", "local", "process"),
        TargetRef("box", "ssh", "process", address="ssh://box"),
    )
    folder = DataStore("near", "host_path", training_results="results", connection={"path": "/kept"})
    volume = DataStore("near", "volume", training_results="results", connection={"name": "v"})
    far = DataStore("far", "mount_cos", training_results="results", connection={"auth_url": "http://x"})

    check_results(parent(None, here), here)
    check_results(parent(None, box), here)  # what a host has made came home
    check_results(parent(folder, box), box)
    check_results(parent(far, here), box)
    with pytest.raises(UsageError, match="on this machine; this job runs on box"):
        check_results(parent(None, here), box)
    with pytest.raises(UsageError, match="are in a folder on box; this job runs on local"):
        check_results(parent(folder, box), here)
    with pytest.raises(UsageError, match="lie in the volume results"):
        check_results(parent(volume, here), here)


PREPARE = "echo data > $RESULT_DIR/d.txt"


def test_python_gives_no_folder_for_results_that_only_a_store_has(
    fabric: Fabric, home: Home, box: Box, s3: Server
) -> None:
    (fabric.folder / "prepare.yml").write_text(parent_of(in_s3(s3)))
    fabric("run", "prepare.yml", "-q", "--backend", box.address)
    job = fabric_workbench.job("prepare")
    assert (job.results() / "d.txt").read_text() == "data\n"
    shutil.rmtree(home.job(job.id).results)  # what a pod with a store leaves here

    with pytest.raises(InputMissing, match=f"they go to {s3.address} results/{job.id}") as raised:
        job.results()

    assert "download()" in raised.value.hint
    assert (job.download("results", fabric.folder / "here") / "d.txt").read_text() == "data\n"


def test_python_gives_the_folder_of_results_that_went_to_a_store_from_this_machine(
    fabric: Fabric, s3: Server
) -> None:
    (fabric.folder / "prepare.yml").write_text(parent_of(in_s3(s3)))
    fabric("run", "prepare.yml", "-q")

    assert (fabric_workbench.job("prepare").results() / "d.txt").read_text() == "data\n"


def test_python_gives_the_folder_in_a_store_that_is_a_folder_of_this_machine(
    fabric: Fabric, tmp_path: Path
) -> None:
    (tmp_path / "kept" / "results").mkdir(parents=True)
    store = (
        "{id: near, type: host_path, training_results: {container: results}, connection:"
        f" {{path: '{tmp_path}/kept'}}}}"
    )
    (fabric.folder / "prepare.yml").write_text(parent_of(store))
    fabric("run", "prepare.yml", "-q")
    job = fabric_workbench.job("prepare")

    assert job.results() == tmp_path / "kept" / "results" / job.id
    assert (job.results() / "d.txt").read_text() == "data\n"


def test_python_gives_no_folder_for_results_in_a_volume_of_a_container_engine(home: Home) -> None:
    volume = DataStore(id="kept", type="volume", training_results="mine", connection={"name": "vol"})
    with Store.open(home) as store:
        detail = make_detail()
        row = insert_job(store, replace(detail, spec=replace(detail.spec, data_stores=(volume,))))

    with pytest.raises(InputMissing, match="they are in the volume mine at local") as raised:
        fabric_workbench.job(row.id).results()

    assert "store of type volume" in raised.value.hint


def test_python_gives_the_folder_of_results_at_a_host_once_they_came_home(fabric: Fabric, box: Box) -> None:
    wait = "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done"
    fabric(
        "run",
        "-d",
        "-q",
        "--backend",
        box.address,
        "--name",
        "prepare",
        "--",
        "sh",
        "-c",
        f"{PREPARE}; {wait}",
    )
    until_runs(fabric, "prepare")
    job = fabric_workbench.job("prepare")

    with pytest.raises(InputMissing, match="not in a folder of this machine: they are at "):
        job.results()
    fabric("exec", "prepare", "--", "sh", "-c", "touch $JOB_STATE_DIR/end")
    fabric("wait", "prepare")

    assert (job.results() / "d.txt").read_text() == "data\n"
