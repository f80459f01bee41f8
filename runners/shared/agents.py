"""The two agents that a process job can have: in Python, and in POSIX shell where there is no Python."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from backends.contract.errors import translated
from backends.contract.host import Host
from runners.shared.host_facts import HostFacts
from workbench.errors import LaunchRefused
from workbench.paths import Home, LearnerFolder, default_home

AgentKind = Literal["python", "sh"]

_bringing = threading.Lock()  # building is for one thread at a time

FORCED: Final = "FABRIC_AGENT"
"""Set to ``sh`` it hides Python from the runner, for tests."""


class Agent(ABC):
    """An agent that is at the place, ready to be started."""

    secrets_suffix: ClassVar[str]
    """What the name of a file of secrets ends with."""

    def __init__(self, path: str) -> None:
        self.path = path
        """What it is started from."""

    @property
    @abstractmethod
    def importable(self) -> str:
        """What the job's code finds ``report()`` in, or empty."""

    @abstractmethod
    def argv(self, folder: LearnerFolder) -> list[str]:
        """Return the command that keeps a learner."""

    @abstractmethod
    def files(self, folder: LearnerFolder, document: Mapping[str, Any]) -> dict[str, str]:
        """Return what is to be written into a learner's folder."""

    @abstractmethod
    def secrets_text(self, secrets: Mapping[str, str]) -> str:
        """Return the content of a file of secrets."""


class PythonAgent(Agent):
    """The archive of ``workbench.learner``, started from its unpacked copy, which is quicker."""

    secrets_suffix = ".json"

    def __init__(self, path: str, unpacked: str, python: str) -> None:
        super().__init__(path)
        self._python = python
        self._program = f"{unpacked}/__main__.py" if unpacked != path else path

    @property
    def importable(self) -> str:
        """The archive itself."""
        return self.path

    def argv(self, folder: LearnerFolder) -> list[str]:
        """Return the command that keeps a learner."""
        # Without site, which takes longest of all.
        return [self._python, "-I", "-S", self._program, "guard", str(folder.path)]

    def files(self, folder: LearnerFolder, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the launch document."""
        return {str(folder.launch): json.dumps(document) + "\n"}

    def secrets_text(self, secrets: Mapping[str, str]) -> str:
        """Return a JSON object."""
        return json.dumps(dict(secrets)) + "\n"


class ShAgent(Agent):
    """``agent.sh``: the launch document goes with it as shell text."""

    secrets_suffix = ".sh"

    @property
    def importable(self) -> str:
        """Nothing: there is no ``report()``."""
        return ""

    def argv(self, folder: LearnerFolder) -> list[str]:
        """Return the command that keeps a learner."""
        from workbench.learner.boot.sh_launch import guard_argv

        return guard_argv(self.path, str(folder.path))

    def files(self, folder: LearnerFolder, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the launch document, for readers in JSON and for the agent as shell text."""
        from workbench.learner.boot.sh_launch import render

        try:
            text = render(document, learner_dir=str(folder.path), secrets_file=document["secrets_file"] or "")
        except ValueError as error:
            raise LaunchRefused(f"The job cannot be written for a shell: {error}.", code="C101") from error
        return {str(folder.launch_sh): text, str(folder.launch): json.dumps(document) + "\n"}

    def secrets_text(self, secrets: Mapping[str, str]) -> str:
        """Return shell text."""
        from workbench.learner.boot.sh_launch import render_secrets

        try:
            return render_secrets(secrets)
        except ValueError as error:
            raise LaunchRefused(f"The secrets cannot be handed over: {error}.", code="C103") from error


def agent_kind(site: HostFacts) -> AgentKind:
    """Say which agent a place gets."""
    return "sh" if not site.python or os.environ.get(FORCED) == "sh" else "python"


def upload_agent(host: Host, site: HostFacts, kind: AgentKind) -> Agent:
    """Put an agent at the place, by the name of its content, unless it is there."""
    return _bring_python(host, site) if kind == "python" else _bring_sh(host, site)


def _bring_python(host: Host, site: HostFacts) -> Agent:
    from workbench.learner.boot.archive import build

    with _bringing, translated():
        built = Path(build(str((site.home if site.here else Home(default_home())).agents)))
        path = str(site.home.agents / built.name)
        if not site.here:
            with built.open("rb") as stream:
                host.put(stream, path, sha256=built.stem, mode=0o644)
        return PythonAgent(path, host.call("unpack_agent", archive=path), site.python)


def _bring_sh(host: Host, site: HostFacts) -> Agent:
    from workbench.learner.boot.sh_launch import agent_script

    content = agent_script().encode()
    sha256 = hashlib.sha256(content).hexdigest()
    path = str(site.home.agents / f"{sha256}.sh")
    host.put(io.BytesIO(content), path, sha256=sha256)
    return ShAgent(path)
