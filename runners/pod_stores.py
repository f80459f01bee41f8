"""What data stores are to a pod: folders of its volumes, rclone that is sent to it, claims for volumes, and refusals.

The learner's agent brings the data in and stores what is left at the end; the side-car stores what is new meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.process_site import Site
from runners.store_places import (
    Data,
    data_of,
    results_of,
    results_store,
    stores_document,
    used_remotes,
)
from runners.store_places import refusals as of_stores
from runners.storing import PATIENCE, remotes_text
from workbench.data.stores import Store
from workbench.learner import pod_told
from workbench.learner.stores import REMOTES
from workbench.paths import Home

ANNOTATION: Final = "fabric.stores"
"""Of a pod whose learner brings data in or stores results: its agent says more of it than the cluster does."""

SITE: Final = Site(
    home=Home(Path(pod_told.JOURNAL)),
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


def pod_stores(request: LaunchRequest) -> dict[str, Any] | None:
    """Return what a learner's agent is told of data stores, without credentials; None where it has none to serve."""
    document = stores_document(request, SITE)
    if document is None:
        return None
    into = {data.store.id: inside(data) for data in data_of(request)}
    fetch = [{**one, "into": into[one["id"]]} for one in document["fetch"]]
    told = {
        **document,
        "rclone": pod_told.RCLONE,
        "cache": pod_told.ARRIVING,
        "fetch": fetch,
        "checkpoint_dir": pod_told.CHECKPOINTS,
        "patience_seconds": float(os.environ.get(PATIENCE) or 0) or None,
        # What the command may use of memory is its own while it runs.
        "uploads_elsewhere": True,
    }
    if document["results"] is not None:
        told["result_dir"] = pod_told.RESULTS
    return told


def store_variables(request: LaunchRequest) -> dict[str, str]:
    """Return what stores change of the variables that a command in a pod sees."""
    told: dict[str, str] = {}
    for data in data_of(request):
        told |= dict.fromkeys(data.variables, inside(data))
    return told


def inside(data: Data) -> str:
    """Return where a store's data is seen."""
    return f"{pod_told.DATA}/{data.name}"


def stored_results(request: LaunchRequest) -> Store | None:
    """Return the store that results are sent to; None where they stay in the cluster."""
    store = results_store(request)
    return store if store is not None and store.is_copied else None


def secret_values(request: LaunchRequest) -> dict[str, str]:
    """Return what goes into the job's Secret: its secrets, and what rclone is told of stores.

    Raises:
        LaunchRefused: a credential has no value.
    """
    if not used_remotes(request, SITE):
        return dict(request.secrets)
    return {**request.secrets, REMOTES: remotes_text(request, SITE)}


def secret_names(request: LaunchRequest) -> list[str]:
    """Name what that Secret holds; nothing where there is none."""
    stores = [REMOTES] if used_remotes(request, SITE) else []
    return sorted({*request.spec.secrets, *request.secrets, *stores})


def pod_refusals(request: LaunchRequest) -> Iterator[str]:
    """Say what of a job's stores cannot be in a pod."""
    yield from of_stores(request, runner="pod", agent_kind="python")
    for data in data_of(request):
        if data.store.is_folder:
            yield _no_folder(data.store)
        elif data.store.is_volume:
            yield _no_volume(data.store)
    results = results_store(request)
    if results is not None and not results.is_copied:
        yield _no_volume(results) if results.is_volume else _no_folder(results)


def store_notes(request: LaunchRequest, stores: Mapping[str, Any] | None) -> Iterator[str]:
    """Say where data comes from and results go."""
    if stores is None:
        return
    for data in data_of(request):
        yield f"{data.store.data_path} of the data store {data.store.id} is copied into each pod: {inside(data)}"
    found = results_of(request, SITE)
    if found is not None:
        every = f"every {request.spec.upload_seconds:g} s and " if request.spec.upload_seconds > 0 else ""
        yield (
            f"results are stored {every}at the end in {found.path} of the data store {found.store.id},"
            " from the pod; its GPUs are held until that is done"
        )
    yield "rclone, about 30 MB packed, is sent to each pod that waits for it, unless its image has it"


def _no_folder(store: Store) -> str:
    return (
        f"the data store {store.id} is a folder of a machine, and which machine a pod gets is not known;"
        " name a claim (type: volume), or a store that is reached over the network"
    )


def _no_volume(store: Store) -> str:
    return (
        f"the data store {store.id} is a volume, which pods cannot use yet; name it in volumes of the backend"
    )
