"""What tests of clusters share: one that is there, and a namespace of it for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.jobs import Pods, pods_of
from tests.support.cluster import load_images, why_not
from tests.support.cluster_health import ensure_cluster

HELD_SECONDS = 600
"""A test may wait for the cluster this long while others do it harm, besides what it takes itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of the cluster the time to wait for it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(HELD_SECONDS))


@pytest.fixture(autouse=True)
def whole_cluster(request: pytest.FixtureRequest) -> None:
    """See before each test that the cluster which a whole module shares can still run pods."""
    if {"shared_space", "shared_pods"} & set(request.fixturenames) and not why_not():
        ensure_cluster()


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
