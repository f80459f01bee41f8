"""The agent's archive, built, unpacked and compiled once in a test process: each new folder of agents costs 0.3 s."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sshd import User
from workbench.learner.boot import archive
from workbench.learner.host.remote_loader import machine_id
from workbench.paths import Home
from workbench.store.db.database import home_uuid

_folders: list[Path] = []
_of_hosts: list[Path] = []


@pytest.fixture(scope="session", autouse=True)
def agents_removed() -> Iterator[None]:
    """Remove the folders of agents with the last test."""
    yield
    while folders := _folders or _of_hosts:
        shutil.rmtree(folders.pop(), ignore_errors=True)


def agents_folder() -> Path:
    """Return the folder of agents that all tests of this process have in common; it is made with the first."""
    if not _folders:
        _folders.append(Path(tempfile.mkdtemp(prefix="fab-agents-")))
        _folders[-1].chmod(0o755)
    return _folders[-1]


def agent() -> str:
    """Return the path of the agent's archive."""
    return archive.build(str(agents_folder()))


def lend_agents(home: Home) -> Home:
    """Give a home that has no agents yet the common folder of agents."""
    home.path.mkdir(parents=True, mode=0o700, exist_ok=True)
    if not home.agents.exists():
        home.agents.symlink_to(agents_folder())
    return home


def agents_of_hosts() -> Path:
    """Return the folder of agents that all hosts of this process have in common; it is made with the first.

    Any user of a host reads it, and keeps in it what Python compiles: the first one does that for all.
    """
    if not _of_hosts:
        made = Path(tempfile.mkdtemp(prefix="fab-agents-"))
        made.chmod(0o755)
        unpacked = Path(archive.build(str(made))).with_suffix("")
        for path in (unpacked, *unpacked.rglob("*")):
            path.chmod(path.stat().st_mode | 0o444)
        for folder in [path for path in (unpacked, *unpacked.rglob("*")) if path.is_dir()]:
            folder.chmod(0o755)
            (folder / "__pycache__").mkdir()
            (folder / "__pycache__").chmod(0o1777)
        _of_hosts.append(made)
    return _of_hosts[-1]


def lend_rclone_to_hosts() -> None:
    """Have all of these hosts got rclone, as a job with a data store leaves it there: it is 80 MB."""
    from runners.shared.store_setup import local_rclone

    source, sha256 = local_rclone()
    path = agents_of_hosts() / f"rclone-{sha256}"
    if not path.exists():
        part = path.with_suffix(".part")
        shutil.copy(source, part)
        part.chmod(0o755)
        part.rename(path)


def lend_agents_to(user: User, home: Home) -> None:
    """Give a home its agents, and a user at a host those of that home, as its first arrival there leaves them.

    To bring the agent there, and to compile it, costs 0.3 s of each new user; tests of arriving pay that.
    """
    lend_agents(home)
    folder = user.home
    for name in (".fabric", machine_id(), home_uuid(home)):
        folder /= name
        if not folder.exists():
            folder.mkdir(mode=0o700)
            user.owns(folder)
    if not (folder / "agents").exists():
        (folder / "agents").symlink_to(agents_of_hosts())
