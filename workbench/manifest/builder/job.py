"""Builds a job from a manifest's nodes, and checks keys against one another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from workbench.learner.determined_jobs import is_experiment_file
from workbench.learner.secret_names import SECRET_NAME
from workbench.manifest.builder.metrics import metrics_of
from workbench.manifest.builder.params import CONFIG_VARIABLE, check_param_variables
from workbench.manifest.builder.requirements import requirement_lines
from workbench.manifest.builder.stores import stores_of
from workbench.manifest.keys.framework_keys import image_build_of
from workbench.manifest.keys.registries import login_keys
from workbench.manifest.keys.root import MANIFEST, MANIFEST_OF_EXPERIMENT
from workbench.manifest.keys.search_keys import searched_names
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode, ScalarNode, leaves, location_of, node_at, shortened
from workbench.metric_names import goal_of
from workbench.spec import (
    BindMount,
    Checkpoints,
    CheckpointsAtEnd,
    Framework,
    JobSpec,
    is_metric_of_search,
)

_PLACEHOLDER: Final = re.compile(r"<[^<>]{1,100}>")
_SECRET_NAME: Final = re.compile(SECRET_NAME)
_OWN_VARIABLES: Final = frozenset(
    {
        "MODEL_DIR",
        "DATA_DIR",
        "RESULT_DIR",
        "RESULT_BUCKET_DIR",
        "CHECKPOINT_DIR",
        "LOG_DIR",
        "JOB_STATE_DIR",
        "TRAINING_ID",
        "TRAINING_JOB",
        "TRAINING_COMMAND",
        "LEARNER_ID",
        "NUM_LEARNERS",
        "GPU_COUNT",
        "LEARNER_NAME_PREFIX",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "CUDA_VISIBLE_DEVICES",
    }
)
"""Variables that fabric itself sets for a learner."""

_FIELDS: Final = {
    "memory": "memory_bytes",
    "storage": "storage_bytes",
    "shm_size": "shm_size_bytes",
    "max_runtime": "max_runtime_seconds",
    "preemption_timeout": "preemption_seconds",
}
"""Fields that say their unit, by their keys; every other field is called as its key is."""


def build(root: MapNode, folder: Path | None, findings: Findings) -> JobSpec | None:
    """Read a manifest whose keys are canonical into a job; None when something is at fault.

    Args:
        root: the manifest with everything laid over it and its parameters expanded.
        folder: the folder of a requirements file; None is the working directory.
        findings: where faults and warnings go.
    """
    experiment = node_at(root, f"env.{CONFIG_VARIABLE}")
    is_experiment = isinstance(experiment, ScalarNode) and is_experiment_file(experiment.text)
    values = (MANIFEST_OF_EXPERIMENT if is_experiment else MANIFEST).read(root, "", findings)
    if values is None:
        return None
    _warn_of_placeholders(root, findings)
    search = values.get("search")
    if search and search.get("metric") and "goal" not in search:
        # Written down, since a search that is stored without a goal is minimized.
        values["search"] = {**search, "goal": goal_of(search["metric"])}
    fields = {_FIELDS.get(name, name): value for name, value in values.items()}
    fields.update(
        framework=_framework(values.get("framework") or {}, root, findings),
        learners=values.get("learners") or 1,
        cpus=values.get("cpus") or None,
        data_stores=stores_of(values.get("data_stores") or (), root, findings),
        bind_mounts=_bind_mounts(values, findings),
        build=image_build_of(values.get("build")),
        checkpoints=_checkpoints(values.get("checkpoints"), values.get("search"), root, findings),
        evaluation_metrics=metrics_of(values.get("evaluation_metrics"), root, findings),
        **_python(values, root, folder, findings),
    )
    _check_conflicts(fields, root, findings, is_experiment=is_experiment)
    return None if findings.faults else JobSpec(**fields)


def _framework(values: Mapping[str, Any], root: MapNode, findings: Findings) -> Framework:
    framework = Framework(**values)
    _check_login(framework.image_location, root, findings)
    return framework


def _check_login(location: Mapping[str, str], root: MapNode, findings: Findings) -> None:
    """Refuse a login to the image's registry that is half of one, or two."""
    keys = login_keys(location)
    if len(keys) > 1:
        path = f"framework.image_location.{keys[1]}"
        findings.fault(location_of(root, path), path, f"stands beside {keys[0]}; keep one of them")
    elif location.get("username") and not keys:
        path = "framework.image_location.username"
        problem = "has no password; write password: ${NAME}"
        findings.fault(location_of(root, path), path, problem)
    elif "password" in keys and not location.get("username"):
        path = "framework.image_location.password"
        findings.fault(
            location_of(root, path), path, "has no user; write username:, or access_token: instead"
        )


def _bind_mounts(values: Mapping[str, Any], findings: Findings) -> tuple[BindMount, ...]:
    if findings.faults:
        return ()  # one may lack a path
    return tuple(BindMount(**mount) for mount in values.get("bind_mounts") or ())


