"""A home and its controller that several tests have in common: what is tried with them takes less than their start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import Fabric
from tests.support.real_jobs import PROCESS, Ground
from workbench.paths import Home
from workbench.store.db.rows import TargetRef


class KeptGround:
    """A ground that several tests have in common, with its controller; each leaves it without a job that runs."""

    def __init__(self, root: Path, target: TargetRef = PROCESS) -> None:
        self.root = root
        self._target = target
        self._ground: Ground | None = None

    def environment(self, environment: pytest.MonkeyPatch) -> Ground:
        """Return it, with the environment that its controller has."""
        (self.root / "run").mkdir(mode=0o700, exist_ok=True)
        for name, path in {
            "HOME": self.root,
            "FABRIC_HOME": self.root / "fabric",
            "FABRIC_CONFIG": self.root / "config.toml",
            "FABRIC_LEASES": self.root / "leases",
            "XDG_RUNTIME_DIR": self.root / "run",
        }.items():
            environment.setenv(name, str(path))
        if self._ground is None:
            self._ground = Ground(Home(self.root / "fabric"), self._target)
        return self._ground

    def fabric(self, environment: pytest.MonkeyPatch) -> Fabric:
        """Return the command line of its user, in a working folder that the tests share."""
        self.environment(environment)
        folder = self.root / "work"
        folder.mkdir(exist_ok=True)
        return Fabric(folder)

    @contextmanager
    def entered(self, environment: pytest.MonkeyPatch) -> Iterator[Ground]:
        """Give it for one test, and end what is left of its jobs then."""
        ground = self.environment(environment)
        yield ground
        ground.end_jobs()

    def close(self) -> None:
        """End it for good."""
        if self._ground is not None:
            with pytest.MonkeyPatch.context() as environment, self.entered(environment) as ground:
                pass
            ground.clean_up()


@contextmanager
def a_folder() -> Iterator[Path]:
    """Make a folder for what outlives one test, with one for leases in it."""
    folder = Path(tempfile.mkdtemp(prefix="fab-"))
    (folder / "leases").mkdir()
    (folder / "leases").chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def kept(target: Callable[[Path], TargetRef] = lambda root: PROCESS) -> Iterator[KeptGround]:
    """Make one in a folder of its own, and end it."""
    with a_folder() as root:
        made = KeptGround(root, target(root))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def kept_ground() -> Iterator[KeptGround]:
    """What the tests of a module have in common."""
    with kept() as made:
        yield made


@pytest.fixture
def ground(kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """Real jobs on this machine, in a home that other tests of the module have used."""
    with kept_ground.entered(monkeypatch) as entered:
        yield entered
