"""Results on a claim of the place: they outlive the pods, and learners share their folder of state."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.forked import ForkedFabric
from tests.kubernetes.jobs import Pods, configure
from tests.kubernetes.space import Space
from tests.waiting import until
from workbench.paths import Home


@pytest.fixture
def claim(space: Space) -> Iterator[str]:
    """A claim that is bound to a folder of the node, which tests run on."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-claim-", dir="/var/tmp"))
    folder.chmod(0o777)
    name = f"fabric-{space.namespace}"
    common: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    bound = {"claimRef": {"namespace": space.namespace, "name": "results"}}
    volume = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}, **bound, **common}
    asked = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name, **common}
    kinds = (("PersistentVolume", name, volume), ("PersistentVolumeClaim", "results", asked))
    for kind, named, spec in kinds:
        space.admin.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": named}, "spec": spec})
    until(
        lambda: (
            (space.admin.read("PersistentVolumeClaim", "results") or {})["status"].get("phase") == "Bound"
        ),
        "the claim to be bound",
    )
    yield "results"
    space.admin.delete("PersistentVolume", name)
    shutil.rmtree(folder, ignore_errors=True)


def test_learners_share_their_folder_and_results_come_home_after_the_pods_have_ended(
    fabric: ForkedFabric, space: Space, claim: str, home: Home
) -> None:
    configure(space, claim=claim)
    pods = Pods(fabric, space)
    command = (
        "echo $LEARNER_ID > $RESULT_DIR/r$LEARNER_ID; touch $JOB_STATE_DIR/s$LEARNER_ID;"
        " while [ ! -e $JOB_STATE_DIR/s1 ] || [ ! -e $JOB_STATE_DIR/s2 ]; do sleep 0.1; done"
    )

    started = pods.run("-d", "--set", "learners=2", "--set", "ends_when=all", "--", "sh", "-c", command)
    job = str(started.stdout).split()[-1]  # nothing is lost here, so no consent is asked for
    until(lambda: len(pods.pods()) == 2, "the pods to be made")
    fabric("controller", "stop")
    until(
        lambda: [pod["status"]["phase"] for pod in pods.pods()] == ["Succeeded"] * 2,
        "the pods to end",
        seconds=90,
    )

    assert pods.wait(job)["state"] == "COMPLETED"

    assert sorted(path.name for path in home.job(job).results.iterdir()) == ["r1", "r2"]
