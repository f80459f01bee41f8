"""Data stores that pods mount: claims, and folders of the nodes if the backend permits them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.pod.options import PodOptions
from runners.shared.bind_mounts import PRIVATE, target_of
from runners.shared.data_stores import CHECKPOINTS, SHARED_CHECKPOINTS, Data, data_of, results_store
from workbench.data.stores.model import JobDataStore, stores_of
from workbench.learner.pod import config

VOLUMES: Final = "/mnt/volumes"
RESULTS: Final = "results"
"""The name of the volume with results in the pod's spec."""


def inside(data: Data) -> str:
    """Return the path of a store's data in a pod."""
    if data.store.is_volume:
        return str(PurePosixPath(_point(data.store), data.store.data_path))
    return f"{config.DATA}/{data.name}"


def claims_of(request: LaunchRequest) -> dict[str, str]:
    """Return the claims among a job's stores, each with the id of the first store that names it."""
    found: dict[str, str] = {}
    for store in stores_of(request.spec):
        if store.is_volume:
            found.setdefault(store.connection.get("name", ""), store.id)
    return found


def bound_volumes(request: LaunchRequest) -> list[dict[str, Any]]:
    """Return the volumes of a pod for data stores, without the result store."""
    found = [
        {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims_of(request))
    ]
    for number, data in enumerate(data_of(request)):
        if data.store.is_folder:
            source = {"path": data.store.data_path, "type": "Directory"}
            found.append({"name": f"folder-{number}", "hostPath": source})
    for number, bound in enumerate(request.spec.bind_mounts):
        found.append({"name": f"bind-{number}", "hostPath": {"path": bound.host_path}})
    return found


def bound_mounts(request: LaunchRequest) -> list[dict[str, Any]]:
    """Return the mounts of these data stores in the learner's container."""
    written = {
        store.connection.get("name", "") for store in stores_of(request.spec) if not _is_only_read(store)
    }
    found = [
        {"name": f"claim-{number}", "mountPath": f"{VOLUMES}/{claim}", "readOnly": claim not in written}
        for number, claim in enumerate(claims_of(request))
    ]
    for number, data in enumerate(data_of(request)):
        if data.store.is_folder:
            mount = {"name": f"folder-{number}", "mountPath": inside(data), "readOnly": data.store.read_only}
            found.append(mount)
    for number, bound in enumerate(request.spec.bind_mounts):
        follows = {} if bound.propagation in PRIVATE else {"mountPropagation": "HostToContainer"}
        path = target_of(bound, config.MODEL)
        found.append({"name": f"bind-{number}", "mountPath": path, "readOnly": bound.read_only, **follows})
    return found


def bound_results(request: LaunchRequest) -> tuple[dict[str, Any], str, str] | None:
    """Return the volume source of a mounted result store, and its folders of results and checkpoints.

    None if the result store is not a claim or a folder of the node.
    """
    store = results_store(request)
    if store is None or store.is_copied:
        return None
    job_id = request.attempt.job_id
    checkpoints = (SHARED_CHECKPOINTS,) if request.spec.checkpoints.shared else (job_id, CHECKPOINTS)
    if store.is_volume:
        source = {"persistentVolumeClaim": {"claimName": store.connection.get("name", "")}}
        return source, store.results_path(job_id), store.results_path(*checkpoints)
    source = {"hostPath": {"path": store.results_path(), "type": "DirectoryOrCreate"}}
    return source, job_id, "/".join(checkpoints)


def one_volume_a_claim(pod: dict[str, Any]) -> dict[str, Any]:
    """Merge volumes of one claim in a pod's spec: a kubelet mounts a claim once and waits for a second volume."""
    first: dict[str, str] = {}
    instead: dict[str, str] = {}
    kept = []
    for volume in pod["volumes"]:
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        if claim and first.setdefault(claim, volume["name"]) != volume["name"]:
            instead[volume["name"]] = first[claim]
        else:
            kept.append(volume)
    if not instead:
        return pod

    def renamed(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                **one,
                "volumeMounts": [
                    {**each, "name": instead.get(each["name"], each["name"])} for each in one["volumeMounts"]
                ],
            }
            for one in containers
        ]

    return {
        **pod,
        "volumes": kept,
        "initContainers": renamed(pod["initContainers"]),
        "containers": renamed(pod["containers"]),
    }


def bound_refusals(request: LaunchRequest, options: PodOptions) -> Iterator[str]:
    """Yield why folders of machines among a job's stores cannot be used in pods."""
    results = results_store(request)
    for bound in request.spec.bind_mounts:
        if not options.host_paths:
            yield (
                f"the bind mount {bound.host_path} is a folder of a machine, and which machine a pod gets is not known;"
                " name a claim (type: volume in data_stores), or allow it where all machines have that folder:"
                " host_paths=true of the backend"
            )
        elif bound.propagation in ("shared", "rshared"):
            yield f"the bind mount {bound.host_path} asks for propagation {bound.propagation}, which pods do not have"
    if options.host_paths:
        if request.spec.fetch_results and results is not None and results.is_folder:
            yield "fetch_results of a folder of the nodes does not work in pods; name a claim or another store"
        return
    for store in stores_of(request.spec):
        if store.is_folder:
            yield (
                f"the data store {store.id} is a folder of a machine, and which machine a pod gets is not known;"
                " name a claim (type: volume), a store that is reached over the network, or allow it where all"
                " machines have that folder: host_paths=true of the backend"
            )


def _is_only_read(store: JobDataStore) -> bool:
    return store.read_only and not store.results_container


def _point(store: JobDataStore) -> str:
    return f"{VOLUMES}/{store.connection.get('name', '')}"
