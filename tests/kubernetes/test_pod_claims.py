"""Results on a claim of the place: they outlive the pods, and learners share their folder of state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.jobs import Pods, configure
from tests.kubernetes.stores import claim_of
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.paths import Home


@pytest.fixture
def claim(space: Space) -> Iterator[str]:
    """A claim that is bound to a folder of the node, which tests run on."""
    with claim_of(space, "results"):
        yield "results"


def test_learners_share_their_folder_and_results_come_home_after_the_pods_have_ended(
    fabric: Fabric, space: Space, claim: str, home: Home
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
