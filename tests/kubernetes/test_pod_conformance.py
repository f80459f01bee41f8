"""The pod runner keeps the promises of all runners, on a real cluster, as a user of a namespace.

A pod takes seconds, so the gate tries only what pods do in a way of their own (see ``conftest``), and the soak all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import pytest

from backends.contract.host import Cluster, Host
from runners.conformance.suite import RunnerContract
from runners.interface import LearnerRef
from runners.pod.runner import PodRunner
from tests.kubernetes.images import DEBIAN
from tests.kubernetes.space import Space, cluster_held, load_images, space_of, why_not

OPTIONS: Final = {
    "default_memory": "200Mi",
    "journal_hold_seconds": "3",
    "results_hold_seconds": "10",
    "gang_seconds": "60",
}


@pytest.fixture(scope="module")
def shared_space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    with cluster_held(alone=False), space_of(tmp_path_factory.mktemp("space")) as space:
        yield space


class TestPods(RunnerContract):
    runner_class = PodRunner
    image = DEBIAN
    left_out: ClassVar[Mapping[str, str]] = {
        "test_learners_know_who_they_are_and_share_a_folder": "/job is shared on a ReadWriteMany claim alone",
        "test_all_learners_must_end_when_all_are_asked_for": "its learners wait for each other by a shared folder",
    }

    @pytest.fixture
    def connection(self, shared_space: Space) -> Iterator[Host | Cluster]:
        cluster = shared_space.backend(**OPTIONS).open()
        yield cluster
        cluster.close()

    def kill_agent(self, connection: Host | Cluster, learner: LearnerRef) -> None:
        assert isinstance(connection, Cluster)
        name = next(
            one["metadata"]["name"]
            for one in connection.list("Pod", f"fabric.home={learner.home},fabric.job={learner.job_id}").items
        )
        script = (
            "for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || case $(tr '\\0' ' ' <$p/cmdline) in"
            " *' guard '*) kill -9 ${p#/proc/} ;; esac; done"
        )
        connection.exec(name, "learner", ["sh", "-c", script]).wait()
