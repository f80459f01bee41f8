"""The pod runner keeps the promises of all runners, on a real cluster, as a user of a namespace.

A pod takes seconds, so only what pods do in a way of their own is tried each time; ``FABRIC_TEST_PODS=all`` tries all.
"""

from __future__ import annotations

import os
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


EACH_TIME: Final = frozenset(
    {
        "test_a_second_launch_starts_nothing",
        "test_a_launch_that_is_cut_off_is_made_good_by_the_next",
        "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
        "test_a_command_that_ignores_the_stop_is_killed_after_its_grace_period",
        "test_a_learner_whose_agent_was_killed_ends_with_a_reason",
        "test_output_is_read_from_any_offset_as_often_as_asked",
        "test_the_first_exit_decides_and_the_others_are_stopped_without_blame",
        "test_another_home_is_never_touched",
        "test_files_come_out_of_a_learner_and_go_into_it",
    }
)

if os.environ.get("FABRIC_TEST_PODS") != "all":
    for _name in dir(TestPods):
        if _name.startswith("test_") and _name not in EACH_TIME:
            setattr(TestPods, _name, None)
