"""``fabric store serve`` is an S3 store of this machine that stands for the one of FfDL's examples."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Fabric, wait_until
from workbench.data.rclone import find_rclone
from workbench.data.served import ALIAS, Served, served_store
from workbench.errors import FabricError
from workbench.paths import Home

MANIFEST = f"""\
name: tutorial
framework:
  command: cat $DATA_DIR/images; echo trained > $RESULT_DIR/model
data_stores:
  - id: sl-internal-os
    type: mount_cos
    training_data:
      container: tf_training_data
    training_results:
      container: tf_trained_model
    connection:
      auth_url: {ALIAS}
      user_name: test
      password: test
"""

Serve = Callable[..., dict[str, Any]]


@pytest.fixture
def serve(fabric: Fabric, home: Home) -> Iterator[Serve]:
    try:
        find_rclone()
    except FabricError as error:
        pytest.skip(f"{error}")
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> dict[str, Any]:
        server = fabric.start("store", "serve", *words, "--json")
        started.append(server)
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        assert isinstance(said, dict)
        return {**said, "process": server}

    yield start
    for server in started:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        for stream in (server.stdout, server.stderr):
            if stream:
                stream.close()


def rclone(store: dict[str, Any], *words: str, key: str = "test") -> subprocess.CompletedProcess[str]:
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": store["address"],
        "ACCESS_KEY_ID": key,
        "SECRET_ACCESS_KEY": key,
    }
    told = {f"RCLONE_CONFIG_S_{name}": value for name, value in remote.items()}
    argv = [find_rclone().path, *words, "--retries", "1", "--low-level-retries", "1"]
    return subprocess.run(
        argv, env={**os.environ, "RCLONE_CONFIG": "", **told}, capture_output=True, text=True, timeout=60
    )


def write_manifest(fabric: Fabric) -> Path:
    path = fabric.folder / "manifest.yml"
    path.write_text(MANIFEST)
    return path


def test_it_serves_what_manifests_name_to_who_has_the_keys(fabric: Fabric, serve: Serve) -> None:
    folder = fabric.folder / "store"
    write_manifest(fabric)

    store = serve(str(folder), "--port", "0", "--manifest", "manifest.yml")

    assert store["made"] == ["tf_training_data", "tf_trained_model"]
    assert rclone(store, "lsf", "S:").stdout.split() == ["tf_trained_model/", "tf_training_data/"]
    (folder / "tf_training_data" / "images").write_text("seven")
    assert rclone(store, "cat", "S:tf_training_data/images").stdout == "seven"
    assert rclone(store, "lsf", "S:", key="tess").returncode != 0


def test_it_is_known_as_long_as_it_runs_and_no_longer(fabric: Fabric, home: Home, serve: Serve) -> None:
    store = serve(str(fabric.folder / "store"))
    process = store["process"]

    assert served_store(home) == Served(store["address"], store["folder"], process.pid)
    refused = fabric("store", "serve", expect=75).stderr
    assert f"served already at {store['address']}" in refused

    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert served_store(home) is None


def test_one_that_was_killed_is_not_believed_and_leaves_no_server(
    fabric: Fabric, home: Home, serve: Serve
) -> None:
    store = serve(str(fabric.folder / "store"))
    process = store["process"]
    process.kill()
    process.wait(30)
    process.returncode = 0  # the fixture's question is answered

    assert served_store(home) is None
    wait_until(lambda: rclone(store, "lsf", "S:").returncode != 0, "its server to end")


def test_a_port_that_is_taken_and_a_folder_that_is_a_file_are_said(fabric: Fabric, serve: Serve) -> None:
    store = serve(str(fabric.folder / "store"))
    port = store["address"].rpartition(":")[2]
    (fabric.folder / "file").touch()

    assert (
        f"the port {port} is taken"
        in fabric(
            "store", "serve", "--port", port, expect=75, FABRIC_HOME=str(fabric.folder / "other")
        ).stderr
    )
    assert "is no folder" in fabric("store", "serve", "file", expect=66).stderr


def test_an_example_of_ffdls_without_a_store_says_how_to_serve_one(fabric: Fabric) -> None:
    write_manifest(fabric)

    refused = fabric("run", "manifest.yml", expect=69)

    assert "nothing stands for it here" in refused.stderr
    assert "fabric store serve" in refused.stderr


def test_data_that_the_served_store_does_not_have_is_named(fabric: Fabric, serve: Serve) -> None:
    folder = fabric.folder / "store"
    (folder / "mnist").mkdir(parents=True)
    write_manifest(fabric)
    serve(str(folder))

    refused = fabric("run", "manifest.yml", expect=66)

    assert "no container 'tf_training_data'; it has mnist" in refused.stderr
    assert "fabric data put FOLDER served:tf_training_data" in refused.stderr


def test_an_alias_to_an_address_where_nobody_answers_is_said(fabric: Fabric, clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text(f'[store_alias]\n"{ALIAS}" = "http://127.0.0.1:1"\n')
    write_manifest(fabric)

    refused = fabric("run", "manifest.yml", expect=69)

    assert "nobody answers at http://127.0.0.1:1, where the store sl-internal-os should be" in refused.stderr


def test_an_alias_to_nothing_is_said(fabric: Fabric, clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text(f'[store_alias]\n"{ALIAS}" = "lab"\n')
    write_manifest(fabric)

    assert "neither an address nor a store" in fabric("run", "manifest.yml", expect=78).stderr
