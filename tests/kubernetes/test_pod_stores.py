"""Data stores of pods: data before the command starts, results in the store while it runs and when it ended."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.conftest import Fabric, wait_until
from tests.kubernetes.jobs import Pods, configure
from tests.kubernetes.space import Space
from tests.stores.servers import KEY, SECRET, Server, serving

HOST: Final = os.environ.get("FABRIC_TEST_STORE_HOST", "")
"""An address of this machine that pods reach; found where the node is this machine."""


@pytest.fixture
def pods(fabric: Fabric, space: Space) -> Iterator[Pods]:
    configure(space)
    yield Pods(fabric, space)


@pytest.fixture
def s3(tmp_path: Path, space: Space) -> Iterator[Server]:
    """S3 over a folder, for pods to reach."""
    yield from serving("s3", tmp_path / "s3", host=_host(space))


def _host(space: Space) -> str:
    nodes = space.admin.list("Node").items
    told = [one["address"] for node in nodes for one in node["status"]["addresses"]]
    for address in (HOST, *told):
        with socket.socket() as one:
            try:
                one.bind((address, 0))
            except OSError:
                continue
            if address:
                return str(address)
    pytest.skip("no address of this machine is known that pods reach: set FABRIC_TEST_STORE_HOST")


def manifest(pods: Pods, s3: Server, command: str, **keys: Any) -> str:
    """Write a manifest with FfDL's two containers in the store, and return its path."""
    store = s3.store()
    document: Mapping[str, Any] = {
        "name": "stores",
        "data_stores": [
            {
                "id": store.id,
                "type": store.type,
                "training_data": {"container": store.training_data},
                "training_results": {"container": store.training_results},
                "connection": dict(store.connection),
            }
        ],
        "framework": {"name": "custom", "version": "x", "command": command},
        **keys,
    }
    path = pods.fabric.folder / "manifest.yml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def states(pods: Pods, job: str) -> list[str]:
    """Return the states that a job went through."""
    events = pods.fabric.json("events", job, "--json")
    return [str(told["state"]) for told in events if told.get("state")]


def test_data_is_there_when_the_command_starts_and_results_are_in_the_store_when_it_ended(
    pods: Pods, s3: Server
) -> None:
    command = (
        "find $DATA_DIR -type f | sort; cat $DATA_DIR/train.txt;"
        " echo model >$RESULT_DIR/model.bin; echo c >$CHECKPOINT_DIR/c"
    )

    ran = pods.run(manifest(pods, s3, command))

    assert ran.stdout.splitlines() == [
        "/mnt/data/tf_training_data/sub/more.txt",
        "/mnt/data/tf_training_data/train.txt",
        "one",
        "two",
    ]
    results = s3.results(pods.show()["id"])
    assert (results / "model.bin").read_text() == "model\n"
    assert (results / "_checkpoints" / "c").read_text() == "c\n"
    assert (results / "learner-1" / "output.log").read_text() == ran.stdout


def test_a_job_is_seen_to_bring_data_in_and_to_store_results_and_its_failure_is_told_all_the_same(
    pods: Pods, s3: Server
) -> None:
    with (s3.folder / "tf_training_data" / "large.bin").open("wb") as file:
        file.truncate(40_000_000)
    command = "echo model >$RESULT_DIR/model.bin; head -c 40000000 /dev/zero >$RESULT_DIR/large; exit 3"

    pods.run(manifest(pods, s3, command), expect=3)

    job = pods.show()["id"]
    assert states(pods, job)[-4:] == ["DOWNLOADING", "PROCESSING", "STORING", "FAILED"]
    assert pods.show()["reason_code"] == "C201"
    assert (s3.results(job) / "large").stat().st_size == 40_000_000
    records = (s3.results(job) / "learner-1" / "records.jsonl").read_text()
    assert "brings in tf_training_data" in records


