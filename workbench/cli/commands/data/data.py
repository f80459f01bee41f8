"""``fabric data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Backend, Json, Yes
from workbench.errors import InputMissing, UsageError
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.backends.named_store import Named

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A folder of this machine.")]
Target = Annotated[
    str,
    typer.Argument(
        metavar="STORE:CONTAINER[/FOLDER]",
        help="A store of [stores] in config.toml, or `served`, and a container of it.",
    ),
]
Create = Annotated[bool, typer.Option("--create", help="Make the container where it is missing.")]
Down = Annotated[
    str, typer.Option("--to", metavar="SIZE", help="Only as much as is needed for the rest to be this large.")
]


@command(
    "put",
    "fabric data put ~/mnist served:tf_training_data --create",
    "fabric data put ~/mnist lab:mnist/2024 --json",
)
def put(folder: Folder, target: Target, create: Create = False, json: Json = False) -> None:
    """Copy a folder into a store; what is there already, and the same, is not copied again."""
    from workbench.services.backends.named_store import named
    from workbench.terminal.status_line import copy_line

    source = Path(folder).expanduser()
    if not source.is_dir():
        raise InputMissing(f"there is no folder {folder}")
    to = named(target)
    if not to.moving.has(to.container):
        if not create:
            raise _no_container(to)
        make_container(to)
    with copy_line(f"{source.name} to {target}", shown=not json) as tell:
        to.moving.put(source, to.path, tell)
    files = [each for each in source.rglob("*") if each.is_file() and not each.is_symlink()]
    size_bytes = sum(each.stat().st_size for each in files)
    if json:
        from workbench.terminal.json_output import print_document

        told = {"store": to.store, "path": to.path, "files": len(files), "size_bytes": size_bytes}
        print_document({"schema": "fabric.data-put/1", **told})
        return
    from workbench.formats import count, size

    narrate(
        f"{count(len(files), 'file')}, {size(size_bytes)}, in {target}; `fabric run --data {target} ...` reads them"
    )


@command(
    "mkbucket", "fabric data mkbucket served:tf_trained_model", "fabric data mkbucket lab:results --json"
)
def mkbucket(target: Target, json: Json = False) -> None:
    """Make a container in a store."""
    from workbench.services.backends.named_store import named

    to = named(target)
    if to.path != to.container:
        raise UsageError(f"{target} is a folder in a container; folders are made by what is put into them")
    was_there = to.moving.has(to.container)
    if not was_there:
        make_container(to)
    if json:
        from workbench.terminal.json_output import print_document

        told = {"store": to.store, "container": to.container, "made": not was_there}
        print_document({"schema": "fabric.container/1", **told})
        return
    narrate(f"{target} " + ("was there already" if was_there else "is made"))


@command("list", "fabric data list", "fabric data list --backend gpubox", "fabric data list --json")
def list_(backend: Backend = "", json: Json = False) -> None:
    """List the copies of stores' data that jobs of a place share, here and at every host of the configuration.

    A cluster that keeps them on a claim is asked when it is named: a pod is started for it.
    """
    from workbench.services.transfer.data_cache import show_copies

    show_copies(backend, json=json)


@command(
    "prune",
    "fabric data prune --yes",
    "fabric data prune --backend gpubox --to 20GB --yes",
    "fabric data prune --to 20GB --json",
)
def prune(backend: Backend = "", to: Down = "", yes: Yes = False, json: Json = False) -> int:
    """Remove copies of stores' data that no job uses now, the longest unused first; of every place, or of one.

    They are brought again when a job asks for them. [data] of the configuration limits how large they grow.
    """
    from workbench.services.transfer.data_cache import prune_copies

    return prune_copies(backend, to, yes=yes, json=json)


def make_container(to: Named) -> None:
    """Make a container: in the folder itself where this machine serves it, since S3 refuses underscores."""
    if to.served is not None:
        from workbench.data.stores.local_server import make_in

        make_in(to.served, [to.container])
        return
    to.moving.make(to.container)


def _no_container(to: Named) -> InputMissing:
    from workbench.errors import FabricError

    try:
        there = to.moving.containers()
    except FabricError:
        there = []
    known = f"; it has {', '.join(there[:20])}" if there else ""
    return InputMissing(
        f"the store {to.store} has no container {to.container!r}{known}", hint="--create makes it"
    )


data = Family(
    "data",
    "Bring data to stores, and look after copies of it.",
    (put, mkbucket, list_, prune),
    default="list",
)
