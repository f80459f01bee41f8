"""The copies of stores' data on this machine: what they are, and their end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from workbench.cli.console import confirm, narrate, person_present, width
from workbench.cli.words import ago, count, iso, size
from workbench.paths import Home, default_home

LOOKED_AT = 500
"""How many of the newest jobs are asked which store a copy is of."""


def documents_of() -> list[dict[str, Any]]:
    """Return the copies as ``--json`` gives them, the one used last first."""
    from workbench.learner.data_cache import entries

    home = Home(default_home())
    if not home.data.is_dir():
        return []
    stores = _stores_by_key()
    return [_document(each, stores.get(str(each["key"]), "")) for each in reversed(entries(str(home.data)))]


def _document(entry: dict[str, Any], store: str) -> dict[str, Any]:
    folder = Path(str(entry["folder"]))
    inside = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    return {
        "schema": "fabric.data/1",
        "container": inside[0] if inside else "",
        "store": store,
        "files": int(entry["files"]),
        "size_bytes": int(entry["bytes"]),
        "fingerprint": str(entry["fingerprint"]),
        "used": iso(int(entry["used_us"])),
        "in_use": bool(entry["in_use"]),
        "whole": bool(entry["whole"]),
        "folder": str(folder),
    }


def _stores_by_key() -> dict[str, str]:
    """Return the address of each store whose data may be here, by the key that copies are kept by."""
    from workbench.cli.open_store import existing_store
    from workbench.data.stores import stores_of
    from workbench.store.reading import detail, list_jobs

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
    from workbench.cli.tables import Column, render

    columns = [
        Column("CONTAINER"),
        Column("STORE", stretch=True),
        Column("FILES", right=True),
        Column("SIZE", right=True),
        Column("USED"),
    ]
    now = time.time_ns() // 1000
    rows = [
        [
            each["container"] + ("" if each["whole"] else " (not whole)"),
            each["store"] or "-",
            str(each["files"]),
            size(each["size_bytes"]),
            "now" if each["in_use"] else _ago(each["folder"], now),
        ]
        for each in documents
    ]
    return render(columns, rows, width=width(120))


def _ago(folder: str, now_us: int) -> str:
    try:
        return ago(Path(folder + ".lock").stat().st_mtime_ns // 1000, now_us)
    except OSError:
        return "-"


def prune_cache(to: str, *, yes: bool, json: bool) -> int:
    """Remove copies that no job uses; return the exit code.

    Raises:
        UsageError: ``to`` is no size.
    """
    from workbench.cli.documents import print_document
    from workbench.learner.data_cache import evict

    limit = _limit(to)
    before = documents_of()
    free = [each for each in before if not each["in_use"]]
    if not free:
        narrate("there is no copy that no job uses")
    elif not yes and not person_present():
        narrate(f"--yes removes up to {count(len(free), 'cached container')}")
    elif confirm(f"Remove {'up to ' if to else ''}{count(len(free), 'cached container')}?", yes=yes):
        dropped = set(evict(str(Home(default_home()).data), lambda used: used <= limit))
        gone = [each for each in before if each["folder"] in dropped]
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
    from workbench.errors import UsageError
    from workbench.manifest.units import size_bytes

    try:
        return size_bytes(to)
    except ValueError as error:
        raise UsageError(f"--to {to}: {error}", hint="such as 20GB") from error
