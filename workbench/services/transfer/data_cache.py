"""The copies of stores' data that backends keep for jobs: lists them, and removes what no job uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import FabricError, InputMissing, UsageError
from workbench.formats import iso
from workbench.paths import Home, default_home
from workbench.services.transfer.events import Report, TransferNotice, ignore
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.cluster import Cluster
    from backends.contract.host import Backend, BackendOptions
    from workbench.documents.files import DataDocument

EXAMINED_JOBS = 500
"""How many of the newest jobs are read for the store that a copy is of, and for the image that a backend has."""


@dataclass(frozen=True, slots=True)
class CachedContainer:
    """A backend's copy of one container of a store."""

    backend: str
    container: str
    store: str
    """The store's address; empty where no known job reads it."""
    files: int
    size_bytes: int
    fingerprint: str
    used_us: int
    """When a job last used it; 0 where that is not known."""
    in_use: bool
    whole: bool
    """Whether all of the container is there."""
    folder: str
    """Where it lies at its backend."""


@dataclass(frozen=True, slots=True)
class DataCache:
    """The copies that one backend has."""

    backend: str
    containers: tuple[CachedContainer, ...]
    """The one used last first."""
    drop: Callable[[int], Sequence[str]]
    """Removes what no job uses, the longest unused first, until so many bytes are left (-1: all); returns folders."""

    @property
    def unused(self) -> tuple[CachedContainer, ...]:
        """The copies that no job uses now."""
        return tuple(each for each in self.containers if not each.in_use)


def data_caches(backend: str = "", report: Report = ignore) -> list[DataCache]:
    """Read the copies of one backend, or of this machine and every host of the configuration.

    Without a name, backends that would have to be started for it are left out, and ``report`` takes a notice for
    each that cannot be asked.

    Raises:
        FabricError: the backend that was named cannot be asked.
    """
    from workbench.services.backends.placement import DEFAULT, backend_options, known_backends

    if backend:
        return list(_read(backend_options(backend), report, named=True))
    found: list[DataCache] = []
    for name in known_backends():
        try:
            found += _read(backend_options(name), report)
        except FabricError as error:
            if name == DEFAULT:
                raise
            report(TransferNotice(f"{name} could not be asked: {error}"))
    return found


def drop_unused(caches: Sequence[DataCache], keep_bytes: int = -1) -> list[CachedContainer]:
    """Remove what no job uses, of each backend until so many bytes are left (-1: all); return what was removed."""
    removed: list[CachedContainer] = []
    for cache in caches:
        folders = set(cache.drop(keep_bytes)) if cache.containers else set()
        removed += [each for each in cache.containers if each.folder in folders]
    return removed


def container_document(each: CachedContainer) -> DataDocument:
    """Return a copy as ``--json`` gives it."""
    return {
        "schema": "fabric.data/1",
        "backend": each.backend,
        "container": each.container,
        "store": each.store,
        "files": each.files,
        "size_bytes": each.size_bytes,
        "fingerprint": each.fingerprint,
        "used": iso(each.used_us),
        "used_us": each.used_us,
        "in_use": each.in_use,
        "whole": each.whole,
        "folder": each.folder,
    }


def _read(options: BackendOptions, report: Report, *, named: bool = False) -> Iterator[DataCache]:
    from backends.contract.host import HostGroup
    from backends.contract.host_group import member_options

    if len(members := member_options(options)) > 1:
        for member in members:
            yield from _read(member, report, named=named)
        return
    if options.type == "local":
        yield from _of_this_machine(options.name)
        return
    if options.options.get("on_demand") and not named:
        return  # it would be started for this
    from workbench.services.submit.store_checks import CLUSTER

    if options.type == CLUSTER and not named:
        if options.options.get("data_claim"):
            text = f"{options.name} keeps copies on a claim: --backend {options.name} looks at them"
            report(TransferNotice(text))
        return  # a pod would be started for this
    from backends.contract.host import Host
    from runners.shared.data_stores import copies_at, drop_copies
    from workbench.services.backends.placement import open_backend
    from workbench.services.open_store import existing_store
    from workbench.store.db.database import home_uuid

    with existing_store() as store:
        if store is None:
            return
        uuid = home_uuid(store.home)
    backend = open_backend(options)
    with closing(backend.open()) as target:
        if isinstance(target, HostGroup):
            return  # each of them was asked
        if not isinstance(target, Host):
            containers = _containers(backend.name, _copies_on_claim(backend, target, report))
            yield DataCache(backend.name, containers, partial(_drop_on_claim, backend))
            return
        cache = str(_home_at(target.folder(uuid)).data)
        containers = _containers(options.name, copies_at(target, cache))

    def drop(keep_bytes: int) -> Sequence[str]:
        host = open_backend(options).open()
        assert isinstance(host, Host)
        with closing(host):
            return drop_copies(host, cache, keep_bytes)

    yield DataCache(options.name, containers, drop)


