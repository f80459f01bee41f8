"""The environment variables of a command in a pod, besides those of its image and the cluster."""

from __future__ import annotations

from runners.interface import LaunchRequest
from runners.pod.stores import store_variables
from runners.shared.environment import NO_GPU, seed_and_params, submitted_proxies
from workbench.job import attempt_stem
from workbench.learner.pod import config

PORT = 29500
"""MASTER_PORT: all ports of a pod are free."""


def pod_environment(request: LaunchRequest, run_as: str) -> dict[str, str]:
    """Return the variables that all learners share, without secrets; ``env:`` cannot override the promised ones."""
    spec = request.spec
    variables = {"PYTHONUNBUFFERED": "1", **submitted_proxies(request)}
    if run_as == "restricted":
        # Images have no entry in /etc/passwd for its user.
        variables |= {"HOME": config.HOME, "USER": "fabric", "LOGNAME": "fabric"}
    variables |= spec.env
    variables |= seed_and_params(spec, variables)
    variables |= _promises(request)
    variables["PYTHONPATH"] = ":".join(
        part for part in (config.MODEL, spec.env.get("PYTHONPATH", ""), config.AGENT) if part
    )
    return variables


def _promises(request: LaunchRequest) -> dict[str, str]:
    """Return the variables that every learner has; the pod's first process adds LEARNER_ID, RANK and NODE_RANK."""
    spec, attempt = request.spec, request.attempt
    stem = attempt_stem(attempt.job_id, attempt.attempt)
    return {
        "MODEL_DIR": config.MODEL,
        "DATA_DIR": config.DATA,
        "RESULT_DIR": config.RESULTS,
        "RESULT_BUCKET_DIR": config.RESULTS,
        "CHECKPOINT_DIR": config.CHECKPOINTS,
        "LOG_DIR": config.LOGS,
        **store_variables(request),
        "JOB_STATE_DIR": config.STATE_DIR,
        "TRAINING_ID": attempt.job_id,
        "TRAINING_JOB": attempt.job_id,
        "TRAINING_COMMAND": spec.framework.command,
        "NUM_LEARNERS": str(attempt.learners),
        "GPU_COUNT": f"{spec.gpus:.6f}",
        "LEARNER_NAME_PREFIX": stem,
        "MASTER_ADDR": f"{stem}-0.{stem}",
        "MASTER_PORT": str(PORT),
        "WORLD_SIZE": str(attempt.learners),
        "LOCAL_RANK": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # With GPUs the node's device plug-in sets them.
        **({} if spec.gpus else NO_GPU),
    }
