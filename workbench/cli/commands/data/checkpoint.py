"""``fabric checkpoint``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Force, Job, Json, Yes
from workbench.errors import UsageError
from workbench.job import TERMINAL, short_id
from workbench.terminal.console import confirm, narrate, width

if TYPE_CHECKING:
    from workbench.services.transfer.checkpoints import Checkpoint

Steps = Annotated[
    list[int] | None, typer.Option("--step", metavar="N", help="Only the one of this step (repeatable).")
]
Dest = Annotated[
    str, typer.Argument(metavar="[DEST]", help="Destination; default: a new folder named after the job.")
]
All = Annotated[bool, typer.Option("--all", help="All checkpoints of the job.")]


@command("list", "fabric checkpoint list @last", "fabric checkpoint list digits --json")
def list_(job: Job, json: Json = False) -> None:
    """List a job's checkpoints: step, size, metrics, and where each is."""
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.open_store import store_with
    from workbench.services.transfer.checkpoints import checkpoint_document, list_checkpoints

    with store_with(job) as (store, row), shown_transfer() as report:
        found = list_checkpoints(store, row, report)
    if json:
        from workbench.terminal.json_output import print_document

        print_document([checkpoint_document(each) for each in found])
        return
    if not found:
        narrate(f"{short_id(row.id)} has reported no checkpoints; fabric_learner.checkpoint(PATH, STEP) does")
        return
    sys.stdout.write(_table(found))


@command(
    "download",
    "fabric checkpoint download @last",
    "fabric checkpoint download digits out --step 400",
    "fabric checkpoint download @last --json",
)
def download(job: Job, dest: Dest = "", step: Steps = None, force: Force = False, json: Json = False) -> None:
    """Copy all checkpoints of a job here, or those of some steps."""
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.open_store import store_with
    from workbench.services.transfer.checkpoints import checkpoints_of_steps, list_checkpoints
    from workbench.services.transfer.download import DownloadOptions
    from workbench.services.transfer.download import download as download_files

    with store_with(job) as (store, row), shown_transfer(progress=not json) as report:
        picked = checkpoints_of_steps(list_checkpoints(store, row, report), step, row) if step else []
        include = tuple(pattern for each in picked for pattern in each.patterns)
        target = Path(dest or row.id) / "checkpoints"
        download_files(store, row, "checkpoints", target, DownloadOptions(include, force), report)
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
    """Remove checkpoints of an ended job, here and from the store that holds them.

    Checkpoints on another machine are removed when the job is deleted.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.formats import count
    from workbench.services.open_store import store_with
    from workbench.services.transfer.checkpoints import (
        checkpoint_document,
        checkpoints_of_steps,
        list_checkpoints,
        remove_checkpoints,
    )

    if bool(step) == all:
        raise UsageError("which checkpoints?", hint="--step N, or --all")
    with store_with(job, steers=True) as (store, row), shown_transfer() as report:
        if row.state not in TERMINAL:
            raise UsageError(
                f"{short_id(row.id)} has not ended, and may resume from them", hint="fabric halt first"
            )
        found = [each for each in list_checkpoints(store, row, report) if each.where]
        picked = found if all else checkpoints_of_steps(found, step or [], row)
        if picked and not confirm(
            f"Remove {count(len(picked), 'checkpoint')} of {short_id(row.id)}?", yes=yes
        ):
            narrate("nothing was removed")
            return 0
        remove_checkpoints(store, row, picked)
    if json:
        from workbench.terminal.json_output import print_document

        print_document([{**checkpoint_document(each), "removed": True} for each in picked])
    else:
        narrate(f"removed {count(len(picked), 'checkpoint')}")
    return 0


def _table(found: Sequence[Checkpoint]) -> str:
    from workbench.formats import size, stamp
    from workbench.terminal.table import Column, render

    columns = [
        Column("STEP", right=True),
        Column("SAVED"),
        Column("SIZE", right=True),
        Column("WHERE"),
        Column("NAME"),
        Column("METRICS", stretch=True),
    ]
    rows = [
        [
            "-" if each.step is None else str(each.step),
            stamp(each.time_us),
            "-" if each.size_bytes is None else size(each.size_bytes),
            ", ".join(each.where) or "gone",
            each.name,
            " ".join(f"{name}={_value(value)}" for name, value in each.metrics.items()),
        ]
        for each in found
    ]
    return render(columns, rows, width=width(120))


def _value(value: object) -> str:
    from workbench.formats import number

    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


checkpoint = Family(
    "checkpoint", "List, fetch and remove a job's checkpoints.", (list_, download, delete), default="list"
)
