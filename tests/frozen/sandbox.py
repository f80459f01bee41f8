"""Homes and environments of their own: what is started in one is found again by its folder, and ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.frozen import unpacking
from tests.support.command import Fabric
from tests.support.processes import end_processes_that_name


@dataclass(frozen=True)
class Sandbox(Fabric):
    """Calls ``fabric`` in an environment whose folders all lie below ``root``."""

    root: Path = Path()
    path: str = ""

    @property
    def home(self) -> Path:
        """Its ``FABRIC_HOME``."""
        return self.root / "fabric"

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, **self.session}

    @property
    def session(self) -> dict[str, str]:
        """The variables of its session."""
        return {
            "PATH": self.path or f"{self.root}/bin:{os.defpath}",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.root),
            "USER": "ada",
            "LOGNAME": "ada",
            "SHELL": "/bin/sh",
            "TZ": "UTC",
            "FABRIC_HOME": str(self.home),
            "FABRIC_CONFIG": str(self.root / "config.toml"),
            "FABRIC_LEASES": str(self.root / "leases"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "FABRIC_NO_CONTROLLER": "1",
            "DOCKER_HOST": f"unix://{self.root}/no-engine.sock",
            "KUBECONFIG": str(self.root / "no-kubeconfig"),
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }

    def job(self, name: str) -> str:
        """Return the id of the only job of a name."""
        (found,) = (job["id"] for job in self.json("list", "--all", "--json") if job["name"] == name)
        return str(found)

    def learner(self, name: str, number: int = 1) -> Path:
        """Return the folder of a learner of a job's first attempt."""
        return self.home / "jobs" / self.job(name) / "attempt-1" / f"learner-{number}"


@contextmanager
def sandbox(part: str = "", *, path: str = "") -> Iterator[Sandbox]:
    """Give a home, unpacked or empty; nothing is left of it. ``ROOT`` in ``path`` is its folder."""
    root = unpacking.new_root()
    for name, mode in (("run", 0o700), ("leases", 0o1777), ("work", 0o700)):
        (root / name).mkdir()
        (root / name).chmod(mode)
    if part:
        unpacking.unpack(part, root)
    try:
        yield Sandbox(root / "work", root=root, path=path.replace("ROOT", str(root)))
    finally:
        end_processes(root)
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def only(box: Sandbox) -> Iterator[None]:
    """Have a sandbox's variables alone in the environment: those that jobs record, too."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(box.session)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def end_processes(root: Path) -> None:
    """Kill what was started with a folder in its environment or its words, ourselves and our parents left out."""
    end_processes_that_name(str(root))
