"""``fabric data``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Backend, Json, Yes
from workbench.errors import UsageError
from workbench.terminal.console import confirm, narrate, person_present, width

if TYPE_CHECKING:
    from workbench.services.transfer.data_cache import CachedContainer

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A local folder.")]
Target = Annotated[
    str,
    typer.Argument(
        metavar="STORE:CONTAINER[/FOLDER]",
        help="A store from [stores] in config.toml, or `served`, and one of its containers.",
    ),
]
Create = Annotated[bool, typer.Option("--create", help="Create the container if it is missing.")]
Down = Annotated[
    str, typer.Option("--to", metavar="SIZE", help="Remove only until the rest is at most this large.")
]


@command(
    "put",
    "fabric data put ~/mnist served:tf_training_data --create",
    "fabric data put ~/mnist lab:mnist/2024 --json",
)
def put(folder: Folder, target: Target, create: Create = False, json: Json = False) -> None:
    """Copy a folder into a store; files that are already there and equal are skipped."""
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.transfer.store_upload import upload_folder

    with shown_transfer(progress=not json) as report:
        uploaded = upload_folder(Path(folder).expanduser(), target, create=create, report=report)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.data-put/1",
                "store": uploaded.store,
                "path": uploaded.path,
                "files": uploaded.files,
                "size_bytes": uploaded.size_bytes,
            }
        )
        return
    from workbench.formats import count, size

    narrate(
        f"{count(uploaded.files, 'file')}, {size(uploaded.size_bytes)}, in {target};"
        f" `fabric run --data {target} ...` reads them"
    )


@command(
    "mkbucket", "fabric data mkbucket served:tf_trained_model", "fabric data mkbucket lab:results --json"
)
def mkbucket(target: Target, json: Json = False) -> None:
    """Create a container in a store."""
    from workbench.services.transfer.store_upload import create_container

    made = create_container(target)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.container/1",
                "store": made.store,
                "container": made.container,
                "made": made.is_new,
            }
        )
        return
    narrate(f"created {target}" if made.is_new else f"{target} already existed")


@command("list", "fabric data list", "fabric data list --backend gpubox", "fabric data list --json")
def list_(backend: Backend = "", json: Json = False) -> None:
    """List the cached copies of stores' data, here and on every host of the configuration.

    A cluster that keeps them on a volume claim is only listed if it is named: a pod is started for this.
    """
    print_copies(backend, json=json)


@command(
    "prune",
    "fabric data prune --yes",
    "fabric data prune --backend gpubox --to 20GB --yes",
    "fabric data prune --to 20GB --json",
)
def prune(backend: Backend = "", to: Down = "", yes: Yes = False, json: Json = False) -> int:
    """Remove cached copies of stores' data that no job uses now, the longest unused first.

    They are copied again when a job needs them. [data] in the configuration limits how large they grow.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.formats import count, size
    from workbench.paths import Home, default_home
    from workbench.services.transfer.data_cache import container_document, data_caches, drop_unused
    from workbench.store.db.home_folder import require_home
    from workbench.terminal.json_output import print_document

    require_home(Home(default_home()))
    keep_bytes = _read_size(to)
    with shown_transfer() as report:
        caches = data_caches(backend, report)
    unused = [each for cache in caches for each in cache.unused]
    names = ", ".join(sorted({each.backend for each in unused}))
    question = f"Remove {'up to ' if to else ''}{count(len(unused), 'cached container')} on {names}?"
    if not unused:
        narrate("there are no unused copies")
    elif not yes and not person_present():
        narrate(f"--yes removes up to {count(len(unused), 'cached container')} on {names}")
    elif confirm(question, yes=yes):
        removed = drop_unused(caches, keep_bytes)
        if json:
            print_document([{**container_document(each), "removed": True} for each in removed])
        else:
            freed = size(sum(each.size_bytes for each in removed))
            narrate(f"removed {count(len(removed), 'cached container')}, {freed}")
        return 0
    if json:
        print_document([])
    return 0


def _read_size(to: str) -> int:
    if not to:
        return -1
    from workbench.manifest.keys.units import size_bytes

    try:
        return size_bytes(to)
    except ValueError as error:
        raise UsageError(f"--to {to}: {error}", hint="such as 20GB") from error


def print_copies(backend: str, *, json: bool) -> None:
    """Print the copies of stores' data that a backend has, or all backends."""
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.transfer.data_cache import container_document, data_caches

    with shown_transfer() as report:
        found = [each for cache in data_caches(backend, report) for each in cache.containers]
    if json:
        from workbench.terminal.json_output import print_document

        print_document([container_document(each) for each in found])
    elif not found:
        narrate(f"no job has brought data of a store to {backend or 'a backend'} yet")
    else:
        sys.stdout.write(_table(found))


def _table(found: Sequence[CachedContainer]) -> str:
    from workbench.clock import now_us
    from workbench.formats import ago, size
    from workbench.terminal.table import Column, render

    columns = [
        Column("CONTAINER"),
        Column("WHERE"),
        Column("STORE", stretch=True),
        Column("FILES", right=True),
        Column("SIZE", right=True),
        Column("USED"),
    ]
    now = now_us()
    rows = [
        [
            each.container + ("" if each.whole else " (not whole)"),
            each.backend,
            each.store or "-",
            str(each.files),
            size(each.size_bytes),
            "now" if each.in_use else ago(each.used_us, now) if each.used_us else "-",
        ]
        for each in found
    ]
    return render(columns, rows, width=width(120))


data = Family(
    "data",
    "Upload data to stores, and manage cached copies.",
    (put, mkbucket, list_, prune),
    default="list",
)
