"""The folders and variables (``DATA_DIR``, ``RESULT_DIR``, ...) of a job's data stores on a host. Pure.

Stores that are folders of the machine are used directly. Data of other stores is downloaded into the job's own
folders by the learner's agent, which also uploads the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import LaunchRequest
from runners.shared.host_facts import HostFacts
from workbench.data.stores.model import ADDRESSING, JobDataStore, remote_name, stores_of
from workbench.data.stores.types import TYPES
from workbench.paths import JobFolder
from workbench.spec import spec_to_json
from workbench.values import dataclass

CHOSEN: Final = "<chosen at launch>"
CHECKPOINTS: Final = "_checkpoints"
SHARED_CHECKPOINTS: Final = "_wml_checkpoints"
"""FfDL's folder with the checkpoints of all jobs in a bucket."""


@dataclass(frozen=True, slots=True)
class Data:
    """A data store that the job reads."""

    store: JobDataStore
    variables: tuple[str, ...]
    """The environment variables that name its folder."""
    name: str
    """The name of the folder: the last part of the store's container."""


@dataclass(frozen=True, slots=True)
class ResultFolders:
    """The result store of a job, with the folders on the host and the paths in the store."""

    store: JobDataStore
    result_dir: str
    bucket_dir: str
    checkpoint_dir: str
    """This and the folders above are paths on the host."""
    path: str
    """The folder of the job in the store."""
    checkpoints_path: str


def data_of(request: LaunchRequest) -> tuple[Data, ...]:
    """Return the stores that a job reads: the first is ``DATA_DIR``, the next ``DATA_DIR_1`` and so on."""
    read = [store for store in stores_of(request.spec) if store.container]
    found: list[Data] = []
    names: set[str] = set()
    for number, store in enumerate(read):
        name = PurePosixPath(store.data_path).name or store.id
        while name in names:
            name += "_"
        names.add(name)
        variables = ["DATA_DIR" if number == 0 else f"DATA_DIR_{number}", variable_of(store.id)]
        found.append(Data(store, tuple(variables), name))
    return tuple(found)


def variable_of(store_id: str) -> str:
    """Return the variable for a store's folder by the store's id: ``DATA_DIR_SL_INTERNAL_OS``."""
    return "DATA_DIR_" + re.sub(r"[^A-Za-z0-9]", "_", store_id).upper()


def results_of(request: LaunchRequest, site: HostFacts) -> ResultFolders | None:
    """Return the folders of the result store; None without one, or if it is a volume (containers mount it)."""
    job = site.home.job(request.attempt.job_id)
    store = results_store(request)
    if store is None or store.is_volume:
        return None
    job_id, shared = request.attempt.job_id, request.spec.checkpoints.shared
    path = store.results_path(job_id)
    checkpoints = (
        store.results_path(SHARED_CHECKPOINTS) if shared else store.results_path(job_id, CHECKPOINTS)
    )
    if store.is_folder:
        return ResultFolders(store, path, store.results_path(), checkpoints, path, checkpoints)
    folder = str(job.results)
    return ResultFolders(store, folder, folder, str(job.checkpoints), path, checkpoints)


def results_store(request: LaunchRequest) -> JobDataStore | None:
    """Return the result store: the first store with a container for results."""
    return next((store for store in stores_of(request.spec) if store.results_container), None)


def moved_at(request: LaunchRequest) -> int:
    """Return the attempt with which a job last went on at another backend; 0 for one that has not."""
    return int((request.recorded.get("moved") or {}).get("attempt") or 0)


def origin_of(request: LaunchRequest) -> Mapping[str, Any] | None:
    """Return which checkpoint of another job, and where, this one begins with; None where it begins with none.

    One that went on at another backend has begun: it finds its own there, and not the folder of the machine before.
    """
    origin: Mapping[str, Any] | None = request.recorded.get("from")
    return None if origin and origin.get("local") and moved_at(request) else origin


def variables_of(request: LaunchRequest, site: HostFacts) -> dict[str, str]:
    """Return the environment variables that stores set for a process."""
    variables: dict[str, str] = {}
    for data in data_of(request):
        variables |= dict.fromkeys(data.variables, data.store.data_path if data.store.is_folder else CHOSEN)
    if results := results_of(request, site):
        variables |= {
            "RESULT_DIR": results.result_dir,
            "RESULT_BUCKET_DIR": results.bucket_dir,
            "CHECKPOINT_DIR": results.checkpoint_dir,
        }
    return variables


def folders_of(request: LaunchRequest, site: HostFacts) -> list[str]:
    """Return the folders that must exist on the host before the learners start."""
    results = results_of(request, site)
    return [] if results is None else [results.result_dir, results.checkpoint_dir]


