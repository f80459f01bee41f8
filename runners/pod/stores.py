"""What data stores are to a pod: folders of its volumes, rclone that is sent to it, claims for volumes, and refusals.

The learner's agent brings the data in and stores what is left at the end; the side-car stores what is new meanwhile.
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
    results_of,
    results_store,
    stores_document,
)
from runners.shared.data_stores import refusals as of_stores
from runners.shared.host_facts import HostFacts
from runners.shared.store_setup import CACHE_BYTES, PATIENCE, remotes_text
from workbench.data.stores.model import JobDataStore
from workbench.learner.pod import config
from workbench.learner.stores.config import REMOTES
from workbench.paths import Home

ANNOTATION: Final = "fabric.stores"
"""Of a pod whose learner brings data in or stores results: its agent says more of it than the cluster does."""

RESULTS_ANNOTATION: Final = "fabric.results"
"""Of a pod: where its results lie, by the kind of it."""

FETCH_ANNOTATION: Final = "fabric.fetch"
"""Of a pod whose results come home though they are in a data store."""

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
"""A pod as a place: its paths are the same for all."""


def pod_stores(
    request: LaunchRequest, *, shares_data: bool = False, shares_results: bool = False
) -> dict[str, Any] | None:
    """Return what a learner's agent is told of data stores, without credentials; None where it has none to serve.

    Args:
        request: what is asked for.
        shares_data: whether copies of data lie on a claim, for other jobs too.
        shares_results: whether all learners see the same folder of results, and store what is in it.
    """
    document = stores_document(request, POD_FACTS)
    store = results_store(request)
    if document is None:
        return None
    if store is not None and not store.is_copied:
        # They are written where they are to be.
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
        # What the command may use of memory is its own while it runs.
        "uploads_elsewhere": True,
        "compares": shares_results and request.attempt.learners > 1,
    }
    if document["results"] is not None:
        stores["result_dir"] = config.RESULTS
    return stores


def store_variables(request: LaunchRequest) -> dict[str, str]:
    """Return what stores change of the variables that a command in a pod sees."""
    variables: dict[str, str] = {}
    for data in data_of(request):
        variables |= dict.fromkeys(data.variables, inside(data))
    return variables


def stored_results(request: LaunchRequest) -> JobDataStore | None:
    """Return the store that results are sent to; None where they stay in the cluster."""
    store = results_store(request)
    return store if store is not None and store.is_copied else None


def secret_values(request: LaunchRequest) -> dict[str, str]:
    """Return what goes into the job's Secret: its secrets, and what rclone is told of stores.

    Raises:
        LaunchRefused: a credential has no value.
    """
    if not pod_stores(request):
        return dict(request.secrets)
    return {**request.secrets, REMOTES: remotes_text(request, POD_FACTS)}


def secret_names(request: LaunchRequest) -> list[str]:
    """Name what that Secret holds; nothing where there is none."""
    stores = [REMOTES] if pod_stores(request) else []
    return sorted({*request.spec.secrets, *request.secrets, *stores})


def pod_refusals(request: LaunchRequest, options: PodOptions) -> Iterator[str]:
    """Say what of a job's stores cannot be in a pod."""
    yield from of_stores(request, runner="pod", agent_kind="python")
    yield from bound_refusals(request, options)
    origin = request.recorded.get("from") or {}
    if origin.get("local"):
        yield (
            f"the checkpoint of {origin.get('job')} is on a machine that pods do not reach; give both jobs the same"
            " result store"
        )


def store_notes(request: LaunchRequest, stores: Mapping[str, Any] | None) -> Iterator[str]:
    """Say where data comes from and results go."""
    if stores is None:
        return
    for data in data_of(request):
        if not data.store.is_copied:
            continue
        yield f"{data.store.data_path} of the data store {data.store.id} is copied into each pod: {inside(data)}"
    found = results_of(request, POD_FACTS)
    if found is not None and found.store.is_copied:
        every = f"every {request.spec.upload_seconds:g} s and " if request.spec.upload_seconds > 0 else ""
        yield (
            f"results are stored {every}at the end in {found.path} of the data store {found.store.id},"
            " from the pod; its GPUs are held until that is done"
        )
    yield "rclone, about 30 MB packed, is sent to each pod that waits for it, unless its image has it"
