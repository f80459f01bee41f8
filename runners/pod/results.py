"""Chooses the volume for a job's results before its launch, and downloads them afterwards."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.cluster import Absent, AlreadyThere, Cluster, Conflict, Denied, Document, Invalid
from backends.contract.host import Host
from runners.interface import AttemptRef, LaunchRequest, LearnerRef
from runners.pod.container_host import host_when_running
from runners.pod.journals import Journals, folder_of
from runners.pod.names import LEARNER, PREPARE, SIDE_CAR, labels, stem_of
from runners.pod.options import PodOptions
from runners.pod.status import has_side_car_ended, is_side_car_running
from runners.pod.stores import FETCH_ANNOTATION, RESULTS_ANNOTATION, stored_results
from runners.pod.template import ResultVolume
from runners.pod.volumes import bound_results, claims_of
from runners.pod.watch import ClusterCache
from runners.shared.download import download_folder
from workbench.errors import BackendUnreachable, FabricError, LaunchRefused
from workbench.learner.pod import config
from workbench.learner.pod.config import NO_PYTHON
from workbench.learner.pod.requirements import PACKAGE
from workbench.paths import JobFolder

DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_UNREAD_CLAIM: Final[Document] = {"spec": {}}
_LOOK_SECONDS: Final = 0.3
_END_SECONDS: Final = 30.0
_LOG_SECONDS: Final = 10.0
"""How long one download asks for the log with the installed packages before it fails, and is made again."""


def choose_results(cluster: Cluster | None, request: LaunchRequest, options: PodOptions) -> ResultVolume:
    """Choose the volume for a job's results: the backend's claim, a claim of the job, or the pod's own volume.

    Without a cluster, claims that are named are taken to exist, and to be no ReadWriteMany ones.

    Raises:
        LaunchRefused: a claim does not exist.
    """
    attempt = request.attempt
    stored = stored_results(request) is not None
    if cluster and options.data_claim and _is_missing(cluster, options.data_claim):
        raise LaunchRefused(
            f"There is no claim {options.data_claim} in the namespace {cluster.namespace}.",
            hint="Make it, or name another: data_claim of the backend.",
            code="C104",
        )
    for claim, store in claims_of(request).items():
        if cluster and _is_missing(cluster, claim):
            raise LaunchRefused(
                f"The data store {store} is the claim {claim}, and there is none in the namespace"
                f" {cluster.namespace}.",
                hint="kubectl get pvc shows those that are there: connection.name is one of them.",
                code="C104",
            )
    if bound := bound_results(request):
        source, folder, checkpoints = bound
        volume_name = next(str(next(iter(volume.values()))) for volume in source.values())
        return ResultVolume(
            "bound", source=source, own=(folder, checkpoints), description=f"in {folder} of {volume_name}"
        )
    if options.claim:
        found = cluster.read("PersistentVolumeClaim", options.claim) if cluster else _UNREAD_CLAIM
        if cluster and found is None:
            raise LaunchRefused(
                f"There is no claim {options.claim} in the namespace {cluster.namespace}.",
                hint="Make it, or name another: claim of the backend.",
                code="C104",
            )
        assert found is not None
        shared = "ReadWriteMany" in (found["spec"].get("accessModes") or ())
        if shared or attempt.learners == 1:
            folder = f"{attempt.home}/{attempt.job_id}"
            return ResultVolume("claim", options.claim, folder, shared)
    elif not stored and attempt.learners == 1 and _may_claim(cluster, options):
        return ResultVolume("owned")
    return ResultVolume("store" if stored else "hold")


def _is_missing(cluster: Cluster, claim: str) -> bool:
    with contextlib.suppress(Denied):  # without the right to read claims, the waiting pod reports it
        return cluster.read("PersistentVolumeClaim", claim) is None
    return False


def download_attempt(
    cluster: Cluster, cache: ClusterCache, journals: Journals, attempt: AttemptRef, job: JobFolder
) -> None:
    """Download results, checkpoints and logs into a job's folder here.

    They are read from pods that still run, or from a claim by a small pod. Results in an ended pod's own volume are
    lost; results in a data store stay there.
    """
    pods = cache.pods_of(attempt)
    attempt_folder = job.attempt(attempt.attempt)
    attempt_folder.path.mkdir(parents=True, exist_ok=True)
    for number, pod in sorted(pods.items()):
        ref = LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)
        host = None if _stays(pod) else _running_side_car(ref, pod, cache, journals)
        if host is not None and not _is_stored(host, ref, pod):
            _download(host, job, attempt, number)
            host.call("write_files", files={config.FETCHED: "\n"})
    if pods:
        _record_image(cluster, next(iter(pods.values())), attempt_folder.path / "environment.json")
    claimed = next((pod for pod in pods.values() if _claim_of(pod) and not _stays(pod)), None)
    if claimed is not None and has_side_car_ended(claimed):
        with _reader(cluster, attempt, claimed) as host:
            _download(host, job, attempt, 1)


def _stays(pod: Mapping[str, Any]) -> bool:
    """Return whether results are written directly into a data store and need not be downloaded."""
    annotations = pod["metadata"].get("annotations") or {}
    return annotations.get(RESULTS_ANNOTATION) == "bound" and FETCH_ANNOTATION not in annotations


def _is_stored(host: Host, ref: LearnerRef, pod: Mapping[str, Any]) -> bool:
    """Return whether all results of a learner were uploaded to its data store."""
    if (pod["metadata"].get("annotations") or {}).get(RESULTS_ANNOTATION) != "store":
        return False
    summary = host.call("read_object", path=f"{folder_of(ref)}/storing.json") or {}
    return bool(summary) and not summary.get("missing_files")


def _download(host: Host, job: JobFolder, attempt: AttemptRef, number: int) -> None:
    download_folder(host, config.RESULTS, job.results)
    download_folder(host, config.CHECKPOINTS, job.checkpoints)
    logs = job.attempt(attempt.attempt).logs
    download_folder(host, config.LOGS, logs if number == 1 else logs.with_name(f"logs-{number}"))


def _running_side_car(
    ref: LearnerRef, pod: Mapping[str, Any], cache: ClusterCache, journals: Journals
) -> Host | None:
    """Return the connection to a pod's side-car; None if it has ended or cannot be reached."""
    until = time.monotonic() + _END_SECONDS
    found: Mapping[str, Any] | None = pod
    while found is not None and is_side_car_running(found) and not has_side_car_ended(found):
        try:
            host = journals.host(ref, found)
            host.call("children", folder=config.RESULTS)
            return host
        except Denied:
            return None
        except (BackendUnreachable, Absent, Invalid) as error:
            if NO_PYTHON in error.message:
                return None
            if time.monotonic() > until:
                raise
            cache.wait(_LOOK_SECONDS)
            found = cache.pods_of(AttemptRef(ref.home, ref.job_id, ref.attempt, 0)).get(ref.learner)
    return None


