"""The environment variables of a learner's command: FfDL's, those of distributed launchers, and fabric's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from runners.interface import AttemptRef, LaunchRequest, LearnerRef
from runners.shared.data_stores import variables_of
from runners.shared.host_facts import HostFacts
from runners.shared.staged_launch import LOOPBACK
from workbench.job import attempt_stem, learner_name
from workbench.learner.determined_jobs import planned_variables
from workbench.learner.queue.allocation import CHOSEN as CHOSEN
from workbench.learner.queue.allocation import NO_GPU as NO_GPU
from workbench.learner.queue.allocation import gpu_variables as gpu_variables
from workbench.manifest.builder.params import CONFIG_VARIABLE, param_variables
from workbench.paths import AttemptFolder, JobFolder
from workbench.spec import SWEEP_LABEL, JobSpec

_TRACKING: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = {
    (): {"TENSORBOARD_LOGGING_DIR": "$LOG_DIR/tensorboard"},
    ("WANDB_API_KEY", "WANDB_BASE_URL"): {"WANDB_MODE": "offline"},
    ("WANDB_DATA_DIR",): {"WANDB_DIR": "$LOG_DIR"},
    ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "DATABRICKS_HOST"): {
        "MLFLOW_TRACKING_URI": "file://$LOG_DIR/mlruns",
        # Without it MLflow 3.7 and later refuse to write files.
        "MLFLOW_ALLOW_FILE_STORE": "true",
    },
    ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"): {"TRACKIO_DIR": "$LOG_DIR/trackio"},
}
"""Variables that make libraries write files and use no network, by those that say that a user has it otherwise."""

SEED_MAX: Final = 2**32


def learner_environment(
    request: LaunchRequest, learner: int, site: HostFacts, base: Mapping[str, str], agent: str
) -> dict[str, str]:
    """Return all environment variables of a learner's command; ``env:`` cannot override those of :func:`promises`.

    Args:
        request: the attempt.
        learner: the learner's number, from 1.
        site: the host.
        base: the variables of the interpreter, PATH among them.
        agent: the archive from which code imports ``report()``; empty without one.
    """
    spec = request.spec
    promised = promises(request, learner, site)
    libraries = tracking_defaults(request, promised["LOG_DIR"])
    variables = {"PYTHONUNBUFFERED": "1", **base, **libraries, **spec.env}
    variables |= seed_and_params(spec, variables)
    variables |= promised
    variables |= experiment_variables(request, promised["MODEL_DIR"], agent_id=site.hostname)
    variables["PYTHONPATH"] = python_path(spec, promised["MODEL_DIR"], agent)
    return variables


def experiment_variables(
    request: LaunchRequest, model: str, *, agent_id: str = "", resources_type: str = "", port: int | str = 0
) -> dict[str, str]:
    """Return the variables that Determined gives to a trial; none where the job is not made of an experiment.

    Args:
        request: the attempt.
        model: the folder of its code.
        agent_id: the name of the host, where it is known.
        resources_type: what Determined calls that which the command runs in, where it has a name for it.
        port: MASTER_PORT, or the placeholder of what is chosen at launch; 0 where the agent adds it.
    """
    spec, attempt = request.spec, request.attempt
    if not spec.env.get(CONFIG_VARIABLE):
        return {}
    found = planned_variables(
        spec.env,
        job=attempt.job_id,
        attempt=attempt.attempt,
        experiment=spec.labels.get(SWEEP_LABEL, ""),
        cluster=attempt.home,
        seed=spec.seed or 0,
        params=spec.params,
        gpus=spec.gpus,
        workdir=model,
        best=request.search_best,
    )
    more = {
        "DET_AGENT_ID": agent_id,
        "DET_RESOURCES_TYPE": resources_type,
        "C10D_PORT": str(port or ""),
    }
    return found | {name: value for name, value in more.items() if value}


def python_path(spec: JobSpec, model: str, agent: str) -> str:
    """Return PYTHONPATH: the code, the user's folders, the agent; first our packages where a job wants them.

    An experiment of Determined imports its package; one of the image or the environment would look for a master.
    """
    libraries = f"{agent}/workbench/learner/libraries" if agent and spec.env.get(CONFIG_VARIABLE) else ""
    return ":".join(part for part in (libraries, model, spec.env.get("PYTHONPATH", ""), agent) if part)


def seed_and_params(spec: JobSpec, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job's seed and params; a PYTHONHASHSEED among ``variables`` is kept."""
    found: dict[str, str] = {}
    if spec.seed is not None:
        found["FABRIC_SEED"] = str(spec.seed)
        found["PYTHONHASHSEED"] = variables.get("PYTHONHASHSEED", str(spec.seed % SEED_MAX))
    found |= param_variables(spec.params)
    found["FABRIC_PARAMS"] = json.dumps(dict(spec.params))
    return found


