"""The same promises on podman's socket, as on Docker's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.interface import Host
from backends.local_host import LocalHost
from tests.containers.images import DEBIAN, USER, ensure_images
from tests.containers.podman import roots_podman, served, why_no_podman
from tests.containers.test_container_conformance import ContainerContract
from workbench.paths import Home


@pytest.fixture(scope="module")
def podman() -> Iterator[str]:
    """Root's podman, with the images."""
    if reason := why_no_podman():
        pytest.skip(reason)
    ensure_images()
    engine = roots_podman()
    engine.load(DEBIAN, USER)
    with served(engine) as address:
        yield address


class TestOnPodman(ContainerContract):
    @pytest.fixture(autouse=True)
    def _engine(self) -> None:
        """Docker's is not needed."""

    @pytest.fixture
    def place(self, home: Home, podman: str) -> Iterator[Host]:
        place = LocalHost(home, engine=podman)
        yield place
        place.close()
