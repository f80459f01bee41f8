"""The agent's archive, built, unpacked and compiled once in a test process: each new folder of agents costs 0.3 s."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.learner.boot import archive
from workbench.paths import Home

_folders: list[Path] = []


@pytest.fixture(scope="session", autouse=True)
def agents_removed() -> Iterator[None]:
    """Remove the folder of agents with the last test."""
    yield
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)


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
