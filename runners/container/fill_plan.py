"""Replaces the placeholders in a container's plan at launch: host paths, GPUs, secrets, limits."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runners.container.engine import Engine
from runners.container.environment import ENVIRONMENT
from runners.container.image import path_of, python_path_of
from runners.container.permissions import is_guarded, relabelled
from runners.container.plan import AGENT_FILE
from runners.container.requirements import ImageEnvironment
from runners.shared.agents import Agent
from runners.shared.environment import CHOSEN
from workbench.learner.guard.container_creation import filled
from workbench.values import dataclass

BY_ENVIRONMENT: Final = "FABRIC_CONTAINER_GPUS"
"""Set to ``environment``: GPUs are passed by NVIDIA_VISIBLE_DEVICES alone, for tests and engines without requests."""


@dataclass(frozen=True, slots=True)
class PlanValues:
    """The values that are known once image, code and environment are prepared."""

    engine: Engine
    agent: Agent
    image: Mapping[str, Any]
    environment: ImageEnvironment | None
    """The environment of ``requirements:``, None without one."""
    opens: bool = False
    """Whether what runs in the image needs the job's files to be opened to others."""

    def filled(
        self, planned: Mapping[str, Any], slots: Sequence[str], secrets: str, limits: Sequence[str]
    ) -> dict[str, Any]:
        """Return a container's configuration with all placeholders replaced.

        Args:
            planned: the configuration of the plan.
            slots: UUIDs of the GPUs.
            secrets: the path of the learner's files of secrets without suffix, or empty.
            limits: names of the ``Ulimits`` that the engine may raise.
        """
        return filled(self.prepared(planned, limits), slots, secrets)

    def prepared(self, planned: Mapping[str, Any], limits: Sequence[str]) -> dict[str, Any]:
        """Return a container's configuration without what is chosen when it starts: GPUs, and the files of secrets."""
        document: dict[str, Any] = json.loads(json.dumps(planned))
        host = document["HostConfig"]
        host["AutoRemove"] = self.engine.may_remove_by_itself
        for mount in host["Mounts"]:
            mount["Source"] = self._source(mount)
        if is_guarded(self.engine.host, self.engine):
            host["Binds"] = relabelled(host.pop("Mounts"))
        host["Ulimits"] = [limit for limit in host["Ulimits"] if limit["Name"] in limits]
        if host.get("DeviceRequests") and _by_environment(self.engine):
            del host["DeviceRequests"]
        document["Env"] = [self._completed(entry) for entry in document["Env"]]
        return document

    def _completed(self, entry: str) -> str:
        """Return a variable with what the image sets under its name, where that goes on behind what the job sets.

        An environment of ``requirements:`` is built without the image's PYTHONPATH, which would come before it.
        """
        if entry.startswith("PATH="):
            return entry.replace(CHOSEN, path_of(self.image))
        is_wanted = entry.startswith("PYTHONPATH=") and self.environment is None
        own = python_path_of(self.image) if is_wanted else ""
        return f"{entry}:{own}" if own else entry

    def _source(self, mount: Mapping[str, Any]) -> str:
        source = str(mount["Source"])
        if mount["Target"] == ENVIRONMENT and self.environment is not None:
            return self.environment.folder
        if source == AGENT_FILE:
            return self.agent.importable
        return program_of(self.agent) if source.startswith(AGENT_FILE) else source


def program_of(agent: Agent) -> str:
    """Return the host's path of the program that is the first process of containers."""
    return agent.importable.removesuffix(".pyz") + "/workbench/learner/guard/inside.sh"


def _by_environment(engine: Engine) -> bool:
    """Return whether NVIDIA_VISIBLE_DEVICES alone passes GPUs: NVIDIA's runtime is the engine's default."""
    if os.environ.get(BY_ENVIRONMENT) == "environment":
        return True
    return bool(engine.info.get("DefaultRuntime") == "nvidia")
