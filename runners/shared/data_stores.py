"""Where a job's data stores are seen at a place: what stands for ``DATA_DIR`` and its like, and what is refused. Pure.

Stores that are folders of the machine are used where they are. What travels lies in the job's own folders, and the
learner's agent brings it and stores it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import LaunchRequest
from runners.shared.host_facts import HostFacts
from workbench.data.stores.model import ADDRESSING, JobDataStore, remote_name, stores_of
from workbench.data.stores.types import TYPES
from workbench.paths import JobFolder
from workbench.spec import spec_to_json

CHOSEN: Final = "<chosen at launch>"
CHECKPOINTS: Final = "_checkpoints"
SHARED_CHECKPOINTS: Final = "_wml_checkpoints"
"""FfDL's folder for the checkpoints of all jobs of a container."""


@dataclass(frozen=True, slots=True)
class Data:
    """One store that is read."""

    store: JobDataStore
    variables: tuple[str, ...]
    """What names its folder to the command."""
    name: str
    """What the folder itself is called: the container's last part."""


@dataclass(frozen=True, slots=True)
class ResultFolders:
    """Where results go."""

    store: JobDataStore
    result_dir: str
    bucket_dir: str
    checkpoint_dir: str
    """At the place."""
    path: str
    """The job's own folder in the store."""
    checkpoints_path: str


def data_of(request: LaunchRequest) -> tuple[Data, ...]:
    """Return the stores that a job reads, the first being ``DATA_DIR``, the others ``DATA_DIR_1`` and so on."""
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
    """Return the variable that a store's data has by its id: ``DATA_DIR_SL_INTERNAL_OS``."""
    return "DATA_DIR_" + re.sub(r"[^A-Za-z0-9]", "_", store_id).upper()


def results_of(request: LaunchRequest, site: HostFacts) -> ResultFolders | None:
    """Return where results go; None where they stay with the job, or in a volume that is a container's business."""
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
    """Return the store that results go to: the first that has a container for them."""
    return next((store for store in stores_of(request.spec) if store.results_container), None)


def variables_of(request: LaunchRequest, site: HostFacts) -> dict[str, str]:
    """Return what stores change of the variables that a process sees."""
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
    """Return the folders that are to be made at the place before anything starts."""
    results = results_of(request, site)
    return [] if results is None else [results.result_dir, results.checkpoint_dir]


def stores_document(
    request: LaunchRequest, site: HostFacts, links: dict[str, str] | None = None
) -> dict[str, Any] | None:
    """Return what a learner's agent is told of data stores, without credentials; None where it has none to serve.

    Args:
        request: what is asked for.
        site: the place.
        links: paths by store id that are to lead to the data, for containers; without them variables are set.
    """
    before = dict(request.recorded.get("data") or {})
    fetch = [
        _fetched(data, (links or {}).get(data.store.id), before)
        for data in data_of(request)
        if data.store.is_copied
    ]
    results = results_of(request, site)
    origin = request.recorded.get("from")
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
    if results is not None:
        keep = request.spec.checkpoints
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
            "keep": {
                "last": keep.keep_last,
                "best": keep.keep_best,
                "metric": keep.metric,
                "smaller": keep.smaller_is_better,
            },
            "inside": {},
            "about": about(request),
        }
    return document


def about(request: LaunchRequest) -> dict[str, Any]:
    """Return what a checkpoint says of its job: enough to know how it was made, and no credential."""
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
    """Return the stores that the agent moves data of, each once."""
    used = {data.store.id: data.store for data in data_of(request) if data.store.is_copied}
    if results := results_of(request, site):
        used[results.store.id] = results.store
    return list(used.values())


def refusals(request: LaunchRequest, *, runner: str, agent_kind: str) -> Iterator[str]:
    """Say what of a job's stores cannot work in this way of starting learners."""
    stores = stores_of(request.spec)
    for store in stores:
        if store.type not in TYPES and not store.is_volume:
            yield f"a data store of type {store.type} ({store.id}) cannot be used; it was FfDL's own test double"
        elif store.is_volume and runner == "process":
            yield (
                f"the data store {store.id} is a volume, which only containers can use; take --runner container,"
                " or a host_path"
            )
    if agent_kind == "sh" and (request.recorded.get("from") or any(not store.is_volume for store in stores)):
        yield "data stores need Python 3.8 or newer on the backend, which brings the data in and stores the results"
    if len([store for store in stores if store.results_container]) > 1:
        yield "several data stores have training_results; keep one, results go to one place"


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
    """Say whether listing a store tells of its files' content at no cost."""
    return store.type not in ("sftp", "webdav", "http", "host_path", "mount_volume")


def data_link(job: JobFolder, attempt: int, learner: int, data: Data) -> str:
    """Return the path that leads to a store's data for a container, which binds it."""
    return str(job.attempt(attempt).learner(learner).path / "data" / data.name)


def copies_at(host: Host, cache: str) -> Sequence[Mapping[str, Any]]:
    """List the copies at a host, the longest unused first: ``folder``, ``container``, ``bytes``, ``in_use``, ...

    Args:
        host: the place.
        cache: the folder there that has them.
    """
    if not host.call("children", folder=cache):
        return []  # so a place with nothing but a shell, which has no data of stores, need not know more
    found: list[dict[str, Any]] = host.call("data_copies", cache=cache)
    return found


def drop_copies(host: Host, cache: str, keep_bytes: int) -> Sequence[str]:
    """Remove copies that no learner uses, the longest unused first, until so much is left; return their folders."""
    dropped: list[str] = host.call("drop_data_copies", cache=cache, keep_bytes=keep_bytes)
    return dropped
