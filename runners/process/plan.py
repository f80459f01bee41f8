"""Plans a process job: the launch document of every learner, as it will be sent."""

from __future__ import annotations

from typing import Any

from runners.interface import LaunchRequest, LearnerPlan, LearnerRef, Plan
from runners.process.x_process_warnings import notes_of, warnings_of
from runners.shared.data_stores import stores_document
from runners.shared.environment import CHOSEN, job_folders, learner_environment
from runners.shared.host_facts import Site
from runners.shared.interpreters import Interpreter
from runners.shared.launch_document import metrics_document
from workbench.errors import LaunchRefused
from workbench.job import learner_name

USAGE_SECONDS = 2.0
"""How often a learner's usage is sampled."""

AGENT = "<agent>"
"""Stands in a plan for the agent, whose path is its content's hash."""


def make_plan(request: LaunchRequest, site: Site, interpreter: Interpreter, agent_kind: str) -> Plan:
    """Say exactly what would be sent.

    Raises:
        LaunchRefused: more memory than the place has.
    """
    spec = request.spec
    check_memory(request, site)
    learners = tuple(
        LearnerPlan(
            number,
            learner_name(request.attempt.job_id, request.attempt.attempt, number),
            {
                "agent": agent_kind,
                "python": interpreter.python,
                "folder": str(job_folders(request, site)[1].learner(number).path),
                "launch": launch_document(request, number, site, interpreter, agent_kind),
            },
        )
        for number in range(1, request.attempt.learners + 1)
    )
    return Plan(
        request=request,
        runner="process",
        learners=learners,
        slots_per_learner=spec.gpus,
        cpus_per_learner=min(spec.cpus or 0.0, float(len(site.processors))),
        warnings=tuple(warnings_of(request, site)),
        notes=(*notes_of(request, site, agent_kind), *interpreter.notes),
    )


def launch_document(
    request: LaunchRequest, learner: int, site: Site, interpreter: Interpreter, agent_kind: str
) -> dict[str, Any]:
    """Return a learner's ``launch.json``; what is chosen at launch is left open."""
    spec, attempt = request.spec, request.attempt
    _, folder = job_folders(request, site)
    agent = AGENT if agent_kind == "python" else ""
    stores = stores_document(request, site)
    environment = learner_environment(request, learner, site, interpreter.variables, agent)
    if interpreter.key:
        environment["FABRIC_ENVIRONMENT"] = interpreter.key
    return {
        "format": 1,
        "home": attempt.home,
        "owner": request.owner,
        "job": attempt.job_id,
        "attempt": attempt.attempt,
        "learner": learner,
        "learners": attempt.learners,
        "command": spec.framework.command,
        "setup": spec.setup,
        "shell": "bash",
        "cwd": environment["MODEL_DIR"],
        "env": environment,
        "secrets_file": CHOSEN if spec.secrets or request.secrets or stores else None,
        "secrets": list(spec.secrets),
        "grace_seconds": spec.grace_seconds,
        "settle_seconds": spec.settle_seconds,
        "ends_when": spec.ends_when,
        "max_runtime_seconds": spec.max_runtime_seconds,
        "memory_bytes": spec.memory_bytes,
        "cpus": CHOSEN if spec.cpus is not None and spec.cpus < len(site.processors) else None,
        "slots": [CHOSEN] * spec.gpus,
        "usage_seconds": USAGE_SECONDS,
        "attempt_dir": str(folder.path),
        "log_dir": str(folder.logs),
        "log_dir_shared": True,
        "metrics": metrics_document(spec),
        "stores": stores,
    }


def ref_of(plan: Plan, learner: int) -> LearnerRef:
    """Name one learner of a plan."""
    attempt = plan.request.attempt
    return LearnerRef(attempt.home, attempt.job_id, attempt.attempt, learner)


def check_memory(request: LaunchRequest, site: Site) -> None:
    """Refuse more memory than the place has."""
    spec = request.spec
    wanted = (spec.memory_bytes or 0) * spec.learners
    if wanted <= site.memory_bytes:
        return
    each = (
        f" ({spec.learners} learners with {_size(spec.memory_bytes or 0)} each)" if spec.learners > 1 else ""
    )
    raise LaunchRefused(
        f"The job asks for {_size(wanted)} of memory{each}; {site.name} has {_size(site.memory_bytes)}.",
        hint="Ask for less with 'memory:' or --set memory=, or run it at another place.",
        code="C104",
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
