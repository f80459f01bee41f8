"""Files out of pods and into them, while they run and afterwards, with and without Python in the image."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX, DEBIAN
from tests.support.waiting import until

MAKE = (
    "mkdir -p deep $RESULT_DIR/model; echo own > deep/file; echo 0.5 > $RESULT_DIR/model/loss; echo in > $HOME/more;"
    " ln -s loss $RESULT_DIR/model/latest; echo read > $DATA_DIR/input; echo ready;"
    " while [ ! -e go ]; do sleep 0.2; done"
)


@pytest.fixture
def pods(fabric: Fabric, space: Space) -> Iterator[Pods]:
    configure(space)
    yield Pods(fabric, space)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX], ids=["debian", "busybox"])
def test_files_come_out_of_a_pod_and_go_into_it_while_it_runs_and_results_afterwards(
    pods: Pods, image: str
) -> None:
    here = pods.fabric.folder
    job = pods.start("--", "sh", "-c", MAKE, image=image)
    (here / "weights.bin").write_bytes(os.urandom(3_000_000))
    pods.until_printed(job, "ready")

    listed = pods.fabric.json("files", job, "results", "--json")["files"]
    assert {(one["path"], one["kind"]) for one in listed} >= {
        ("results/model/loss", "file"),
        ("results/model/latest", "link"),
    }
    assert pods.fabric("cp", f"{job}:deep/file", "-").stdout == "own\n"
    assert pods.fabric("cp", f"{job}:data/input", "-").stdout == "read\n"
    assert pods.fabric("cp", f"{job}:/.fabric/journal/home/more", "-").stdout == "in\n"
    assert "no results/nothing" in pods.fabric("cp", f"{job}:results/nothing", ".", expect=66).stderr
    pods.fabric("cp", "weights.bin", f"{job}:checkpoints/weights.bin")
    pods.fabric("cp", f"{job}:checkpoints/weights.bin", "back.bin")
    assert digest(here / "back.bin") == digest(here / "weights.bin")
    pods.fabric("cp", f"{job}:results", "out")
    assert (here / "out" / "model" / "loss").read_text() == "0.5\n"
    assert str((here / "out" / "model" / "latest").readlink()) == "loss"

    pods.fabric("cp", "weights.bin", f"{job}:code/go")
    assert pods.wait(job)["state"] == "COMPLETED"

    if image == DEBIAN:  # nothing brings results home from an image without Python
        assert pods.fabric("cp", f"{job}:results/model/loss", "-").stdout == "0.5\n"
        assert "results/model/loss" in pods.fabric("files", job).stdout
    until(
        lambda: pods.pods()[0]["status"]["phase"] == "Succeeded", "the pod to end", every=IN_CLUSTER_SECONDS
    )
    assert "the learner's pod is not running" in pods.fabric("cp", f"{job}:deep/file", "-", expect=69).stderr


def test_without_the_right_to_exec_files_are_refused_with_the_role_to_ask_for(pods: Pods) -> None:
    pods.space.take_rights("pods/exec")
    job = pods.start("--", "sh", "-c", "echo ready; sleep 100")
    pods.until_state(job, "PROCESSING")

    message = pods.fabric("cp", f"{job}:results", "out", expect=77).stderr

    assert "may not" in message and "pods/exec" in message
    assert "fabric backend role" in message
    pods.fabric("kill", job)
    pods.until_state(job, "HALTED")
