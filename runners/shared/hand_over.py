"""Gives an attempt that waits to its host's waiter, which starts it when its turn has come."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from backends.contract.host import Host
from runners.interface import HostGates, HostRestarts, LaunchPlan, LaunchRequest
from runners.shared.agents import Agent, PythonAgent
from runners.shared.environment import job_folders, secrets_stem
from runners.shared.gpu_leases import lease_holder
from runners.shared.host_facts import HostFacts
from runners.shared.store_setup import secrets_with
from workbench.errors import BackendUnreachable, FabricError, SlotsBusy
from workbench.learner.queue.home_waiter import LAPTOP, SECRETS_AT_HOST


class HandOver:
    """The hand-over of one attempt. Its caller prepares all that the start needs.

    Args:
        plan: the launch.
        host: the host.
        site: its facts.
        agent: the agent that starts there.
        busy: why the attempt waits.

    Raises:
        SlotsBusy: this agent has no waiter: the controller keeps the job waiting.
    """

    def __init__(self, plan: LaunchPlan, host: Host, site: HostFacts, agent: Agent, busy: SlotsBusy) -> None:
        argv = agent.waiter_argv(site.home)
        if argv is None:
            raise busy
        self._argv = argv
        self._plan = plan
        self._host = host
        self._site = site
        self._busy = busy

    def give(self, waiting: Sequence[int], environment: Mapping[str, str], **more: Any) -> None:
        """Give these learners to the waiter.

        Args:
            waiting: their numbers; their launch documents are written.
            environment: that of their agents.
            more: what the ticket says beside that which the ticket of every attempt says.

        Raises:
            SlotsBusy: the host has no waiter, or one that does not take it: the controller keeps the job waiting.
            BackendUnreachable: it is not known whether the waiter has it.
        """
        request, site = self._plan.request, self._site
        try:
            self._host.call(
                "hand_over",
                home=request.attempt.home,
                folder=str(site.home.path),
                argv=self._argv,
                env=dict(site.environment),
                ticket={**self._ticket(waiting, environment), **more},
                secrets=secrets_with(request, site),
            )
        except BackendUnreachable:
            raise
        except FabricError as error:
            text = f"{self._busy.message}; it waits here, not there: {error.message}"
            raise SlotsBusy(text) from error

    def _ticket(self, waiting: Sequence[int], environment: Mapping[str, str]) -> dict[str, Any]:
        """Return what the waiter needs to know beside the launch documents."""
        request = self._plan.request
        folder = job_folders(request, self._site)[1]
        gates = HostGates(limit=request.limit) if request.wait is None else request.wait.gates.at(self._host)
        return {
            **(gates.to_json(self._site.home) if gates != HostGates() else {}),
            **ticket_facts(request, self._site),
            "environment": dict(environment),
            "learners": [
                {
                    "learner": learner,
                    "folder": str(folder.learner(learner).path),
                    "secrets_stem_name": secrets_stem("", request.attempt, learner).lstrip("/"),
                }
                for learner in waiting
            ],
        }


def ticket_facts(request: LaunchRequest, site: HostFacts) -> dict[str, Any]:
    """Return what a ticket says of an attempt that is the same for all of its learners, whatever holds it back."""
    spec, attempt = request.spec, request.attempt
    return {
        "home": attempt.home,
        "job": attempt.job_id,
        "attempt": attempt.attempt,
        "leases_folder": site.leases,
        "gpus": spec.gpus * len(attempt.numbers),
        "each": spec.gpus,
        "gpu_type": spec.gpu_type,
        "priority": spec.priority,
        "position": float(request.seq if request.position is None else request.position),
        "weight": spec.weight,
        "max_runtime_seconds": spec.longest_seconds,
        "cpus": spec.cpus or 0.0,
        "lease": lease_holder(request, site),
        "secrets_suffix": PythonAgent.secrets_suffix,
        **({SECRETS_AT_HOST: True} if site.secrets_at_host else {}),
        **({} if site.here else {LAPTOP: socket.gethostname()}),
    }


def restarts_document(
    request: LaunchRequest, restarts: HostRestarts, site: HostFacts, **more: Any
) -> dict[str, Any]:
    """Return what an agent needs to have its host begin the next attempt.

    Args:
        request: the attempt.
        restarts: which ones follow it.
        site: the host's facts.
        more: what the ticket of such a runner says beside that.
    """
    limit = HostGates(limit=request.limit).to_json(site.home)["limit"]
    return {
        "done": restarts.done,
        "allowed": restarts.allowed,
        "delay_seconds": restarts.delay_seconds,
        **({"barred_by": list(restarts.barred_by)} if restarts.barred_by else {}),
        "platform": {
            "done": restarts.platform_done,
            "allowed": restarts.platform_allowed,
            "delay_seconds": restarts.platform_delay_seconds,
        },
        "ticket": {**ticket_facts(request, site), **({} if limit is None else {"limit": limit}), **more},
        "code_hash": request.code_hash,
        "archive": str(site.home.snapshot(request.code_hash)) if request.code_hash else "",
    }
