"""What tests of clusters share: one that is there, and a namespace of it for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import fabric as fabric
from tests.kubernetes.health import ensure_cluster
from tests.kubernetes.jobs import Pods, pods_of
from tests.kubernetes.space import Space, cluster_held, load_images, space_of, why_not

HELD_SECONDS = 600
"""A test may wait for the cluster this long while others do it harm, besides what it takes itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of the cluster the time to wait for it."""
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
    if {"shared_space", "shared_pods"} & set(request.fixturenames) and not why_not():
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


@pytest.fixture(scope="class")
def shared_pods() -> Iterator[Pods]:
    """A namespace, a home and a configuration for the jobs that all tests of a class look at."""
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    root = Path(tempfile.mkdtemp(prefix="fab-"))
    try:
        with pods_of(root) as pods:
            yield pods
    finally:
        shutil.rmtree(root, ignore_errors=True)
