"""The real command in real processes, as a user calls it, and what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import environment_of, make_folder
from tests.support.forked import FORKS
from tests.support.kept_agents import lend_agents
from tests.support.ports import free_port
from tests.support.processes import end_everything
from tests.support.waiting import LIMIT_SECONDS, ended, patience, until
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.experiments import resolve_experiment
from workbench.store.queries.resolve import resolve

Serve = Callable[..., dict[str, Any]]
"""Starts ``fabric store serve`` with some words, and returns what it says of itself, with its ``process``."""

EXECUTABLE = Path(sys.executable).with_name("fabric")
DEADLINE_SECONDS = 150.0
WAITS = 'trap "exit 0" TERM; echo started; while :; do sleep 0.2; done'
"""A command that goes on until it is asked to stop."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Calls ``fabric`` as a user does, in ``folder``."""

    folder: Path
    environment: Mapping[str, str] | None = None
    """The variables of its commands; None stands for this process's."""

    def within(self, folder: Path) -> Fabric:
        """Return the command line of the same home in another folder, which is made."""
        folder.mkdir(exist_ok=True)
        return Fabric(folder, self.environment)

    def entered(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Fabric:
        """Return the same in another folder, and have what a test starts itself find the same home, too."""
        for name, value in self.variables.items():
            monkeypatch.setenv(name, value)
        folder.mkdir(exist_ok=True)
        return Fabric(folder)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of its commands."""
        return dict(os.environ if self.environment is None else self.environment)

    @property
    def jobs_home(self) -> Home:
        """Where its jobs are."""
        return Home(Path(self.variables["FABRIC_HOME"]))

    @property
    def config_file(self) -> Path:
        """The user's configuration."""
        return Path(self.variables["FABRIC_CONFIG"])

    def __call__(
        self, *args: str, input: str | None = None, expect: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        argv, environment = [str(EXECUTABLE), *args], {**self.variables, **env}
        if FORKS.can_run(environment):
            ran = FORKS.run(
                argv, cwd=self.folder, env=environment, input=input, timeout=patience(DEADLINE_SECONDS)
            )
        else:
            ran = subprocess.run(
                argv,
                input=input,
                stdin=subprocess.DEVNULL if input is None else None,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                cwd=self.folder,
                env=environment,
                timeout=patience(DEADLINE_SECONDS),
            )
        if expect is not None:
            transcript = f"{args}: {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
            assert ran.returncode == expect, transcript
        assert "Traceback" not in ran.stderr
        if "--json" in args and ran.stdout:
            from tests.support.schemas import check_printed

            check_printed(ran.stdout)
        return ran

    def json(self, *args: str, expect: int | None = 0, **env: str) -> Any:
        """Return the one document that a command prints."""
        return json.loads(self(*args, expect=expect, **env).stdout)

    def start(self, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command and return at once; stdout and stderr are pipes unless the options say otherwise."""
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        return subprocess.Popen([EXECUTABLE, *args], cwd=self.folder, **{"env": self.variables, **streams})


@pytest.fixture
def fabric(request: pytest.FixtureRequest, clean_environment: Path, home: Home) -> Iterator[Fabric]:
    """The command line, in a working folder; a test about the making of a home is marked ``unmade_home``."""
    folder = clean_environment / "work"
    folder.mkdir()
    if not request.node.get_closest_marker("unmade_home"):
        lend_agents(home)
    yield Fabric(folder)
    end_everything(home)


@pytest.fixture(scope="module")
def module_fabric() -> Iterator[Fabric]:
    """A home that tests of a module have in common, where each looks at jobs of its own alone."""
    with shared_fabric() as fabric:
        yield fabric


@pytest.fixture
def separate_fabric() -> Iterator[Fabric]:
    """In a module with such a home another one, for a test that lists all jobs or changes the configuration."""
    with shared_fabric() as fabric:
        yield fabric


@pytest.fixture
def serve(fabric: Fabric, home: Home) -> Iterator[Serve]:
    from workbench.data.stores.rclone import find_rclone
    from workbench.errors import FabricError

    try:
        find_rclone()
    except FabricError as error:
        pytest.skip(f"{error}")
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> dict[str, Any]:
        # The usual port is another test's as soon as this server ends.
        port = () if "--port" in args else ("--port", str(free_port()))
        server = fabric.start("store", "serve", *args, *port, "--json")
        started.append(server)
        assert server.stdout is not None
        greeting = json.loads(server.stdout.readline())
        assert isinstance(greeting, dict)
        return {**greeting, "process": server}

    yield start
    for server in started:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        code = ended(server)
        for stream in (server.stdout, server.stderr):
            if stream:
                stream.close()
        assert code == 0


@contextlib.contextmanager
def shared_fabric(variables: Mapping[str, str] | None = None) -> Iterator[Fabric]:
    """The command line for several tests of a module, with a home that they have in common, and further variables."""
    root = make_folder()
    try:
        yield Fabric(root / "work", {**environment_of(root), **(variables or {})})
    finally:
        end_everything(Home(root / "fabric"))
        shutil.rmtree(root, ignore_errors=True)


def until_runs(fabric: Fabric, job: str = "@last") -> None:
    """Wait until a job runs: a command looks first, which starts a controller where none is, then we do.

    Each look of a command takes ten times as long as one into the store.
    """
    if fabric.json("show", job, "--json")["state"] != State.PROCESSING:
        with Store.open(fabric.jobs_home) as store:
            until(
                lambda: resolve(store, job).state is State.PROCESSING,
                lambda: f"the job to run: it is {resolve(store, job).state}: {resolve(store, job).reason}",
            )


def until_search_is(fabric: Fabric, search: str, *states: str, seconds: float = LIMIT_SECONDS) -> None:
    """Wait until a search is in one of some states; the store is read as for :func:`until_runs`."""

    def state() -> str:
        return resolve_experiment(store, search).state

    with Store.open(fabric.jobs_home) as store:
        until(lambda: state() in states, lambda: f"{search} to be {states}; it is {state()}", seconds=seconds)


def lines_of(text: str) -> Sequence[str]:
    """Return the lines of an output, without blanks at their ends."""
    return [line.rstrip() for line in text.splitlines()]