def stores_document(
    request: LaunchRequest, site: HostFacts, links: dict[str, str] | None = None
) -> dict[str, Any] | None:
    """Return the part of the launch document about data stores, without credentials; None if the agent moves no data.

    Args:
        request: the attempt.
        site: the host.
        links: for containers, the paths that the agent links to the data, by store id; without them it sets variables.
    """
    before = dict(request.recorded.get("data") or {})
    fetch = [
        _fetched(data, (links or {}).get(data.store.id), before)
        for data in data_of(request)
        if data.store.is_copied
    ]
    results = results_of(request, site)
    origin = origin_of(request)
    if not fetch and results is None and not origin:
        return None
    document: dict[str, Any] = {
        "rclone": CHOSEN,
        "cache": str(site.home.data),
        "cache_bytes": request.recorded.get("data_cache_bytes"),
        "upload_seconds": request.spec.upload_seconds,
        "patience_seconds": None,
        "fetch": fetch,
        "from": origin,
        "results": None,
        "checkpoint_dir": str(site.home.job(request.attempt.job_id).checkpoints),
    }
    if request.attempt.part:
        document |= {"compares": True, "restores": True}
    if results is not None:
        document |= {
            "results": {
                "id": results.store.id,
                "remote": remote_name(results.store.id),
                "address": results.store.address,
                "path": results.path,
                "bound": results.store.is_folder,
            },
            "result_dir": results.result_dir,
            "checkpoint_dir": results.checkpoint_dir,
            "checkpoints": results.checkpoints_path,
            "keep": _policy(request),
            "inside": {},
            "about": about(request),
        }
    return document


def retention_document(
    request: LaunchRequest, checkpoint_dir: str, inside: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """Return which checkpoints the agent keeps where it uploads none; None without a policy.

    Args:
        request: the attempt.
        checkpoint_dir: the folder of the checkpoints as the agent has it.
        inside: for containers, the agent's folder by the path in the container.
    """
    if not keeps_some(request):
        return None
    return {
        "upload_seconds": request.spec.upload_seconds,
        "checkpoint_dir": checkpoint_dir,
        "keep": _policy(request),
        "inside": dict(inside or {}),
        "about": about(request),
    }


def keeps_some(request: LaunchRequest) -> bool:
    """Say whether the job keeps only some of its checkpoints."""
    return bool(request.spec.checkpoints.keep_last or request.spec.checkpoints.keep_best)


def _policy(request: LaunchRequest) -> dict[str, Any]:
    keep = request.spec.checkpoints
    return {
        "last": keep.keep_last,
        "best": keep.keep_best,
        "metric": keep.metric,
        "smaller": keep.smaller_is_better,
    }


def about(request: LaunchRequest) -> dict[str, Any]:
    """Return what is recorded with a checkpoint about its job: the spec without credentials."""
    spec = spec_to_json(request.spec)
    for store in spec["data_stores"]:
        store["connection"] = {
            key: store["connection"][key] for key in ADDRESSING if key in store["connection"]
        }
    spec["framework"].pop("image_location", None)
    return {
        "name": request.spec.name,
        "code_hash": request.code_hash,
        "params": dict(request.spec.params),
        "framework": {"name": request.spec.framework.name, "version": request.spec.framework.version},
        "manifest": spec,
    }


def used_remotes(request: LaunchRequest, site: HostFacts) -> list[JobDataStore]:
    """Return the stores whose data the agent transfers, without duplicates."""
    used = {data.store.id: data.store for data in data_of(request) if data.store.is_copied}
    if results := results_of(request, site):
        used[results.store.id] = results.store
    return list(used.values())


def refusals(request: LaunchRequest, *, runner: str, agent_kind: str) -> Iterator[str]:
    """Yield why a job's stores cannot be used with a runner and agent."""
    stores = stores_of(request.spec)
    for store in stores:
        if store.type not in TYPES and not store.is_volume:
            yield f"a data store of type {store.type} ({store.id}) cannot be used; it was for FfDL's own tests"
        elif store.is_volume and runner == "process":
            yield (
                f"the data store {store.id} is a volume, which only containers can use; use --runner container,"
                " or a host_path"
            )
    if agent_kind == "sh" and (origin_of(request) or any(not store.is_volume for store in stores)):
        yield "data stores need Python 3.8 or newer on the backend, which brings the data in and stores the results"
    if len([store for store in stores if store.results_container]) > 1:
        yield "several data stores have training_results; keep one of them"


def _fetched(data: Data, link: str | None, before: Mapping[str, str]) -> dict[str, Any]:
    store = data.store
    return {
        "id": store.id,
        "remote": remote_name(store.id),
        "address": store.address,
        "path": store.data_path,
        "key": store.key,
        "etags": etags_of(store),
        "container": data.name,
        "mode": store.mode,
        "others": link is not None,
        "variables": list(data.variables),
        "link": link,
        "before": before.get(store.id, ""),
    }


def etags_of(store: JobDataStore) -> bool:
    """Return whether a store's listing includes content hashes without extra requests."""
    return store.type not in ("sftp", "webdav", "http", "host_path", "mount_volume")


def data_link(job: JobFolder, attempt: int, learner: int, data: Data) -> str:
    """Return the path that the agent links to a store's data and the container mounts."""
    return str(job.attempt(attempt).learner(learner).path / "data" / data.name)


def copies_at(host: Host, cache: str) -> Sequence[Mapping[str, Any]]:
    """List the cached copies of stores' data, least recently used first: ``folder``, ``bytes``, ``in_use``, ...

    Args:
        host: the host.
        cache: the cache's folder on the host.
    """
    if not host.call("children", folder=cache):
        return []  # hosts with nothing but a shell have no cache, and not the operation below
    found: list[dict[str, Any]] = host.call("data_copies", cache=cache)
    return found


def drop_copies(host: Host, cache: str, keep_bytes: int) -> Sequence[str]:
    """Remove unused copies, least recently used first, until at most ``keep_bytes`` are left; return their folders."""
    dropped: list[str] = host.call("drop_data_copies", cache=cache, keep_bytes=keep_bytes)
    return dropped
