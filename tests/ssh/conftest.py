"""What tests over SSH share: a home for a host that several use, a host with next to nothing, and the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from backends.contract.host import Host
from tests.ssh.bare import bare_root, with_processes
from tests.support.box import Box, known
from tests.support.command import Fabric
from tests.support.kept_agents import lend_agents
from tests.support.kept_ground import KeptGround, a_folder
from tests.support.processes import end_everything
from tests.support.sshd import Daemon, a_user, why_not
from workbench.paths import Home
from workbench.store.db.rows import TargetRef


@pytest.fixture(scope="module")
def kept_ground(kept_box: Box) -> Iterator[KeptGround]:
    """A home and a controller for them, whose jobs run there."""
    made = KeptGround(kept_box.folder, TargetRef("box", "ssh", "process", address=kept_box.address))
    yield made
    made.close()


@contextmanager
def a_bare_box(folder: Path) -> Iterator[tuple[Box, Path]]:
    """Start a host with nothing but busybox; give it, and where its root is."""
    folder.chmod(0o755)
    with a_user("/bin/sh") as user, bare_root(user) as root:
        daemon = Daemon(
            folder / "bare-sshd", settings=[f"ChrootDirectory {root}"], within=with_processes(root)
        )
        with daemon:
            yield known(daemon, user, folder), root


@pytest.fixture
def bare(clean_environment: Path) -> Iterator[tuple[Box, Path]]:
    """A host with nothing but busybox, and where its root is."""
    if reason := why_not():
        pytest.skip(reason)
    with a_bare_box(clean_environment) as made:
        yield made


@pytest.fixture(scope="class")
def class_bare() -> Iterator[tuple[Box, Path]]:
    """One such host for all tests of a class, which leave it as they found it."""
    if reason := why_not():
        pytest.skip(reason)
    with a_folder() as folder, a_bare_box(folder) as made:
        yield made


@pytest.fixture(scope="class")
def class_bare_host(class_bare: tuple[Box, Path]) -> Iterator[Host]:
    """That host, open; each test uses it with a home of its own."""
    with closing(class_bare[0].apart().open()) as host:
        yield host


@pytest.fixture
def fabric(request: pytest.FixtureRequest, clean_environment: Path, home: Home) -> Iterator[Fabric]:
    """The command line, with a working folder, beside a host."""
    request.getfixturevalue("bare" if "bare" in request.fixturenames else "box")
    folder = clean_environment / "work"
    folder.mkdir()
    lend_agents(home)
    yield Fabric(folder)
    end_everything(home)
