"""The copies of stores' data at places: what they are, and their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.errors import FabricError, UsageError
from workbench.formats import ago, count, iso, size
from workbench.paths import Home, default_home
from workbench.terminal.console import confirm, narrate, person_present, width

if TYPE_CHECKING:
    from backends.contract.cluster import Cluster
    from backends.contract.host import Backend, BackendOptions

LOOKED_AT = 500
"""How many of the newest jobs are asked which store a copy is of, and which image a place has."""


@dataclass(frozen=True, slots=True)
class CopiesAt:
    """What one place has."""

    backend: str
    documents: list[dict[str, Any]]
    """As ``--json`` gives them, the one used last first."""
    drop: Callable[[int], Sequence[str]]
    """Removes what no job uses, the longest unused first, until so many bytes are left; returns the folders."""


def look_at_places(backend: str = "") -> list[CopiesAt]:
    """Look at the copies of one place, or of this machine and every host of the configuration.

    One that cannot be asked is named, and is no error unless it is the only one.

    Raises:
        FabricError: the place that was named cannot be asked.
    """
    from workbench.services.backends.placement import DEFAULT, backend_options, known_backends

    if backend:
        return list(_at(backend_options(backend), named=True))
    found: list[CopiesAt] = []
    for name in known_backends():
        try:
            found += _at(backend_options(name))
        except FabricError as error:
            if name == DEFAULT:
                raise
            narrate(f"{name} could not be asked: {error}")
    return found


def _at(options: BackendOptions, *, named: bool = False) -> Iterator[CopiesAt]:
    if options.type == "local":
        yield from _here(options.name)
        return
    if options.options.get("on_demand") and not named:
        return  # it would be started for this
    from workbench.services.submit.store_checks import CLUSTER

    if options.type == CLUSTER and not named:
        if options.options.get("data_claim"):
            narrate(f"{options.name} keeps copies on a claim: --backend {options.name} looks at them")
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
    with closing(backend.open()) as place:
        if not isinstance(place, Host):
            yield _on_claim(backend, place)
            return
        cache = str(_home_at(place.folder(uuid)).data)
        documents = _documents(options.name, copies_at(place, cache))

    def drop(keep_bytes: int) -> Sequence[str]:
        again = open_backend(options).open()
        assert isinstance(again, Host)
        with closing(again):
            return drop_copies(again, cache, keep_bytes)

    yield CopiesAt(options.name, documents, drop)


def _on_claim(backend: Backend, cluster: Cluster) -> CopiesAt:

    documents = _documents(backend.name, copies_on(backend, cluster))
    return CopiesAt(backend.name, documents, partial(drop_on, backend))


def _here(name: str) -> Iterator[CopiesAt]:
    from workbench.learner.stores.cache import entries, evict

    home = Home(default_home())
    if home.data.is_dir():
        drop = partial(_evict, evict, str(home.data))
        yield CopiesAt(name, _documents(name, entries(str(home.data))), drop)


def _evict(evict: Callable[..., list[str]], cache: str, keep_bytes: int) -> list[str]:
    return evict(cache, until=lambda used: used <= keep_bytes)


def _home_at(folder: str) -> Home:
    from pathlib import Path

    return Home(Path(folder))


def _documents(backend: str, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    stores = _stores_by_key() if found else {}
    return [
        {
            "schema": "fabric.data/1",
            "backend": backend,
            "container": str(each.get("container") or ""),
            "store": stores.get(str(each["key"]), ""),
            "files": int(each["files"]),
            "size_bytes": int(each["bytes"]),
            "fingerprint": str(each["fingerprint"]),
            "used": iso(int(each["used_us"])),
            "used_us": int(each["used_us"]),
            "in_use": bool(each["in_use"]),
            "whole": bool(each["whole"]),
            "folder": str(each["folder"]),
        }
        for each in reversed(found)
    ]


def _stores_by_key() -> dict[str, str]:
    """Return the address of each store whose data may be at a place, by the key that copies are kept by."""
    from workbench.data.stores.model import stores_of
    from workbench.services.open_store import existing_store
    from workbench.store.queries.jobs import detail, list_jobs

    with existing_store() as store:
        if store is None:
            return {}
        rows = list_jobs(store, limit=LOOKED_AT)
        return {
            each.key: each.address
            for row in rows
            for each in stores_of(detail(store, row.id).spec)
            if each.is_copied
        }


def table_of(documents: list[dict[str, Any]]) -> str:
    """Return the copies as a table."""
    from workbench.terminal.table import Column, render

    columns = [
        Column("CONTAINER"),
        Column("WHERE"),
        Column("STORE", stretch=True),
        Column("FILES", right=True),
        Column("SIZE", right=True),
        Column("USED"),
    ]
    now = time.time_ns() // 1000
    rows = [
        [
            each["container"] + ("" if each["whole"] else " (not whole)"),
            each["backend"],
            each["store"] or "-",
            str(each["files"]),
            size(each["size_bytes"]),
            "now" if each["in_use"] else ago(each["used_us"], now) if each["used_us"] else "-",
        ]
        for each in documents
    ]
    return render(columns, rows, width=width(120))


def show_copies(backend: str, *, json: bool) -> None:
    """Print the copies of a place, or of all."""
    documents = [each for place in look_at_places(backend) for each in place.documents]
    if json:
        from workbench.terminal.json_output import print_document

        print_document(documents)
        return
    if not documents:
        narrate(f"no job has brought data of a store to {backend or 'a place'} yet")
        return
    sys.stdout.write(table_of(documents))


def prune_copies(backend: str, to: str, *, yes: bool, json: bool) -> int:
    """Remove copies that no job uses; return the exit code.

    Raises:
        UsageError: ``to`` is no size.
    """
    from workbench.terminal.json_output import print_document

    limit = _limit(to)
    places = look_at_places(backend)
    free = [each for place in places for each in place.documents if not each["in_use"]]
    names = ", ".join(sorted({str(each["backend"]) for each in free}))
    question = f"Remove {'up to ' if to else ''}{count(len(free), 'cached container')} at {names}?"
    if not free:
        narrate("there is no copy that no job uses")
    elif not yes and not person_present():
        narrate(f"--yes removes up to {count(len(free), 'cached container')} at {names}")
    elif confirm(question, yes=yes):
        gone: list[dict[str, Any]] = []
        for place in places:
            dropped = set(place.drop(limit)) if place.documents else set()
            gone += [each for each in place.documents if each["folder"] in dropped]
        if json:
            print_document([{**each, "removed": True} for each in gone])
        else:
            freed = size(sum(each["size_bytes"] for each in gone))
            narrate(f"removed {count(len(gone), 'cached container')}, {freed}")
        return 0
    if json:
        print_document([])
    return 0


def _limit(to: str) -> int:
    if not to:
        return -1
    from workbench.manifest.keys.units import size_bytes

    try:
        return size_bytes(to)
    except ValueError as error:
        raise UsageError(f"--to {to}: {error}", hint="such as 20GB") from error


def copies_on(backend: Backend, cluster: Cluster) -> list[Mapping[str, Any]]:
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
    from runners.shared.data_stores import drop_copies
    from workbench.learner.pod.config import CACHE

    cluster = backend.open()
    assert isinstance(cluster, Cluster)
    with closing(cluster), data_claim(cluster, image_at(backend)) as host:
        return drop_copies(host, CACHE, keep_bytes)


def image_at(backend: Backend) -> str:
    """Return the image of our newest job there that had data of a store; empty where there was none."""
    from runners.shared.container_defaults import reference_of
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
