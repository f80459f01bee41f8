"""The agents of process jobs: one in Python, and one in POSIX shell for hosts without Python."""

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

_bringing = threading.Lock()  # the archive is built by one thread at a time

FORCED: Final = "FABRIC_AGENT"
"""Tests set it to ``sh`` to get the agent in shell on a host with Python."""


class Agent(ABC):
    """An agent that was uploaded to a host and can be started."""

    secrets_suffix: ClassVar[str]
    """The suffix of the file with a learner's secrets."""

    def __init__(self, path: str) -> None:
        self.path = path
        """The agent's file on the host."""

    @property
    @abstractmethod
    def importable(self) -> str:
        """The PYTHONPATH entry from which code imports ``report()``; empty without one."""

    @abstractmethod
    def argv(self, folder: LearnerFolder) -> list[str]:
        """Return the command that starts the agent of a learner."""

    def waiter_argv(self, home: Home) -> list[str] | None:
        """Return the command that starts the waiter of a home; None where the agent has none."""
        return None

    @abstractmethod
    def files(self, folder: LearnerFolder, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the files that the agent reads, as text by path."""

    @abstractmethod
    def secrets_text(self, secrets: Mapping[str, str]) -> str:
        """Return the content of the file with secrets."""


class PythonAgent(Agent):
    """The archive of ``workbench.learner``, started from its unpacked copy: that is faster than the zip file."""

    secrets_suffix = ".json"

    def __init__(self, path: str, unpacked: str, python: str) -> None:
        super().__init__(path)
        self._python = python
        self._program = f"{unpacked}/__main__.py" if unpacked != path else path

    @property
    def importable(self) -> str:
        """The archive."""
        return self.path

    def argv(self, folder: LearnerFolder) -> list[str]:
        """Return the command that starts the agent of a learner."""
        return self._argv("guard", str(folder.path))

    def waiter_argv(self, home: Home) -> list[str] | None:
        """Return the command that starts the waiter of a home."""
        return self._argv("waiter", str(home.path))

    def _argv(self, *arguments: str) -> list[str]:
        # -S: importing site takes most of the start-up time.
        return [self._python, "-I", "-S", self._program, *arguments]

    def files(self, folder: LearnerFolder, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the launch document."""
        return {str(folder.launch): json.dumps(document) + "\n"}

    def secrets_text(self, secrets: Mapping[str, str]) -> str:
        """Return a JSON object."""
        return json.dumps(dict(secrets)) + "\n"


class ShAgent(Agent):
    """``agent.sh``: it reads the launch document as shell text."""

    secrets_suffix = ".sh"

    @property
    def importable(self) -> str:
        """Empty: there is no ``report()``."""
        return ""

    def argv(self, folder: LearnerFolder) -> list[str]:
        """Return the command that starts the agent of a learner."""
        from workbench.learner.boot.sh_launch import guard_argv

        return guard_argv(self.path, str(folder.path))

    def files(self, folder: LearnerFolder, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the launch document as JSON for clients and as shell text for the agent."""
        from workbench.learner.boot.sh_launch import render

        try:
            text = render(document, learner_dir=str(folder.path), secrets_file=document["secrets_file"] or "")
        except ValueError as error:
            raise LaunchRefused(
                f"The job cannot be run by the agent in shell: {error}.", code="C101"
            ) from error
        return {str(folder.launch_sh): text, str(folder.launch): json.dumps(document) + "\n"}

    def secrets_text(self, secrets: Mapping[str, str]) -> str:
        """Return shell text."""
        from workbench.learner.boot.sh_launch import render_secrets

        try:
            return render_secrets(secrets)
        except ValueError as error:
            raise LaunchRefused(f"The secrets cannot be passed to the job: {error}.", code="C103") from error


def agent_kind(site: HostFacts) -> AgentKind:
    """Return which agent a host gets."""
    return "sh" if not site.python or os.environ.get(FORCED) == "sh" else "python"


def upload_agent(host: Host, site: HostFacts, kind: AgentKind) -> Agent:
    """Upload an agent unless the host has it already; its file name is the hash of its content."""
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
