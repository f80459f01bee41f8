"""Stores that are served on loopback, and real jobs that use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.conftest import engine as engine
from tests.controller.real import Ground
from tests.ssh.conftest import box as box
from tests.ssh.conftest import box_environment as box_environment
from tests.ssh.conftest import box_home as box_home
from tests.ssh.conftest import box_program as box_program
from tests.ssh.conftest import box_settings as box_settings
from tests.ssh.conftest import box_within as box_within
from tests.ssh.kept import KeptGround, kept
from tests.ssh.kept import ground as ground
from tests.ssh.kept import kept_ground as kept_ground
from tests.stores.servers import Server, serving
from tests.stores.small_disks import SmallDisk, small_disks
from workbench.paths import Home
from workbench.store.db.rows import TargetRef


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Server]:
    """S3 over a folder."""
    yield from serving("s3", tmp_path / "s3")


@pytest.fixture(scope="module")
def kept_containers() -> Iterator[KeptGround]:
    """What tests of containers in a module have in common."""
    with kept(lambda root: TargetRef(backend="local", type="local", runner="container")) as made:
        yield made


@pytest.fixture
def containers(
    engine: None, kept_containers: KeptGround, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """Real jobs in containers of this machine, in a home that other tests of the module have used."""
    with kept_containers.entered(monkeypatch) as entered:
        yield entered


@pytest.fixture
def own_containers(engine: None, home: Home) -> Iterator[Ground]:
    """Real jobs in containers of this machine, in a home of the test's own."""
    made = Ground(home, TargetRef(backend="local", type="local", runner="container"))
    yield made
    made.clean_up()


@pytest.fixture
def own_ground(home: Home) -> Iterator[Ground]:
    """Real jobs on this machine, in a home of the test's own."""
    made = Ground(home)
    yield made
    made.clean_up()


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """Puts small disks at paths."""
    with small_disks() as made:
        yield made
