"""The copies of stores' data on a cluster's claim: a pod looks at them, of an image that is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.services.transfer.data_cache import LOOKED_AT
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from backends.contract.cluster import Cluster
    from backends.contract.host import Backend


def copies_on(backend: Backend, cluster: Cluster) -> list[Mapping[str, Any]]:
    """List the copies on a cluster's claim, the longest unused first; nothing where no job of ours has made one.

    Raises:
        UsageError: it has no claim for them.
        FabricError: the pod that looks at them does not start.
    """
    from runners.pod.data_cache import data_claim
    from runners.shared.x_data_copies import copies_at
    from workbench.learner.pod.config import CACHE

    if not cluster.options.get("data_claim"):
        raise UsageError(
            f"{backend.name} is a cluster, and each of its pods has a copy of its own",
            hint="with data_claim in its configuration jobs share them",
        )
    image = image_at(backend)
    if not image:
        return []
    narrate(f"a pod of {image} looks at the claim {cluster.options['data_claim']}")
    with data_claim(cluster, image) as host:
        return list(copies_at(host, CACHE))


def drop_on(backend: Backend, keep_bytes: int) -> Sequence[str]:
    """Remove copies that no job uses, the longest unused first, until so many bytes are left; return their folders."""
    from backends.contract.cluster import Cluster
    from runners.pod.data_cache import data_claim
    from runners.shared.x_data_copies import drop_copies
    from workbench.learner.pod.config import CACHE

    cluster = backend.open()
    assert isinstance(cluster, Cluster)
    with closing(cluster), data_claim(cluster, image_at(backend)) as host:
        return drop_copies(host, CACHE, keep_bytes)


def image_at(backend: Backend) -> str:
    """Return the image of our newest job there that had data of a store; empty where there was none."""
    from runners.container.plan import reference_of
    from workbench.data.stores.model import stores_of
    from workbench.services.open_store import existing_store
    from workbench.store.queries.jobs import detail, list_jobs

    address = backend.frozen("pod").address
    with existing_store() as store:
        if store is None:
            return ""
        for row in list_jobs(store, limit=LOOKED_AT):
            if row.place.type != backend.type or row.place.address != address:
                continue
            spec = detail(store, row.id).spec
            if not spec.build and any(each.is_copied for each in stores_of(spec)):
                return reference_of(spec.framework)
    return ""