def _may_claim(cluster: Cluster | None, options: PodOptions) -> bool:
    if cluster is None:
        return bool(options.storage_class)
    if not options.storage_class and not _has_default_class(cluster):
        return False
    return all(cluster.may(verb, "persistentvolumeclaims") for verb in ("create", "delete"))


def _has_default_class(cluster: Cluster) -> bool:
    with contextlib.suppress(FabricError):  # without the right to list them, none is assumed
        for one in cluster.list("StorageClass").items:
            if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true":
                return True
    return False


def _claim_of(pod: Document) -> str:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume["name"] == "results" and "persistentVolumeClaim" in volume:
            return str(volume["persistentVolumeClaim"]["claimName"])
    return ""


def _record_image(cluster: Cluster, pod: Document, path: Any) -> None:
    """Record the image with its digest, and the packages that were installed."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    image: Mapping[str, Any] = next((one for one in statuses if one["name"] == LEARNER), {})
    document = {
        "format": 1,
        "python": "",
        "key": "",
        "packages": _packages(cluster, pod),
        "image": {"reference": image.get("image", ""), "id": image.get("imageID", "")},
    }
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")


def _packages(cluster: Cluster, pod: Document) -> list[str]:
    """Return the installed packages of ``requirements:``, from the init container's log.

    Raises:
        FabricError: the log cannot be read now.
    """
    if not (pod["metadata"].get("annotations") or {}).get("fabric.requirements"):
        return []
    name = pod["metadata"]["name"]
    until = time.monotonic() + _LOG_SECONDS
    while True:
        try:
            log = b"".join(cluster.logs(name, PREPARE)).decode("utf-8", "replace")
            return [line[len(PACKAGE) :] for line in log.splitlines() if line.startswith(PACKAGE)]
        except (Absent, Denied):
            return []
        except FabricError:
            if time.monotonic() >= until:
                raise  # who fetches tries again, and names what does not come
            time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _reader(cluster: Cluster, attempt: AttemptRef, pod: Document) -> Any:
    """Start a small pod with the claim, connect to it as a host, and delete it afterwards."""
    name = f"{stem_of(attempt)}-reader"
    document = _reader_document(name, attempt, pod)
    with contextlib.suppress(AlreadyThere):
        cluster.create(document)
    what = f"The pod {name}, which reads the job's results,"
    try:
        with host_when_running(cluster, lambda: filter(None, [cluster.read("Pod", name)]), what) as host:
            yield host
    finally:
        with contextlib.suppress(Absent, Conflict):
            cluster.delete("Pod", name, grace_seconds=1)


def _reader_document(name: str, attempt: AttemptRef, pod: Document) -> dict[str, Any]:
    side_car = next(one for one in pod["spec"]["initContainers"] if one["name"] == SIDE_CAR)
    mounts = [one for one in side_car["volumeMounts"] if one["name"] in ("given", "results", "journal")]
    used = {one["name"] for one in mounts}
    kept = ("image", "imagePullPolicy", "securityContext", "resources")
    container = {key: side_car[key] for key in kept if key in side_car}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                **container,
                "name": SIDE_CAR,
                "command": ["sh", "-c", "sleep 3600"],
                "volumeMounts": mounts,
            }
        ],
        "volumes": [one for one in pod["spec"]["volumes"] if one["name"] in used],
        "activeDeadlineSeconds": 3600,
    }
    for key in ("securityContext", "imagePullSecrets", "tolerations"):
        if key in pod["spec"]:
            spec[key] = pod["spec"][key]
    named = {key: value for key, value in labels(attempt).items() if key != "fabric.attempt"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": named}, "spec": spec}