def _checkpoints(
    values: str | Mapping[str, Any] | None, search: Any, root: MapNode, findings: Findings
) -> Checkpoints:
    if not isinstance(values, Mapping):
        return Checkpoints(shared=values == "shared")
    at_end = CheckpointsAtEnd(**values["at_end"]) if values.get("at_end") is not None else None
    checkpoints = Checkpoints(**{**values, "at_end": at_end})
    if isinstance(search, Mapping) and is_metric_of_search(checkpoints.metric, search.get("metric")):
        goal = search.get("goal") or "minimize"
        is_smaller_better = goal == "minimize"
        key = "checkpoints.smaller_is_better"
        if values.get("smaller_is_better", is_smaller_better) != is_smaller_better:
            problem = f"contradicts search.goal, which is {goal}"
            findings.fault(location_of(root, key), key, problem, "leave it out: the goal says it")
        checkpoints = replace(checkpoints, smaller_is_better=is_smaller_better)
    if values.get("keep_last") == 0:
        last = "checkpoints.keep_last"
        problem = "is 0, which keeps no checkpoint to resume from"
        findings.fault(location_of(root, last), last, problem, "write 1 or more, or leave it out to keep all")
    if at_end and checkpoints.shared:
        key, hint = "checkpoints.at_end", "leave out shared:"
        problem = "cannot stand beside shared: the folder has checkpoints of other jobs, too"
        findings.fault(location_of(root, key), key, problem, hint)
    key = "checkpoints.metric"
    are_best_kept = checkpoints.keep_best or (at_end and (at_end.keep_best or at_end.keep_best_of_search))
    if are_best_kept and not checkpoints.metric:
        findings.fault(
            location_of(root, key),
            key,
            "is missing; keep_best keeps the best by it",
            "write metric: val_loss",
        )
    elif checkpoints.metric and not are_best_kept:
        findings.warn(location_of(root, key), key, "has no effect without keep_best", "write keep_best: 1")
    return checkpoints


def _python(
    values: Mapping[str, Any], root: MapNode, folder: Path | None, findings: Findings
) -> dict[str, Any]:
    """Return interpreter and requirements: naming requirements asks for the environment made of them."""
    location = location_of(root, "requirements")
    requirements = requirement_lines(values.get("requirements", ()), location, folder, findings)
    python = values.get("python") or ("requirements" if "requirements" in values else "current")
    if python == "requirements" and not requirements and "requirements" not in values:
        findings.fault(
            location_of(root, "python"),
            "python",
            "python is requirements, but no requirements are given",
            "add requirements:",
        )
    if python != "requirements" and requirements:
        problem = f"has no effect, because python is {python}"
        findings.warn(location, "requirements", problem, "write python: requirements")
    return {"python": python, "requirements": requirements}


def _check_conflicts(
    fields: Mapping[str, Any], root: MapNode, findings: Findings, *, is_experiment: bool
) -> None:
    learners, ends_when = fields["learners"], fields.get("ends_when")
    if isinstance(ends_when, int) and ends_when > learners:
        location = location_of(root, "ends_when")
        findings.fault(
            location, "ends_when", f"{ends_when} learners can never have ended: there are {learners}"
        )
    env = fields.get("env") or {}
    for name in sorted(set(env) & set(fields.get("secrets") or ())):
        findings.fault(
            location_of(root, f"env.{name}"), f"env.{name}", "is named below secrets as well; keep one"
        )
    for name, value in env.items():
        _check_variable(name, value, root, findings)
    if fields.get("build") and fields["framework"].image:
        where = location_of(root, "framework.version")
        problem = f"{fields['framework'].image} is not used, because build: makes the image"
        findings.warn(where, "framework.version", problem, "leave it out")
    location = fields["framework"].image_location
    if fields.get("build") and login_keys(location) and not location.get("registry"):
        findings.fault(
            location_of(root, "framework.image_location"),
            "framework.image_location",
            "is a login without the registry that it is for, and build: uses images of several",
            "write registry: with the registry of the base image",
        )
    searched = list(searched_names((fields.get("search") or {}).get("params") or {}))
    for name in searched:
        if name in (fields.get("params") or {}):
            problem = "is under search.params as well; keep one"
            findings.fault(location_of(root, f"params.{name}"), f"params.{name}", problem)
    names = [*(name for name in fields.get("params") or {} if name not in searched), *searched]
    if not is_experiment:  # whose code reads them by their names
        check_param_variables(names, location_of(root, "params"), findings)


def _check_variable(name: str, value: str, root: MapNode, findings: Findings) -> None:
    location, key = location_of(root, f"env.{name}"), f"env.{name}"
    if name == "FABRIC_LEARNER":
        findings.fault(location, key, "is how fabric knows a learner's processes, and cannot be set")
    elif name in _OWN_VARIABLES:
        findings.warn(location, key, "is a variable that fabric sets for a learner; your value replaces it")
    elif value and _SECRET_NAME.search(name):
        findings.warn(
            location, key, "looks like a secret, and is kept in the job's records", f"write secrets: [{name}]"
        )


def _warn_of_placeholders(root: MapNode, findings: Findings) -> None:
    for path, node in leaves(root):
        if isinstance(node, ScalarNode) and _PLACEHOLDER.fullmatch(node.text.strip()):
            findings.warn(
                node.location,
                path,
                f"{shortened(node.text)!r} is a placeholder; replace it by your own value",
            )
