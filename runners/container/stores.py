"""The mounts of data stores in a container: FfDL's paths below ``/mnt/data`` and ``/mnt/results``."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.shared.data_stores import (
    CHECKPOINTS,
    SHARED_CHECKPOINTS,
    Data,
    data_link,
    data_of,
    results_of,
    results_store,
    retention_document,
    stores_document,
)
from runners.shared.environment import job_folders
from runners.shared.host_facts import HostFacts
from workbench.data.stores.model import JobDataStore, stores_of

DATA: Final = "/mnt/data"
RESULTS: Final = "/mnt/results"
CHECKPOINTS_INSIDE: Final = "/mnt/checkpoints"
VOLUMES: Final = "/mnt/volumes"


def store_variables(request: LaunchRequest) -> dict[str, str]:
    """Return the environment variables that stores set for a command in a container."""
    variables: dict[str, str] = {}
    for data in data_of(request):
        variables |= dict.fromkeys(data.variables, _inside(data))
    store = results_store(request)
    if store is None:
        return variables
    job_id, shared = request.attempt.job_id, request.spec.checkpoints.shared
    bucket = _bucket_inside(store)
    variables |= {"RESULT_BUCKET_DIR": bucket, "RESULT_DIR": f"{bucket}/{job_id}"}
    if store.is_folder or store.is_volume:
        variables["CHECKPOINT_DIR"] = (
            f"{bucket}/{SHARED_CHECKPOINTS}" if shared else f"{bucket}/{job_id}/{CHECKPOINTS}"
        )
    return variables


def results_inside(request: LaunchRequest) -> str:
    """Return the mount path of the job's results folder; empty if the store's own folder is mounted instead."""
    store = results_store(request)
    if store is None:
        return RESULTS
    return "" if store.is_folder or store.is_volume else f"{_bucket_inside(store)}/{request.attempt.job_id}"


def store_mounts(request: LaunchRequest, learner: int, site: HostFacts) -> list[dict[str, Any]]:
    """Return the mounts of data stores for the engine."""
    found = []
    for data in data_of(request):
        if data.store.is_folder:
            found.append(_bind(data.store.data_path, _inside(data), read_only=data.store.read_only))
        elif data.store.is_copied:
            found.append(_bind(link_of(request, learner, site, data), _inside(data), read_only=True))
    volumes = {_volume_inside(store): store for store in stores_of(request.spec) if store.is_volume}
    for target, store in volumes.items():
        read_only = store.read_only and not store.results_container
        name = store.connection.get("name", "")
        found.append({"Type": "volume", "Source": name, "Target": target, "ReadOnly": read_only})
    results = results_of(request, site)
    if results is not None and results.store.is_folder:
        found.append(_bind(results.bucket_dir, _bucket_inside(results.store)))
    return found


def links_of(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, str]:
    """Return by store id the paths that the agent links to the data and the container mounts."""
    return {
        data.store.id: link_of(request, learner, site, data)
        for data in data_of(request)
        if data.store.is_copied
    }


def link_of(request: LaunchRequest, learner: int, site: HostFacts, data: Data) -> str:
    """Return the path that the agent links to a store's data."""
    return data_link(job_folders(request, site)[0], request.attempt.attempt, learner, data)


def container_stores(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, Any] | None:
    """Return the part of the launch document about stores for a learner in a container."""
    document = stores_document(request, site, links_of(request, learner, site))
    if document is not None and document["results"] is not None:
        variables = store_variables(request)
        inside = {variables.get("CHECKPOINT_DIR", CHECKPOINTS_INSIDE): document["checkpoint_dir"]}
        document["inside"] = {**inside, variables["RESULT_DIR"]: document["result_dir"]}
    return document


def container_retention(request: LaunchRequest, site: HostFacts) -> dict[str, Any] | None:
    """Return the part of the launch document about the checkpoints that are kept, where no store takes them."""
    folder = str(site.home.job(request.attempt.job_id).checkpoints)
    if results_store(request) is not None:
        return None
    return retention_document(request, folder, {CHECKPOINTS_INSIDE: folder})


def own_folders(request: LaunchRequest, site: HostFacts) -> dict[str, list[str]]:
    """Return this job's folders in a mounted result store, into which the image's user writes.

    They are relative to the store's folder, into which containers of other jobs write, too. That folder may be a
    link of the user: the appended ``/.`` follows it.
    """
    results = results_of(request, site)
    if results is None or not results.store.is_folder:
        return {}
    own = (results.result_dir, results.checkpoint_dir)
    return {
        f"{results.bucket_dir}/.": [str(PurePosixPath(path).relative_to(results.bucket_dir)) for path in own]
    }


def writable_stores(request: LaunchRequest, site: HostFacts) -> list[str]:
    """Return the folders of mounted stores that a container can write; ``/.`` follows a link of the user."""
    data = [one.store for one in data_of(request) if one.store.is_folder and not one.store.read_only]
    bound = {*(store.data_path for store in data), *store_folders(request, site).values()}
    return [f"{path}/." for path in sorted(bound)]


def store_folders(request: LaunchRequest, site: HostFacts) -> dict[str, str]:
    """Return the folder of a mounted result store on the host by its path in the container."""
    results = results_of(request, site)
    if results is None or not results.store.is_folder:
        return {}
    return {_bucket_inside(results.store): results.bucket_dir}


def _inside(data: Data) -> str:
    if data.store.is_volume:
        return str(PurePosixPath(_volume_inside(data.store), data.store.data_path))
    return f"{DATA}/{data.name}"


def _bucket_inside(store: JobDataStore) -> str:
    if store.is_volume:
        return str(PurePosixPath(_volume_inside(store), store.results_path()))
    return f"{RESULTS}/{PurePosixPath(store.results_container).name}"


def _volume_inside(store: JobDataStore) -> str:
    return f"{VOLUMES}/{store.connection.get('name', '')}"


def _bind(source: str, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
