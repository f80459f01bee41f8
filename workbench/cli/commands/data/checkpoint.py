"""``fabric checkpoint``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Force, Job, Json, Yes
from workbench.errors import UsageError
from workbench.job import TERMINAL, short_id
from workbench.terminal.console import confirm, narrate

Steps = Annotated[
    list[int] | None, typer.Option("--step", metavar="N", help="Only the one of this step (repeatable).")
]
Dest = Annotated[
    str, typer.Argument(metavar="[DEST]", help="Where to; else a new folder named after the job.")
]
All = Annotated[bool, typer.Option("--all", help="All that the job has.")]


@command("list", "fabric checkpoint list @last", "fabric checkpoint list digits --json")
def list_(job: Job, json: Json = False) -> None:
    """List a job's checkpoints: step, size, metrics, and where each is."""
    from workbench.services.open_store import store_with
    from workbench.services.transfer.checkpoints import document_of, known, table_of

    with store_with(job) as (store, row):
        found = known(store, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document([document_of(each) for each in found])
        return
    if not found:
        narrate(f"{short_id(row.id)} has told of no checkpoint; fabric_learner.checkpoint(PATH, STEP) does")
        return
    sys.stdout.write(table_of(found))


@command(
    "download",
    "fabric checkpoint download @last",
    "fabric checkpoint download digits out --step 400",
    "fabric checkpoint download @last --json",
)
def download(job: Job, dest: Dest = "", step: Steps = None, force: Force = False, json: Json = False) -> None:
    """Copy a job's checkpoints here, or those of some steps."""
    from workbench.services.open_store import store_with
    from workbench.services.transfer.checkpoints import chosen, known
    from workbench.services.transfer.download import Wanted, fetch

    with store_with(job) as (store, row):
        picked = chosen(known(store, row), step or [], row) if step else []
        include = tuple(pattern for each in picked for pattern in each.patterns)
        target = Path(dest or row.id) / "checkpoints"
        fetch(store, row, "checkpoints", target, Wanted(include, force, shown=not json))
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.download/1",
                "id": row.id,
                "folders": {"checkpoints": str(target.absolute())},
            }
        )
        return
    print(target)


@command(
    "delete",
    "fabric checkpoint delete @last --step 100 --yes",
    "fabric checkpoint delete digits --all --yes --json",
)
def delete(job: Job, step: Steps = None, all: All = False, yes: Yes = False, json: Json = False) -> int:
    """Remove checkpoints of a job that is over, here and from the store that they are in.

    What lies at another place than this machine goes when the job is deleted.
    """
    from workbench.formats import count
    from workbench.services.open_store import store_with
    from workbench.services.transfer.checkpoints import chosen, document_of, known, remove

    if bool(step) == all:
        raise UsageError("which checkpoints?", hint="--step N, or --all")
    with store_with(job) as (store, row):
        if row.state not in TERMINAL:
            raise UsageError(
                f"{short_id(row.id)} is not over, and may go on from them", hint="fabric halt first"
            )
        found = [each for each in known(store, row) if each.where]
        picked = found if all else chosen(found, step or [], row)
        if picked and not confirm(
            f"Remove {count(len(picked), 'checkpoint')} of {short_id(row.id)}?", yes=yes
        ):
            narrate("nothing was removed")
            return 0
        remove(store, row, picked)
    if json:
        from workbench.terminal.json_output import print_document

        print_document([{**document_of(each), "removed": True} for each in picked])
    else:
        narrate(f"removed {count(len(picked), 'checkpoint')}")
    return 0


checkpoint = Family(
    "checkpoint", "List, fetch and remove a job's checkpoints.", (list_, download, delete), default="list"
)
