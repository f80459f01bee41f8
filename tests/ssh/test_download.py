"""Files of a job at a host are fetched from there, or from its store when the host is gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.seen import printed
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.kept_agents import lend_rclone_to_hosts
from tests.support.store_servers import KEY, SECRET, Server, serving
from tests.support.waiting import until
from workbench.data.stores.rclone import find_rclone
from workbench.errors import FabricError
from workbench.paths import Home


@pytest.fixture
def dav(tmp_path: Path) -> Iterator[Server]:
    try:
        find_rclone()
    except FabricError as error:
        pytest.skip(f"{error}")
    lend_rclone_to_hosts()
    yield from serving("webdav", tmp_path / "dav")


def test_results_come_from_the_host_while_the_job_runs(fabric: Fabric, home: Home) -> None:
    command = (
        "mkdir $RESULT_DIR/deep; echo half >$RESULT_DIR/deep/model.pt; echo other >$RESULT_DIR/x;"
        " echo ready; sleep 600"
    )
    job = fabric("run", "-d", "--backend", "ssh://box", "--runner", "process", "--", command).stdout.strip()
    until(lambda: "ready" in printed(home, job), "the command to print")

    fabric("download", job, "results", "out")
    fabric("download", job, "results", "few", "--include", "*.pt")
    fabric("download", job, "logs", "out")

    assert (fabric.folder / "out" / "results" / "deep" / "model.pt").read_text() == "half\n"
    assert [path.name for path in (fabric.folder / "few").rglob("*") if path.is_file()] == ["model.pt"]
    assert (fabric.folder / "out" / "logs" / "learner-1.log").read_text() == "ready\n"
    fabric("kill", job)
    fabric("wait", job, expect=None)


def test_results_come_from_the_store_when_the_host_is_gone(
    box: Box, fabric: Fabric, home: Home, dav: Server
) -> None:
    (fabric.folder / "manifest.yml").write_text(
        "name: gone\nframework: {command: 'cat $DATA_DIR/train.txt; echo trained > $RESULT_DIR/model'}\n"
        "data_stores:\n  - id: dav\n    type: webdav\n    training_data: {container: tf_training_data}\n"
        "    training_results: {container: tf_trained_model}\n"
        f"    connection: {{auth_url: '{dav.address}', user_name: {KEY}, password: {SECRET}}}\n"
    )

    ran = fabric("run", "manifest.yml", "--backend", "ssh://box", "--runner", "process")
    assert ran.stdout == "one\ntwo\n"
    job = fabric.json("list", "--json")[0]["id"]
    fabric("controller", "stop")
    box.daemon.stop()
    shutil.rmtree(home.job(job).results, ignore_errors=True)

    fabric("download", job, "results", "out")

    assert (fabric.folder / "out" / "results" / "model").read_text() == "trained\n"
    dav.stop()
    assert "cannot be read" in fabric("download", job, "results", "other", expect=69).stderr
