"""The pod runner keeps the promises of all runners, on a real cluster, as a user of a namespace.

A pod takes seconds, so the gate tries only what pods do in a way of their own (see ``conftest``), and the soak all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final

import pytest

from backends.contract.host import Cluster, Host, HostGroup
from runners.conformance.base import MakeJob
from runners.conformance.suite import RunnerContract
from runners.interface import LearnerRef
from runners.pod.runner import PodRunner
from tests.support.cluster import Space, cluster_held, load_images, space_of, why_not
from tests.support.pod_images import DEBIAN

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


IN_PODS: Final = (
    "test_output_is_read_from_any_offset_as_often_as_asked",
    "test_another_home_is_never_touched",
    "test_a_rule_stops_the_job_for_what_it_reports",
    "test_a_second_launch_starts_nothing",
    "test_a_launch_that_is_cut_off_is_made_good_by_the_next[starting]",
    "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
    "test_a_command_that_ignores_the_stop_is_killed_after_its_grace_period",
)
"""What the gate tries of the suite of all runners: what pods do in a way of their own and no other test has."""


class TestPods(RunnerContract):
    in_gate: ClassVar[Collection[str]] = IN_PODS
    why_soak: ClassVar[str] = "another pod of the shared suite; the gate has the core in pods"
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

    @pytest.fixture(autouse=True)
    def _leave_jobs(self, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Leave jobs to the namespace, which goes in the end: to remove each takes seconds."""
        yield
        monkeypatch.setattr(PodRunner, "remove", lambda *_: None)

    def kill_agent(self, connection: Host | Cluster | HostGroup, learner: LearnerRef) -> None:
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