def _of_this_machine(name: str) -> Iterator[DataCache]:
    from workbench.learner.stores.cache import entries, evict

    home = Home(default_home())
    if home.data.is_dir():
        drop = partial(_evict, evict, str(home.data))
        yield DataCache(name, _containers(name, entries(str(home.data))), drop)


def _evict(evict: Callable[..., list[str]], cache: str, keep_bytes: int) -> list[str]:
    return evict(cache, until=lambda used: used <= keep_bytes)


def _home_at(folder: str) -> Home:
    return Home(Path(folder))


def _containers(backend: str, found: Sequence[Mapping[str, Any]]) -> tuple[CachedContainer, ...]:
    stores = _stores_by_key() if found else {}
    return tuple(
        CachedContainer(
            backend=backend,
            container=str(each.get("container") or ""),
            store=stores.get(str(each["key"]), ""),
            files=int(each["files"]),
            size_bytes=int(each["bytes"]),
            fingerprint=str(each["fingerprint"]),
            used_us=int(each["used_us"]),
            in_use=bool(each["in_use"]),
            whole=bool(each["whole"]),
            folder=str(each["folder"]),
        )
        for each in reversed(found)
    )


def _stores_by_key() -> dict[str, str]:
    """Return the address of each store whose data a backend may have, by the key that copies are kept by."""
    from workbench.data.stores.model import stores_of
    from workbench.services.open_store import existing_store
    from workbench.store.queries.jobs import detail, list_jobs

    with existing_store() as store:
        if store is None:
            return {}
        found: dict[str, str] = {}
        for row in list_jobs(store, limit=EXAMINED_JOBS):
            with suppress(InputMissing):  # its folder is not whole: others may have the same stores
                stores = stores_of(detail(store, row.id).spec)
                found |= {each.key: each.address for each in stores if each.is_copied}
        return found


def _copies_on_claim(backend: Backend, cluster: Cluster, report: Report) -> list[Mapping[str, Any]]:
    """List the copies on a cluster's claim, the longest unused first; nothing where no job of ours has made one.

    Raises:
        UsageError: it has no claim for them.
        FabricError: the pod that looks at them does not start.
    """
    from runners.pod.data_cache import data_claim
    from runners.shared.data_stores import copies_at
    from workbench.learner.pod.config import CACHE

    if not cluster.options.get("data_claim"):
        raise UsageError(
            f"{backend.name} is a cluster, and each of its pods has a copy of its own",
            hint="with data_claim in its configuration jobs share them",
        )
    image = _image_at(backend)
    if not image:
        return []
    report(TransferNotice(f"a pod of {image} looks at the claim {cluster.options['data_claim']}"))
    with data_claim(cluster, image) as host:
        return list(copies_at(host, CACHE))


def _drop_on_claim(backend: Backend, keep_bytes: int) -> Sequence[str]:
    """Remove copies that no job uses, the longest unused first, until so many bytes are left; return their folders."""
    from backends.contract.cluster import Cluster
    from runners.pod.data_cache import data_claim
    from runners.shared.data_stores import drop_copies
    from workbench.learner.pod.config import CACHE

    cluster = backend.open()
    assert isinstance(cluster, Cluster)
    with closing(cluster), data_claim(cluster, _image_at(backend)) as host:
        return drop_copies(host, CACHE, keep_bytes)


def _image_at(backend: Backend) -> str:
    """Return the image of our newest job there that had data of a store; empty where there was none."""
    from runners.shared.container_defaults import reference_of
    from workbench.data.stores.model import stores_of
    from workbench.services.open_store import existing_store
    from workbench.store.queries.jobs import detail, list_jobs

    address = backend.frozen("pod").address
    with existing_store() as store:
        if store is None:
            return ""
        for row in list_jobs(store, limit=EXAMINED_JOBS):
            if row.target.type != backend.type or row.target.address != address:
                continue
            try:
                spec = detail(store, row.id).spec
            except InputMissing:
                continue
            if not spec.build and any(each.is_copied for each in stores_of(spec)):
                return reference_of(spec.framework)
    return ""
