"""Stores that are served on loopback, and real jobs that use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.small_disks import small_disk as small_disk
from tests.support.box import Box
from tests.support.kept_agents import lend_rclone_to_hosts
from tests.support.kept_ground import KeptGround, kept
from tests.support.kept_ground import ground as ground
from tests.support.kept_ground import kept_ground as kept_ground
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server, serving
from workbench.paths import Home
from workbench.store.db.rows import TargetRef


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Server]:
    """S3 over a folder."""
    yield from serving("s3", tmp_path / "s3")


@pytest.fixture
def box(box: Box) -> Box:
    """An SSH host that has rclone, unless it is a new one."""
    lend_rclone_to_hosts()
    return box


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
