"""Plans a pod job: the list of objects to create, without the values of secrets and the content of archives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runners.interface import LaunchPlan, LaunchRequest, LearnerPlan
from runners.pod.names import (
    AWAITS,
    PREPARE,
    SIDE_CAR,
    claim_name,
    given_name,
    labels,
    login_name,
    secrets_name,
    stem_of,
)
from runners.pod.options import REST_BYTES, UNREAD_SECONDS, PodOptions
from runners.pod.sh_agent import sh_agent_texts
from runners.pod.stores import pod_refusals, pod_retention, pod_stores, secret_names, store_notes
from runners.pod.template import ResultVolume, job, patch_refusals
from runners.pod.upload import earlier_results, has_just_moved
from runners.shared.capabilities import POD
from runners.shared.container_defaults import image_of
from runners.shared.environment import CHOSEN
from runners.shared.launch_document import LearnerLaunch, metrics_document
from runners.shared.registry_login import address_of, has_login
from runners.shared.unsupported import not_built
from workbench import formats
from workbench.errors import LaunchRefused
from workbench.job import learner_name
from workbench.learner.host.machine import INSTALLERS
from workbench.learner.pod import config
from workbench.manifest.keys.credentials import LOCATION
from workbench.spec import DEFAULT_WEIGHT

SECRET_BYTES: Final = 900_000
"""The size limit for the content of one Secret; the API's own limit is slightly higher."""

DOCKER_CONFIG: Final = ".dockerconfigjson"
"""The one file in a Secret with the logins of registries."""

CLAIMED: Final = ("claim", "owned")
"""The kinds of volumes that keep a job's results from one attempt to the next."""

AGENT_BYTES: Final = 330_000
"""The part of it that is reserved for the agent."""


def code_transport(request: LaunchRequest) -> str:
    """Return how a job's code gets into pods: ``given`` in a Secret, or ``streamed`` later; empty without code."""
    if not request.code_file:
        return ""
    try:
        size = Path(request.code_file).stat().st_size
    except OSError:
        size = 0  # the launch reports the missing file
    return "given" if size <= SECRET_BYTES - AGENT_BYTES else "streamed"