def tracking_defaults(request: LaunchRequest, log_dir: str) -> dict[str, str]:
    """Return variables with which libraries write their metrics into LOG_DIR, where ``auto`` finds them.

    None of a library that the user has set up: in ``env:``, by a secret, or where the job was submitted.
    """
    spec = request.spec
    if spec.evaluation_metrics is not None and spec.evaluation_metrics.type != "auto":
        return {}
    own = {*spec.env, *spec.secrets, *(request.recorded.get("tracking") or ())}
    found: dict[str, str] = {}
    for settings, defaults in _TRACKING.items():
        if not own & {*settings, *defaults}:
            found |= {name: value.replace("$LOG_DIR", log_dir) for name, value in defaults.items()}
    return found


def submitted_proxies(request: LaunchRequest) -> dict[str, str]:
    """Return the proxy variables of the submit's environment; no others pass into a container."""
    environment = request.recorded.get("environment") or {}
    return {
        str(name): str(value) for name, value in environment.items() if str(name).lower().endswith("_proxy")
    }


def promises(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, str]:
    """Return the variables that every learner has, whatever its manifest sets."""
    spec, attempt = request.spec, request.attempt
    job, folder = job_folders(request, site)
    return {
        "MODEL_DIR": str(folder.model(learner)),
        "DATA_DIR": str(job.data),
        "RESULT_DIR": str(job.results),
        "RESULT_BUCKET_DIR": str(job.results),
        "CHECKPOINT_DIR": str(job.checkpoints),
        "LOG_DIR": str(folder.logs),
        "JOB_STATE_DIR": str(folder.job_state),
        "TRAINING_ID": attempt.job_id,
        "TRAINING_JOB": attempt.job_id,
        "TRAINING_COMMAND": spec.framework.command,
        "LEARNER_ID": str(learner),
        "NUM_LEARNERS": str(attempt.learners),
        "GPU_COUNT": f"{spec.gpus:.6f}",
        "LEARNER_NAME_PREFIX": attempt_stem(attempt.job_id, attempt.attempt),
        "MASTER_ADDR": CHOSEN if attempt.part else LOOPBACK,
        "MASTER_PORT": CHOSEN,
        "NODE_RANK": str(learner - 1),
        "RANK": str(learner - 1),
        "WORLD_SIZE": str(attempt.learners),
        "LOCAL_RANK": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **(dict.fromkeys(NO_GPU, CHOSEN) if spec.gpus else NO_GPU),
        "FABRIC_LEARNER": marker(LearnerRef(attempt.home, attempt.job_id, attempt.attempt, learner)),
        **variables_of(request, site),
    }


def marker(ref: LearnerRef) -> str:
    """Return the value of ``FABRIC_LEARNER``, which marks every process of a learner."""
    return f"{ref.home}/{ref.job_id}/{ref.attempt}/{ref.learner}"


def secrets_stem(folder: str, attempt: AttemptRef, learner: int) -> str:
    """Return the path of a learner's files of secrets without their suffix."""
    return f"{folder}/{attempt.home}.{learner_name(attempt.job_id, attempt.attempt, learner)}"


def job_folders(request: LaunchRequest, site: HostFacts) -> tuple[JobFolder, AttemptFolder]:
    """Return the folders of a job and of its attempt on the host."""
    job = site.home.job(request.attempt.job_id)
    return job, job.attempt(request.attempt.attempt)
