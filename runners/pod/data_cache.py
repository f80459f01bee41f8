"""Gives access to the data cache on a cluster's claim by a small pod: the API cannot list a claim's files."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from backends.contract.cluster import Cluster, Invalid, OverQuota
from backends.contract.host import Host
from runners.pod.container_host import host_when_running
from runners.pod.launch import agent_archive, pod_program
from runners.pod.names import SIDE_CAR, as_owner
from runners.pod.options import PodOptions, options_of
from runners.pod.template import DATA_FOLDER, pod_security, security, small
from workbench.errors import LaunchRefused, RunnerError
from workbench.learner.pod import config

LIFE_SECONDS: Final = 900
"""After this time the cluster ends the pod, even if its creator is gone."""

_LABELS: Final = {"app.kubernetes.io/managed-by": "fabric", "fabric.looks-at": "data"}


@contextmanager
def data_claim(cluster: Cluster, image: str) -> Iterator[Host]:
    """Start a pod with the backend's ``data_claim`` and connect to it as a host; the copies are under ``config.CACHE``.

    Args:
        cluster: the cluster.
        image: the pod's image; it needs Python and is best one that the nodes have.

    Raises:
        RunnerError: the pod does not start within two minutes, or the quota is used up.
        LaunchRefused: the cluster refuses it.
        Denied: a right is missing.
    """
    options = options_of(cluster.options)
    name = f"fabric-data-{secrets.token_hex(4)}"
    job = _create(cluster, name, image, options)
    selector = f"batch.kubernetes.io/job-name={name}"
    what = f"The pod {name}, which looks at the copies,"
    try:
        with host_when_running(cluster, lambda: cluster.list("Pod", selector).items, what) as host:
            yield host
    finally:
        cluster.delete("Job", name, propagation="Background", uid=job["metadata"]["uid"])


def _create(cluster: Cluster, name: str, image: str, options: PodOptions) -> Mapping[str, Any]:
    try:
        job = cluster.create(_job(name, image, options))
        with contextlib.ExitStack() as undo:
            undo.callback(cluster.delete, "Job", name)
            cluster.create(_agent_secret(name, job))
            cluster.patch("Job", name, {"spec": {"suspend": False}})
            undo.pop_all()
    except OverQuota as error:
        raise RunnerError(f"The namespace's quota is used up: {error.message}", hint=error.hint) from error
    except Invalid as error:
        raise LaunchRefused(
            f"The cluster refuses the pod: {error.message}", hint=error.hint, code="C104"
        ) from error
    return job


def _job(name: str, image: str, options: PodOptions) -> dict[str, Any]:
    mounts = [
        {"name": "given", "mountPath": config.GIVEN, "readOnly": True},
        {"name": "journal", "mountPath": config.JOURNAL},
        {"name": "cache", "mountPath": config.CACHE, "subPath": DATA_FOLDER},
    ]
    container = {
        "name": SIDE_CAR,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", f"exec sleep {LIFE_SECONDS}"],
        "securityContext": security(options),
        "resources": small(options),
        "volumeMounts": mounts,
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(options),
        "nodeSelector": dict(options.node_selector),
        "tolerations": list(options.tolerations),
        "imagePullSecrets": [{"name": one} for one in options.image_pull_secrets],
        "containers": [container],
        "volumes": [
            {"name": "given", "secret": {"secretName": name, "defaultMode": 0o444}},
            {"name": "journal", "emptyDir": {}},
            {"name": "cache", "persistentVolumeClaim": {"claimName": options.data_claim}},
        ],
    }
    labels = {**options.labels, **_LABELS}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": LIFE_SECONDS,
            "ttlSecondsAfterFinished": 0,
            "suspend": True,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _agent_secret(name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    content = {"agent.pyz": agent_archive().read_bytes(), "pod.sh": pod_program()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": _LABELS, "ownerReferences": [as_owner(job)]},
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }
