"""The folders and environment variables of a command in a container, besides those of its image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runners.container.stores import CHECKPOINTS_INSIDE as CHECKPOINTS
from runners.container.stores import (
    DATA,
    RESULTS,
    results_inside,
    store_folders,
    store_variables,
    writable_stores,
)
from runners.interface import LaunchRequest
from runners.shared.environment import (
    CHOSEN,
    NO_GPU,
    experiment_variables,
    job_folders,
    promises,
    python_path,
    seed_and_params,
    submitted_proxies,
    tracking_defaults,
)
from runners.shared.host_facts import HostFacts
from workbench.job import attempt_stem, learner_name

STATE: Final = "/job"
MODEL: Final = "/job/model-code"
LOGS: Final = "/job/logs"
OURS: Final = "/.fabric"
LEARNER: Final = f"{OURS}/learner"
PROGRAM: Final = f"{OURS}/inside.sh"
AGENT: Final = f"{OURS}/agent.pyz"
SECRETS: Final = f"{OURS}/secrets.sh"
ENVIRONMENT: Final = f"{OURS}/env"
"""The mount of the cached environment of ``requirements:``; a virtual environment works at one path only."""
REPORT: Final = f"{OURS}/report.jsonl"

PROMISED: Final[Mapping[str, str]] = {
    "MODEL_DIR": MODEL,
    "DATA_DIR": DATA,
    "RESULT_DIR": RESULTS,
    "RESULT_BUCKET_DIR": RESULTS,
    "CHECKPOINT_DIR": CHECKPOINTS,
    "LOG_DIR": LOGS,
    "JOB_STATE_DIR": STATE,
}


def inside_folder(request: LaunchRequest, learner: int, site: HostFacts) -> Path:
    """Return the folder with the named pipes between a learner's agent and its container."""
    return job_folders(request, site)[1].learner(learner).path / "inside"


def folders(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, str]:
    """Return the job's folders on the host by their path in the container."""
    job, attempt = job_folders(request, site)
    return {
        STATE: str(attempt.job_state),
        MODEL: str(attempt.model(learner)),
        DATA: str(job.data),
        CHECKPOINTS: str(job.checkpoints),
        **({results: str(job.results)} if (results := results_inside(request)) else {}),
    }


def writable_folders(request: LaunchRequest, learner: int, site: HostFacts) -> list[str]:
    """Return the folders of the host that a container can change: links in them must not be followed out."""
    own = {str(inside_folder(request, learner, site)), *folders(request, learner, site).values()}
    return [*sorted(own), *writable_stores(request, site)]


def outside(text: str, request: LaunchRequest, learner: int, site: HostFacts) -> str:
    """Convert a path of the container to the host's; paths outside of the mounts are returned unchanged."""
    mounted = {**folders(request, learner, site), **store_folders(request, site)}
    for there, here in sorted(mounted.items(), reverse=True):
        if text == there or text.startswith(f"{there}/"):
            return here + text[len(there) :]
    return text


PORT = 29500
"""MASTER_PORT: all ports of a container's own network are free."""


def container_environment(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, str]:
    """Return the variables of a learner's command without secrets; ``env:`` cannot override the promised ones."""
    spec = request.spec
    libraries = tracking_defaults(request, LOGS)
    variables = {"PYTHONUNBUFFERED": "1", **submitted_proxies(request), **libraries, **spec.env}
    variables |= seed_and_params(spec, variables)
    variables |= container_promises(request, learner, site)
    variables |= experiment_variables(
        request, MODEL, agent_id=site.hostname, resources_type="docker-container", port=_port(request)
    )
    if spec.python == "requirements":
        variables |= {
            "PATH": f"{ENVIRONMENT}/bin:{spec.env.get('PATH') or CHOSEN}",
            "VIRTUAL_ENV": ENVIRONMENT,
        }
    variables["PYTHONPATH"] = python_path(spec, MODEL, AGENT)
    return variables


def _port(request: LaunchRequest) -> str:
    """Return MASTER_PORT, which is chosen at launch among the ports of the first of several hosts."""
    return CHOSEN if request.attempt.part else str(PORT)


def container_promises(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, str]:
    """Return the variables that every learner has, whatever its manifest sets."""
    promised = promises(request, learner, site)
    attempt = request.attempt
    first = learner_name(attempt.job_id, attempt.attempt, 1)
    return {
        **promised,
        **PROMISED,
        **store_variables(request),
        "MASTER_ADDR": CHOSEN if attempt.part else f"{first}.{attempt_stem(attempt.job_id, attempt.attempt)}",
        "MASTER_PORT": _port(request),
        **(dict.fromkeys(NO_GPU, CHOSEN) if request.spec.gpus else NO_GPU),
        # Differs from the agent's marker: in the container its first process ends what has this one.
        "FABRIC_LEARNER": promised["FABRIC_LEARNER"] + "/inside",
        "FABRIC_REPORT": REPORT,
        "FABRIC_STOP_FILE": f"{LEARNER}/stop",
    }
