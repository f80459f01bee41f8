"""``fabric store serve`` is an S3 store of this machine that stands for the one of FfDL's examples."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric, Serve
from tests.support.ports import free_port
from tests.support.store_servers import KEY, SECRET, Server, serving
from tests.support.waiting import patience, until
from workbench.data.stores.local_server import ALIAS, LocalStore, served_store
from workbench.data.stores.rclone import find_rclone
from workbench.errors import UsageError
from workbench.job import short_id
from workbench.paths import Home
from workbench.services.submit.store_checks import check_folders, check_stores
from workbench.services.transfer import s3_server
from workbench.spec import DataStore, JobSpec
from workbench.store.db.rows import TargetRef

MANIFEST = f"""\
name: tutorial
framework:
  command: cd $RESULT_DIR; cat $DATA_DIR/images; echo trained > model; mkdir deep; echo > deep/more.pt
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


def rclone(store: dict[str, Any], *args: str, key: str = "test") -> subprocess.CompletedProcess[str]:
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": store["address"],
        "ACCESS_KEY_ID": key,
        "SECRET_ACCESS_KEY": key,
    }
    variables = {f"RCLONE_CONFIG_S_{name}": value for name, value in remote.items()}
    argv = [find_rclone().path, *args, "--retries", "1", "--low-level-retries", "1"]
    return subprocess.run(
        argv,
        env={**os.environ, "RCLONE_CONFIG": "", **variables},
        capture_output=True,
        text=True,
        timeout=patience(),
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

    served = served_store(home)
    assert served
    assert served == LocalStore(store["address"], store["folder"], served.server, process.pid)
    refused = fabric("store", "serve", expect=75).stderr
    assert f"served already at {store['address']}" in refused

    process.send_signal(signal.SIGINT)
    assert process.wait(patience()) == 0
    assert served_store(home) is None


def test_one_that_was_killed_is_not_believed_and_leaves_no_server(
    fabric: Fabric, home: Home, serve: Serve
) -> None:
    store = serve(str(fabric.folder / "store"))
    process = store["process"]
    process.kill()
    process.wait(patience())
    process.returncode = 0  # the fixture's question is answered

    assert served_store(home) is None
    until(lambda: rclone(store, "lsf", "S:").returncode != 0, "its server to end")


def test_a_port_that_is_taken_and_a_folder_that_is_a_file_are_reported(fabric: Fabric, serve: Serve) -> None:
    store = serve(str(fabric.folder / "store"))
    port = store["address"].rpartition(":")[2]
    (fabric.folder / "file").touch()

    assert (
        f"the port {port} is taken"
        in fabric(
            "store", "serve", "--port", port, expect=75, FABRIC_HOME=str(fabric.folder / "other")
        ).stderr
    )
    assert "is not a folder" in fabric("store", "serve", "file", expect=66).stderr


def test_a_program_that_takes_the_port_first_is_not_taken_for_the_store(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [other.getsockname()[1], free_port()]
        monkeypatch.setattr(s3_server, "_free_port", lambda _: ports.pop(0))
        cancel = threading.Event()
        store = s3_server.serve_store(home, tmp_path / "store", 0, (), cancel)

        served = next(store)

        assert ports == []
        assert served.address != f"http://127.0.0.1:{other.getsockname()[1]}"
        cancel.set()
        assert list(store) == []


def test_an_example_of_ffdls_without_a_store_says_how_to_serve_one(fabric: Fabric) -> None:
    write_manifest(fabric)

    refused = fabric("run", "manifest.yml", expect=69)

    assert "FfDL's built-in store" in refused.stderr
    assert "fabric store serve" in refused.stderr


def test_data_that_the_served_store_does_not_have_is_named(fabric: Fabric, serve: Serve) -> None:
    folder = fabric.folder / "store"
    (folder / "mnist").mkdir(parents=True)
    write_manifest(fabric)
    serve(str(folder))

    refused = fabric("run", "manifest.yml", expect=66)

    assert "no container 'tf_training_data'; it has mnist" in refused.stderr
    assert "fabric data put FOLDER served:tf_training_data" in refused.stderr


def test_an_alias_to_an_address_where_nobody_answers_is_reported(
    fabric: Fabric, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text(f'[store_alias]\n"{ALIAS}" = "http://127.0.0.1:1"\n')
    write_manifest(fabric)

    refused = fabric("run", "manifest.yml", expect=69)

    assert "the store sl-internal-os does not answer at http://127.0.0.1:1" in refused.stderr


def test_an_alias_to_nothing_is_reported(fabric: Fabric, clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text(f'[store_alias]\n"{ALIAS}" = "lab"\n')
    write_manifest(fabric)

    assert "neither an address nor a store" in fabric("run", "manifest.yml", expect=78).stderr


def run_with_store(fabric: Fabric, serve: Serve) -> tuple[dict[str, Any], str, Path]:
    """Run the manifest with the served store; return the store, the job's id and the store's folder."""
    folder = fabric.folder / "store"
    store = serve(str(folder))
    (fabric.folder / "images").mkdir()
    (fabric.folder / "images" / "images").write_text("seven\n")
    fabric("data", "put", "images", "served:tf_training_data", "--create")
    write_manifest(fabric)
    ran = fabric("run", "manifest.yml", "--runner", "process")
    assert ran.stdout == "seven\n"
    job_id = fabric.json("list", "--json")[0]["id"]
    assert f"results: {store['address']} tf_trained_model/{job_id}" in ran.stderr
    return store, job_id, folder


def test_a_manifest_of_ffdls_runs_as_it_is_and_its_results_come_from_the_store_when_nothing_of_them_is_here(
    fabric: Fabric, home: Home, serve: Serve
) -> None:
    store, job_id, folder = run_with_store(fabric, serve)

    assert (folder / "tf_trained_model" / job_id / "model").read_text() == "trained\n"
    shown = fabric.json("show", job_id, "--json")
    assert shown["spec"]["data_stores"][0]["connection"]["password"].startswith("${secret:")
    assert "password: test" not in shown["manifest"]

    shutil.rmtree(home.job(job_id).results)
    fabric("download", job_id, "results", "out")
    fabric("download", job_id, "./few", "--include", "*.pt")

    assert sorted(path.name for path in (fabric.folder / "out" / "results").rglob("*")) == [
        "deep",
        "model",
        "more.pt",
    ]
    assert [path.name for path in (fabric.folder / "few" / "results").rglob("*") if path.is_file()] == [
        "more.pt"
    ]
    assert [path.name for path in (fabric.folder / "out").iterdir()] == ["results"]

    # A download that was cut off goes on, and one is whole or not there.
    part = fabric.folder / "again" / f".results.{short_id(job_id)}" / "new"
    part.mkdir(parents=True)
    (part / "model").write_text("trained\n")
    shutil.copystat(folder / "tf_trained_model" / job_id / "model", part / "model")
    fabric("download", job_id, "results", "again")

    assert (fabric.folder / "again" / "results" / "model").read_text() == "trained\n"
    assert not part.exists()
    store["process"].send_signal(signal.SIGTERM)
    store["process"].wait(patience())
    refused = fabric("download", job_id, "results", "other", expect=69)
    assert "cannot be read" in refused.stderr
    assert not (fabric.folder / "other" / "results").exists()


def test_a_rerun_says_that_the_data_is_another(fabric: Fabric, serve: Serve) -> None:
    serve(str(fabric.folder / "store"))
    (fabric.folder / "set").mkdir()
    (fabric.folder / "set" / "file").write_text("one")
    fabric("data", "put", "set", "served:my_set", "--create")
    first = fabric.json("run", "-d", "--json", "--data", "served:my_set", "--", "cat $DATA_DIR/file")["id"]
    fabric("wait", first)
    assert "of the data store" not in fabric("rerun", first).stderr
    (fabric.folder / "set" / "file").write_text("two")
    fabric("data", "put", "set", "served:my_set")

    again = fabric("rerun", first)

    assert again.stdout == "two"
    assert f"differs from {short_id(first)}: the data in my_set of the data store data" in again.stderr
    assert "is not what it was when this job ran first" in fabric("show", "@last").stdout
    assert "data.data" in fabric("diff", first, "@last", expect=1).stdout


def test_data_is_put_into_containers_that_are_there_or_are_made(fabric: Fabric, serve: Serve) -> None:
    serve(str(fabric.folder / "store"))
    (fabric.folder / "set").mkdir()
    (fabric.folder / "set" / "a").write_text("a")

    refused = fabric("data", "put", "set", "served:my_set", expect=66)
    assert "no container 'my_set'" in refused.stderr
    assert "--create creates it" in refused.stderr
    put = fabric.json("data", "put", "set", "served:my_set/deep", "--create", "--json")
    assert (put["files"], put["path"]) == (1, "my_set/deep")
    assert (fabric.folder / "store" / "my_set" / "deep" / "a").read_text() == "a"
    assert fabric.json("data", "mkbucket", "served:my_set", "--json")["made"] is False
    assert fabric.json("data", "mkbucket", "served:other_set", "--json")["made"] is True
    assert "'..'" in fabric("data", "put", "set", "served:my_set/../x", expect=64).stderr
    assert "no store 'lap'" in fabric("data", "put", "set", "lap:x", expect=64).stderr
    assert "no folder" in fabric("data", "put", "sets", "served:my_set", expect=66).stderr


def test_all_files_of_a_folder_are_put_whatever_their_names_have_in_common(
    fabric: Fabric, serve: Serve
) -> None:
    serve(str(fabric.folder / "store"))
    names = {"\u00e9", "e\u0301", "Case", "case"}
    (fabric.folder / "set").mkdir()
    for name in names:
        (fabric.folder / "set" / name).write_text(name)

    put = fabric.json("data", "put", "set", "served:set", "--create", "--json")

    assert put["files"] == 4
    there = {path.name: path.read_text() for path in (fabric.folder / "store" / "set").iterdir()}
    assert there == {name: name for name in names}


def test_a_store_that_does_not_take_all_files_of_a_folder_is_reported(fabric: Fabric, serve: Serve) -> None:
    serve(str(fabric.folder / "store"))
    (fabric.folder / "set").mkdir()
    for name in ("a", "lost"):
        (fabric.folder / "set" / name).write_text("x")
    rclone = fabric.folder / "rclone"
    rclone.write_text(
        f'#!/bin/sh\n[ "$1" != copy ] || set -- "$@" --exclude lost\nexec {find_rclone().path} "$@"\n'
    )
    rclone.chmod(0o755)

    put = fabric("data", "put", "set", "served:set", "--create", expect=73, FABRIC_RCLONE=str(rclone))

    assert "1 of 2 files are in the data store" in put.stderr
    assert "it lacks 'lost'" in put.stderr


def test_copies_of_data_are_listed_and_pruned(fabric: Fabric, home: Home, serve: Serve) -> None:
    store, _, _ = run_with_store(fabric, serve)

    (copy,) = fabric.json("data", "list", "--json")
    assert (copy["container"], copy["store"], copy["files"], copy["in_use"]) == (
        "tf_training_data",
        store["address"],
        1,
        False,
    )
    assert "tf_training_data" in fabric("data", "list").stdout
    assert fabric.json("data", "prune", "--to", "1GB", "--yes", "--json") == []
    (gone,) = fabric.json("data", "prune", "--yes", "--json")
    assert gone["folder"] == copy["folder"]
    assert fabric.json("data", "list", "--json") == []
    assert "--to lots" in fabric("data", "prune", "--to", "lots", "--yes", expect=64).stderr


def test_copies_of_data_keep_to_the_limit_of_the_configuration(fabric: Fabric, serve: Serve) -> None:
    serve(str(fabric.folder / "store"))
    fabric("config", "set", "data.cache", "1MB")
    for name in ("one", "two"):
        (fabric.folder / name).mkdir()
        (fabric.folder / name / "file").write_bytes(name.encode() * 200_000)
        fabric("data", "put", name, f"served:{name}", "--create")
        fabric("run", "--quiet", "--data", f"served:{name}", "--", "wc -c <$DATA_DIR/file")

    assert [each["container"] for each in fabric.json("data", "list", "--json")] == ["two"]
    assert fabric.json("show", "@last", "--json")["recorded"]["data_cache_bytes"] == 1 << 20
    assert "a size" in fabric("config", "set", "data.cache", "lots", expect=64).stderr


def test_results_that_could_not_be_stored_are_stored_when_the_store_is_back(
    fabric: Fabric, home: Home, serve: Serve
) -> None:
    folder = fabric.folder / "store"
    (folder / "tf_training_data").mkdir(parents=True)
    store = serve(str(folder), "--port", str(free_port()))
    write_manifest(fabric)
    wait = "echo here; while [ ! -e $LOG_DIR/go ]; do sleep 0.2; done; echo late > $RESULT_DIR/model"
    job = fabric.json(
        "run", "-d", "--json", "--runner", "process", "manifest.yml", "--set", f"framework.command={wait}",
        FABRIC_STORE_PATIENCE_SECONDS="0.5",
    )  # fmt: skip
    learner = home.job(job["id"]).attempt(1).learner(1)
    until(lambda: learner.output.exists() and learner.output.read_text(), "the command to run")
    store["process"].send_signal(signal.SIGTERM)
    store["process"].wait(patience())
    (home.job(job["id"]).attempt(1).logs / "go").touch()

    ended = fabric("wait", job["id"], "--json", expect=None)
    row = fabric.json("show", job["id"], "--json")
    assert row["reason_code"] == "S303", ended
    assert "fabric store retry" in row["hint"]
    assert "still not stored" in fabric("store", "retry", job["id"], expect=75).stderr
    serve(str(folder), "--port", store["address"].rpartition(":")[2])

    document = fabric.json("store", "retry", job["id"], "--json")

    assert (document["missing_files"], document["state"]) == (0, "COMPLETED")
    mended = fabric.json("show", job["id"], "--json")
    assert (mended["state"], mended["reason_code"], mended["exit_code"]) == ("COMPLETED", "", 0)
    texts = [
        each["text"] for each in fabric.json("events", job["id"], "--json") if each["state"] == "COMPLETED"
    ]
    assert texts == ["its results are in the store after all"]
    assert json.loads((learner.path / "state.json").read_text())["reason"] is None
    assert (folder / "tf_trained_model" / job["id"] / "model").read_text() == "late\n"
    assert [path for path in home.path.rglob("*") if path.parent.name == "secrets"] == [
        home.secrets / f"{job['id']}.json"
    ]
    shutil.rmtree(folder / "tf_trained_model" / job["id"])
    shutil.rmtree(home.job(job["id"]).attempt(1).path)
    served = served_store(home)
    assert served
    os.kill(served.server, signal.SIGHUP)  # it remembers folders, and this one went behind its back
    fabric("store", "retry", job["id"])
    assert (folder / "tf_trained_model" / job["id"] / "model").read_text() == "late\n"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Server]:
    """A store whose keys change."""
    yield from serving("s3", tmp_path / "s3")


def test_results_are_stored_with_the_keys_that_a_store_has_by_then(
    fabric: Fabric, home: Home, s3: Server
) -> None:
    text = MANIFEST.replace(f"auth_url: {ALIAS}", f"auth_url: {s3.address}")
    text = text.replace("user_name: test", 'user_name: "${S3_USER}"')
    text = text.replace("password: test", 'password: "${S3_KEY}"')
    text = text.replace("cat $DATA_DIR/images;", "echo here; while [ ! -e $LOG_DIR/go ]; do sleep 0.2; done;")
    (fabric.folder / "manifest.yml").write_text(text)
    job = fabric.json(
        "run", "-d", "--json", "--runner", "process", "manifest.yml",
        S3_USER=KEY, S3_KEY=SECRET, FABRIC_STORE_PATIENCE_SECONDS="1",
    )  # fmt: skip
    learner = home.job(job["id"]).attempt(1).learner(1)
    until(lambda: learner.output.exists() and learner.output.read_text(), "the command to run")
    s3.ask_other_keys()
    (home.job(job["id"]).attempt(1).logs / "go").touch()
    fabric("wait", job["id"], expect=None)
    assert "does not accept the credentials" in fabric.json("show", job["id"], "--json")["reason"]
    fabric("store", "retry", job["id"], expect=75)

    document = fabric.json(
        "store", "retry", job["id"], "--json", S3_USER="somebody", S3_KEY="else-altogether"
    )

    assert (document["missing_files"], document["state"]) == (0, "COMPLETED")
    assert (s3.results(job["id"]) / "model").read_text() == "trained\n"


def test_what_cannot_be_stored_again_is_reported(fabric: Fabric) -> None:
    fabric("run", "--quiet", "--", "true")

    assert "has no result store" in fabric("store", "retry", "@last", expect=64).stderr


def test_a_job_that_was_never_launched_has_nothing_to_store(fabric: Fabric, serve: Serve) -> None:
    serve(str(fabric.folder / "store"))
    fabric("data", "mkbucket", "served:results")
    fabric("run", "--results", "served:results", "--set", "memory=900TB", "--", "true", expect=None)

    retried = fabric("store", "retry", "@last", expect=66)

    assert "ended before it was launched, so it has no results: The job asks for" in retried.stderr
    assert "fabric resume" in retried.stderr


def test_what_only_this_machine_has_is_refused_for_another_backend(
    fabric: Fabric, home: Home, serve: Serve
) -> None:
    store = serve(str(fabric.folder / "store"))
    box = TargetRef(backend="gpubox", type="ssh", runner="process", address="ssh://gpubox")
    connection = {"auth_url": store["address"]}
    spec = JobSpec("x", data_stores=(DataStore("a", "mount_cos", "mnist", connection=connection),))

    with pytest.raises(UsageError, match="which only this machine reaches, and the job runs on gpubox"):
        check_stores(spec, box, home, launch=False)
    with pytest.raises(UsageError, match="is a folder of this machine, and the job runs on gpubox"):
        check_folders([str(fabric.folder)], box)
    check_folders(["served:mnist", "s3://bucket"], box)
    theirs = {"auth_url": "http://127.0.0.1:1"}
    other = JobSpec("x", data_stores=(DataStore("a", "mount_cos", "mnist", connection=theirs),))
    check_stores(other, box, home, launch=True)
