"""Data stores in pods: the launch document's part, environment variables, secrets, and what is refused.

The learner's agent downloads the data and uploads results at the end; the side-car uploads new results meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.pod.options import PodOptions
from runners.pod.volumes import bound_refusals, inside
from runners.shared.data_stores import (
    data_of,
    origin_of,
    results_of,
    results_store,
    retention_document,
    stores_document,
)
from runners.shared.data_stores import refusals as of_stores
from runners.shared.host_facts import HostFacts
from runners.shared.registry_login import learner_secrets
from runners.shared.store_setup import CACHE_BYTES, PATIENCE, remotes_text
from workbench.data.stores.model import JobDataStore
from workbench.learner.pod import config
from workbench.learner.stores.config import REMOTES
from workbench.paths import Home

ANNOTATION: Final = "fabric.stores"
"""Annotation of a pod with data stores: its agent reports phases that the cluster does not know."""

RESULTS_ANNOTATION: Final = "fabric.results"
"""Annotation of a pod: the kind of the volume with its results."""

FETCH_ANNOTATION: Final = "fabric.fetch"
"""Annotation of a pod whose results are downloaded although they are in a data store."""

POD_FACTS: Final = HostFacts(
    home=Home(Path(config.JOURNAL)),
    here=False,
    hostname="the pod",
    system="Linux",
    python="python3",
    environment={},
    processors=(),
    memory_bytes=0,
    leases="",
    bash="",
    uv="",
)
"""The facts of a pod as a host; the paths are the same in all pods."""


def pod_stores(
    request: LaunchRequest, *, shares_data: bool = False, shares_results: bool = False
) -> dict[str, Any] | None:
    """Return the part of the launch document about data stores, without credentials; None if no data is moved.

    Args:
        request: the attempt.
        shares_data: whether copies of data are on a claim that jobs share.
        shares_results: whether all learners share one folder of results.
    """
    document = stores_document(request, POD_FACTS)
    store = results_store(request)
    if document is None:
        return None
    if store is not None and not store.is_copied:
        # Results are written into the store directly.
        document = {**document, "results": None}
        if not document["fetch"] and not document["from"]:
            return None
    into = {data.store.id: inside(data) for data in data_of(request)}
    lead = "link" if shares_data else "into"
    fetch = [{**one, lead: into[one["id"]]} for one in document["fetch"]]
    stores = {
        **document,
        "rclone": config.RCLONE,
        "cache": config.CACHE if shares_data else config.ARRIVING,
        "cache_bytes": int(os.environ.get(CACHE_BYTES) or 0) or None,
        "fetch": fetch,
        "checkpoint_dir": config.CHECKPOINTS,
        "patience_seconds": float(os.environ.get(PATIENCE) or 0) or None,
        # By the side-car: uploads must not use the memory of the command.
        "uploads_elsewhere": True,
        "compares": shares_results and request.attempt.learners > 1,
    }
    if document["results"] is not None:
        stores["result_dir"] = config.RESULTS
    return stores


def pod_retention(request: LaunchRequest) -> dict[str, Any] | None:
    """Return the part of the launch document about the checkpoints that are kept, where they are not uploaded."""
    return None if stored_results(request) else retention_document(request, config.CHECKPOINTS)


def store_variables(request: LaunchRequest) -> dict[str, str]:
    """Return the environment variables that stores set for a command in a pod."""
    variables: dict[str, str] = {}
    for data in data_of(request):
        variables |= dict.fromkeys(data.variables, inside(data))
    return variables


def stored_results(request: LaunchRequest) -> JobDataStore | None:
    """Return the store to which results are uploaded; None if they stay in the cluster."""
    store = results_store(request)
    return store if store is not None and store.is_copied else None


def secret_values(request: LaunchRequest) -> dict[str, str]:
    """Return the content of the job's Secret: its secrets and rclone's configuration.

    Raises:
        LaunchRefused: a credential has no value.
    """
    if not pod_stores(request):
        return dict(learner_secrets(request))
    return {**learner_secrets(request), REMOTES: remotes_text(request, POD_FACTS)}


def secret_names(request: LaunchRequest) -> list[str]:
    """Return the names in the job's Secret; empty if it needs none."""
    stores = [REMOTES] if pod_stores(request) else []
    return sorted({*request.spec.secrets, *learner_secrets(request), *stores})


def pod_refusals(request: LaunchRequest, options: PodOptions) -> Iterator[str]:
    """Yield why a job's stores cannot be used in pods."""
    yield from of_stores(request, runner="pod", agent_kind="python")
    yield from bound_refusals(request, options)
    origin = origin_of(request) or {}
    if origin.get("local"):
        yield (
            f"the checkpoint of {origin.get('job')} is on a machine that pods cannot reach; give both jobs the same"
            " result store"
        )


def store_notes(request: LaunchRequest, stores: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield remarks about where data comes from and results go."""
    if stores is None:
        return
    for data in data_of(request):
        if not data.store.is_copied:
            continue
        yield f"{data.store.data_path} of the data store {data.store.id} is downloaded into each pod: {inside(data)}"
    found = results_of(request, POD_FACTS)
    if found is not None and found.store.is_copied:
        every = f"every {request.spec.upload_seconds:g} s and " if request.spec.upload_seconds > 0 else ""
        yield (
            f"results are uploaded {every}at the end to {found.path} of the data store {found.store.id},"
            " by the pod; it keeps its GPUs until the upload is done"
        )
    yield "rclone, about 30 MB packed, is sent to each pod unless its image contains it"