def pod_document(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> dict[str, Any]:
    """Return ``pod.json``, the configuration of the pods' containers; the same for all learners."""
    launch = launch_document(request, options, results).to_json()
    document = {
        "format": 1,
        "stem": stem_of(request.attempt),
        "gang_seconds": options.gang_seconds,
        "hold_seconds": options.journal_hold_seconds,
        "results_hold_seconds": options.results_hold_seconds,
        "rest_bytes": REST_BYTES,
        "code": code_transport(request),
        "code_seconds": options.code_seconds,
        "results": results.kind,
        "restores": (results.kind == "hold" or (results.kind in CLAIMED and has_just_moved(request)))
        and earlier_results(request.attempt.job_id) is not None,
        "token": CHOSEN,
        "rclone": bool(launch["stores"]),
        "requirements": _requirements(request),
        "launch": launch,
    }
    waits = request.attempt.learners > 1 or bool(streamed_parts(document)) or bool(document["requirements"])
    return {**document, "prepared_by": PREPARE if waits else SIDE_CAR}


def _requirements(request: LaunchRequest) -> dict[str, Any] | None:
    """Return the lines of requirements and the variables of pip from the submit's environment and ``env:``."""
    spec = request.spec
    if spec.python != "requirements":
        return None
    variables = {**(request.recorded.get("environment") or {}), **spec.env}
    passed = {
        str(name): str(value)
        for name, value in variables.items()
        if str(name).startswith(INSTALLERS) or str(name).lower().endswith("_proxy")
    }
    passed.pop("PIP_CONFIG_FILE", None)  # a file of the submitting machine
    lines = [line.strip() for line in spec.requirements if line.strip()]
    return {"lines": lines, "environment": passed}


def streamed_parts(pod_config: Mapping[str, Any]) -> frozenset[str]:
    """Return what is sent to running init containers: ``code``, ``made`` (results of earlier attempts), ``rclone``."""
    sent = {
        "code": pod_config["code"] == "streamed",
        "made": pod_config["restores"],
        "rclone": pod_config["rclone"],
    }
    return frozenset(name for name, streamed in sent.items() if streamed)


def launch_document(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> LearnerLaunch:
    """Return the launch document of all learners; the pod adds number, environment and slots."""
    spec = request.spec
    return LearnerLaunch(
        request=request,
        learner=0,
        command=spec.framework.command,
        setup=spec.setup,
        shell="bash",
        cwd=config.MODEL,
        env={},
        secrets_file=f"{config.SECRETS}/secrets.json" if secret_names(request) else None,
        attempt_dir=config.ATTEMPT,
        log_dir=config.LOGS,
        log_dir_shared=results.shared,
        metrics=metrics_document(spec),
        stores=pod_stores(request, shares_data=bool(options.data_claim), shares_results=results.shared),
        retention=pod_retention(request),
    )


AGENT: Final = "<the agent>"
PROGRAM: Final = "<pod.sh>"


def make_plan(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> LaunchPlan:
    """Return the launch of a pod job as a value.

    Raises:
        LaunchRefused: the job has no image.
    """
    spec, attempt = request.spec, request.attempt
    if not spec.image:
        raise LaunchRefused(
            "The job has no image; the runner pod needs one.",
            hint="Name it with --image, or by framework: {name: custom, version: IMAGE}.",
            code="C101",
        )
    learners = tuple(
        LearnerPlan(
            number,
            learner_name(attempt.job_id, attempt.attempt, number),
            {"pod": learner_name(attempt.job_id, attempt.attempt, number), "index": number - 1},
        )
        for number in range(1, attempt.learners + 1)
    )
    return LaunchPlan(
        request=request,
        runner="pod",
        learners=learners,
        slots_per_learner=spec.gpus,
        cpus_per_learner=spec.cpus or 0.0,
        warnings=tuple(warnings_of(request, options)),
        notes=tuple(_notes(request, options, results)),
        objects=tuple(_objects(request, options, results)),
        results_lost_after_seconds=options.results_hold_seconds if results.kind == "hold" else 0.0,
    )


def _objects(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> Iterator[dict[str, Any]]:
    attempt = request.attempt
    named = labels(attempt)
    if results.kind == "owned":
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            # Of the job, not of an attempt: the next attempt continues with its content.
            "metadata": {
                "name": claim_name(attempt.job_id),
                "labels": {key: value for key, value in named.items() if key != "fabric.attempt"},
            },
            "spec": {
                "accessModes": ["ReadWriteMany" if results.shared else "ReadWriteOnce"],
                "resources": {"requests": {"storage": options.claim_size}},
                **({"storageClassName": options.storage_class} if options.storage_class else {}),
            },
        }
    pod_config = pod_document(request, options, results)
    whole = job(request, options, results)
    if pod_config["prepared_by"] == SIDE_CAR:
        pod = whole["spec"]["template"]["spec"]
        pod["initContainers"] = [one for one in pod["initContainers"] if one["name"] != PREPARE]
    if streamed_parts(pod_config):
        whole["spec"]["template"]["metadata"].setdefault("annotations", {})[AWAITS] = "yes"
    yield whole
    content = {
        "agent.pyz": AGENT,
        "pod.sh": PROGRAM,
        "pod.json": json.dumps(pod_config, indent=1, sort_keys=True),
    }
    content |= sh_agent_texts(pod_config)
    if code_transport(request) == "given":
        content[config.CODE] = f"<the code, {request.code_hash}>"
    yield _secret(given_name(attempt), named, content)
    if names := secret_names(request):
        values = json.dumps({name: f"<secret {name}>" for name in names})
        yield _secret(secrets_name(attempt), named, {"secrets.json": values, "secrets.sh": "<the same>"})
    if has_login(request):
        content = {DOCKER_CONFIG: f"<the login to {address_of(request)}>"}
        yield {**_secret(login_name(attempt), named, content), "type": "kubernetes.io/dockerconfigjson"}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": stem_of(attempt), "labels": named},
        "spec": {
            "clusterIP": "None",
            # Learners must resolve each other's names while they wait for each other.
            "publishNotReadyAddresses": True,
            "selector": {key: named[key] for key in ("fabric.home", "fabric.job", "fabric.attempt")},
        },
    }


def _secret(name: str, named: dict[str, str], content: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": named},
        "type": "Opaque",
        "immutable": True,
        "stringData": content,
    }


def refusals(request: LaunchRequest, options: PodOptions) -> list[str]:
    """Return why the job cannot run in pods; empty if it can."""
    return [
        *not_built(request.spec, "pod", POD, has_priority_classes=bool(options.priority_classes)),
        *pod_refusals(request, options),
        *patch_refusals(options.job_patch),
        *_login_refusals(request),
    ]


def _login_refusals(request: LaunchRequest) -> Iterator[str]:
    for key in ("identity_token", "registry_token"):
        if request.spec.framework.image_location.get(key):
            yield (
                f"{LOCATION}{key} cannot be used in a cluster, whose nodes log in by a user name and a password; write"
                " username: and password:"
            )


def warnings_of(request: LaunchRequest, options: PodOptions) -> Iterator[str]:
    """Yield warnings: what will not work, or differently from the manifest."""
    yield from refusals(request, options)
    platform = ("MODEL_DIR", "DATA_DIR", "RESULT_DIR", "JOB_STATE_DIR", "LOG_DIR", "CHECKPOINT_DIR")
    if hidden := sorted(set(request.spec.env) & set(platform)):
        yield f"env: cannot change {', '.join(hidden)}: fabric sets it"


def _notes(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> Iterator[str]:
    if options.run_as == "restricted":
        user = (
            f"as user {options.uid}" if options.uid is not None else "as the user that the namespace assigns"
        )
        yield f"the pod runs {user} (run_as restricted); run_as image takes the image's own user"
    else:
        yield "the pod runs as the image's own user (run_as image)"
    if request.spec.weight != DEFAULT_WEIGHT:
        yield "weight: a cluster knows none; its scheduler orders pods by their PriorityClass"
    yield from store_notes(request, pod_stores(request))
    if results.kind == "hold" and options.results_hold_seconds <= UNREAD_SECONDS:
        yield (
            "results are in the pod and are lost at its end: without the right to pods/exec nobody can fetch them;"
            " a data store or a claim keeps them"
        )
    elif results.kind == "hold":
        minutes = options.results_hold_seconds / 60
        yield (
            f"results are in the pod and are lost {minutes:g} minutes after the end unless they are fetched:"
            " a claim or a storage class keeps them"
        )
    elif results.kind != "store":
        location = (
            results.description or f"on the claim {results.claim or claim_name(request.attempt.job_id)}"
        )
        yield f"results lie {location}"
    if request.attempt.learners > 1 and not results.shared:
        yield "each learner has its own /job: it would be shared on a ReadWriteMany claim"
    if request.spec.python == "requirements":
        yield "requirements are installed in each pod by the image's own Python, before its command starts"
    if code_transport(request) == "streamed":
        yield "the code is too large for a Secret and is sent once the pods wait for it"
    if request.spec.memory_bytes is None:
        memory = formats.size(options.default_memory_bytes)
        yield f"memory: is not set: each learner gets {memory} (default_memory of the backend)"
    yield f"image {image_of(request)}"
