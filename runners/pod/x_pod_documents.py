"""What the containers of a pod are told: one document for all learners, in the Secret that comes with the job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.pod.names import stem_of
from runners.pod.options import REST_BYTES, PodOptions
from runners.pod.stores import pod_stores, secret_names
from runners.pod.template import Results
from runners.pod.upload import made_before
from runners.process.plan import USAGE_SECONDS
from runners.shared.environment import CHOSEN
from runners.shared.launch_document import metrics_document
from workbench.learner.host.x_survey import INSTALLERS
from workbench.learner.pod import config

SECRET_BYTES: Final = 900_000
"""What travels in one Secret, packed: the cluster takes a little more."""

AGENT_BYTES: Final = 330_000
"""What of it is kept for the agent."""


def where_code_travels(request: LaunchRequest) -> str:
    """Say how a job's code gets there: ``given`` with the job, ``streamed`` afterwards; empty for none."""
    if not request.code_file:
        return ""
    try:
        size = Path(request.code_file).stat().st_size
    except OSError:
        size = 0  # the launch says so
    return "given" if size <= SECRET_BYTES - AGENT_BYTES else "streamed"


def pod_document(request: LaunchRequest, options: PodOptions, results: Results) -> dict[str, Any]:
    """Return what the pods' containers are told; one document for all learners."""
    launch = launch_document(request, options, results)
    return {
        "format": 1,
        "stem": stem_of(request.attempt),
        "gang_seconds": options.gang_seconds,
        "hold_seconds": options.journal_hold_seconds,
        "results_hold_seconds": options.results_hold_seconds,
        "rest_bytes": REST_BYTES,
        "code": where_code_travels(request),
        "code_seconds": options.code_seconds,
        "results": results.kind,
        "restores": results.kind == "hold" and made_before(request.attempt.job_id) is not None,
        "token": CHOSEN,
        "rclone": bool(launch["stores"]),
        "requirements": _requirements(request),
        "launch": launch,
    }


def _requirements(request: LaunchRequest) -> dict[str, Any] | None:
    """Return what an environment is made of, and what steers pip: what the submit's environment and ``env:`` say."""
    spec = request.spec
    if spec.python != "requirements":
        return None
    told = {**(request.recorded.get("environment") or {}), **spec.env}
    passed = {
        str(name): str(value)
        for name, value in told.items()
        if str(name).startswith(INSTALLERS) or str(name).lower().endswith("_proxy")
    }
    passed.pop("PIP_CONFIG_FILE", None)  # a file of the machine that the job was given on
    lines = [line.strip() for line in spec.requirements if line.strip()]
    return {"lines": lines, "environment": passed}


def sent_once_they_run(told: Mapping[str, Any]) -> frozenset[str]:
    """Name what pods are sent once their init containers run: ``code``, ``made`` before, ``rclone``."""
    sent = {"code": told["code"] == "streamed", "made": told["restores"], "rclone": told["rclone"]}
    return frozenset(name for name, wanted in sent.items() if wanted)


def launch_document(request: LaunchRequest, options: PodOptions, results: Results) -> dict[str, Any]:
    """Return the learners' launch document; number and environment are added in the pod."""
    spec, attempt = request.spec, request.attempt
    return {
        "format": 1,
        "home": attempt.home,
        "owner": request.owner,
        "job": attempt.job_id,
        "attempt": attempt.attempt,
        "learner": 0,
        "learners": attempt.learners,
        "command": spec.framework.command,
        "setup": spec.setup,
        "shell": "bash",
        "cwd": config.MODEL,
        "env": {},
        "secrets_file": f"{config.SECRETS}/secrets.json" if secret_names(request) else None,
        "secrets": list(spec.secrets),
        "grace_seconds": spec.grace_seconds,
        "settle_seconds": spec.settle_seconds,
        "ends_when": spec.ends_when,
        "max_runtime_seconds": spec.max_runtime_seconds,
        "memory_bytes": None,  # the cluster keeps to it
        "cpus": None,
        "slots": [],
        "usage_seconds": USAGE_SECONDS,
        "attempt_dir": config.ATTEMPT,
        "log_dir": config.LOGS,
        "log_dir_shared": results.shared,
        "metrics": metrics_document(spec),
        "stores": pod_stores(request, shares_data=bool(options.data_claim), shares_results=results.shared),
    }
