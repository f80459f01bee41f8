"""``fabric`` as a user calls it, in a process that was forked where all of it is imported already."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.conftest import DEADLINE_SECONDS, EXECUTABLE, Fabric
from tests.conftest import KEPT, KEPT_PREFIXES
from tests.containers.fork_server import ForkServer
from tests.schemas import check_printed
from tests.waiting import patience
from workbench.paths import Home


@dataclass(frozen=True, slots=True)
class ForkedFabric(Fabric):
    """Calls ``fabric`` in ``folder``."""

    server: ForkServer
    environment: Mapping[str, str] | None = None
    """Of its commands; None stands for this process's."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its commands."""
        return dict(os.environ if self.environment is None else self.environment)

    @property
    def home(self) -> Home:
        """Where its jobs are."""
        return Home(Path(self.variables["FABRIC_HOME"]))

    @property
    def config(self) -> Path:
        """The user's configuration."""
        return Path(self.variables["FABRIC_CONFIG"])

    def __call__(
        self, *words: str, input: str | None = None, expect: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        ran = self.server.run(
            words,
            folder=self.folder,
            environment={**self.variables, **env},
            input=input,
            timeout=patience(DEADLINE_SECONDS),
        )
        if expect is not None:
            said = f"{words}: {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
            assert ran.returncode == expect, said
        assert "Traceback" not in ran.stderr
        if "--json" in words and ran.stdout:
            check_printed(ran.stdout)
        return ran

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command and return at once; stdout and stderr are pipes unless told otherwise."""
        told = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([EXECUTABLE, *words], cwd=self.folder, env=self.variables, **told)


def environment_of(root: Path) -> dict[str, str]:
    """Make a folder what ``clean_environment`` gives one test, for jobs of several tests; return its variables."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)
    }
    (root / "run").mkdir(mode=0o700)
    (root / "leases").mkdir(mode=0o1777)
    (root / "work").mkdir()
    return {
        **kept,
        "HOME": str(root),
        "FABRIC_HOME": str(root / "fabric"),
        "FABRIC_CONFIG": str(root / "config.toml"),
        "FABRIC_LEASES": str(root / "leases"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "FABRIC_NO_CONTROLLER": "1",
        "DOCKER_HOST": f"unix://{root}/no-engine.sock",
    }
