"""What tests of clusters share: one that is there, and a namespace of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import fabric as fabric
from tests.kubernetes.health import ensure_cluster
from tests.kubernetes.space import Space, cluster_held, load_images, space_of, why_not
from tests.lanes import leave_to_soak

HELD_SECONDS = 600
"""A test may wait for the cluster this long while others do it harm, besides what it takes itself."""

SUITE = "kubernetes/test_pod_conformance.py::TestPods"
IN_PODS = (
    "test_output_is_read_from_any_offset_as_often_as_asked",
    "test_another_home_is_never_touched",
    "test_a_second_launch_starts_nothing",
    "test_a_launch_that_is_cut_off_is_made_good_by_the_next[starting]",
    "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
    "test_a_command_that_ignores_the_stop_is_killed_after_its_grace_period",
)
"""What the gate tries of the suite of all runners: what pods do in a way of their own and no other test has."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of the cluster the time to wait for it, and leave what any runner does alike to the soak."""
    leave_to_soak(items, SUITE, IN_PODS, "another pod of the shared suite; the gate has the core in pods")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(HELD_SECONDS))


@pytest.fixture
def space_labels() -> dict[str, str]:
    """Labels of the namespace; overridden by a test that wants some."""
    return {}


@pytest.fixture(autouse=True)
def whole_cluster(request: pytest.FixtureRequest) -> None:
    """See before each test that the cluster which a whole module shares can still run pods."""
    if "shared_space" in request.fixturenames and not why_not():
        ensure_cluster()


@pytest.fixture
def space(tmp_path: Path, space_labels: dict[str, str]) -> Iterator[Space]:
    """A namespace of a real cluster, with the tests' images."""
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    with cluster_held(alone=False), space_of(tmp_path, space_labels) as space:
        yield space


@pytest.fixture
def unheld_space(tmp_path: Path, space_labels: dict[str, str]) -> Iterator[Space]:
    """The same for who holds the cluster himself, alone and for moments: parts of it may be stopped then."""
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    with ExitStack() as held:
        with cluster_held(alone=False):
            space = held.enter_context(space_of(tmp_path, space_labels))
        yield space