def test_new_results_and_output_go_up_while_it_runs_and_all_of_it_when_it_is_halted(
    pods: Pods, s3: Server
) -> None:
    command = "echo said; echo model >$RESULT_DIR/model.bin; sleep 600"
    job = pods.start(manifest(pods, s3, command, upload_seconds=0.3))
    results = s3.results(job)

    wait_until((results / "model.bin").exists, "the results to be stored", 60)
    wait_until((results / "learner-1" / "output.log").exists, "the output to be stored", 60)

    assert pods.show(job)["state"] == "PROCESSING"
    pods.fabric("halt", job)
    pods.until_state(job, "HALTED")
    assert "STORING" in states(pods, job)
    assert (results / "learner-1" / "output.log").read_text() == "said\n"
    assert json.loads((results / "learner-1" / "attempt.json").read_text())["stopped"] == "halt"


def test_a_halted_job_goes_on_in_another_pod_from_its_checkpoint(pods: Pods, s3: Server) -> None:
    command = (
        "trap 'exit 0' TERM; n=$(cat $CHECKPOINT_DIR/n 2>/dev/null || echo 0); echo from $n; cat $RESULT_DIR/r;"
        " echo $((n + 1)) >$CHECKPOINT_DIR/n; echo kept >$RESULT_DIR/r; [ $n = 1 ] || while :; do sleep 0.1; done"
    )
    job = pods.start(manifest(pods, s3, command))
    pods.until(job, lambda _: "from 0" in pods.fabric("logs", job).stdout, "the job to print")
    pods.fabric("halt", job)
    pods.until_state(job, "HALTED")

    pods.fabric("resume", job)

    assert pods.wait(job)["state"] == "COMPLETED"
    assert "from 1\nkept\n" in pods.fabric("logs", job).stdout


def test_what_cannot_be_had_or_written_is_said_before_the_command_starts(pods: Pods, s3: Server) -> None:
    path = manifest(pods, s3, "echo ran")

    ran = pods.run("--set", "data_stores.0.training_data.container=nothing", path, expect=None)

    shown = pods.show()
    assert (shown["state"], shown["reason_code"]) == ("FAILED", "C103")
    assert "tf_training_data" in shown["reason"]
    assert "ran" not in ran.stdout


def test_mounting_and_folders_of_a_machine_are_refused_in_a_sentence(pods: Pods, s3: Server) -> None:
    path = manifest(pods, s3, "true")

    mounted = pods.run("--set", "data_stores.0.mount=true", path, expect=None)
    folder = pods.run(
        *("--set", "data_stores.0.type=host_path", "--set", "data_stores.0.connection={path: /tmp}"),
        path,
        expect=None,
    )

    assert mounted.returncode and folder.returncode
    assert "cannot be mounted in a pod" in mounted.stderr
    assert "is a folder of a machine" in folder.stderr
    assert pods.objects() == []


def test_credentials_are_in_no_pod_event_log_or_plan(pods: Pods, s3: Server) -> None:
    path = manifest(pods, s3, "cat manifest.yml; env; cat /proc/*/environ 2>/dev/null; echo done")
    planned = pods.fabric("plan", "--backend", "cluster", "--image", "busybox", path).stdout

    ran = pods.run(path)

    said = [planned, ran.stdout, ran.stderr]
    for kind in ("Job", "Pod", "Service", "Event"):
        said += [json.dumps(dict(one)) for one in pods.space.admin.list(kind).items]
    for pod in pods.pods():
        name = pod["metadata"]["name"]
        said += [pods.log(name, container).decode() for container in ("prepare", "journal", "learner")]
    job = pods.show()["id"]
    said += [
        path.read_text(errors="replace")
        for path in (s3.results(job) / "learner-1").rglob("*")
        if path.is_file()
    ]
    assert "done" in ran.stdout
    assert [text for text in said if KEY in text or SECRET in text] == []
    assert [text for text in said if "canary" in text] == []
