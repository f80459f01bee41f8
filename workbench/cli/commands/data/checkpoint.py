"""``fabric checkpoint``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import job_and_search_names
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Force, Json, Yes
from workbench.errors import UsageError
from workbench.job import TERMINAL, short_id
from workbench.terminal.console import confirm, narrate, width

if TYPE_CHECKING:
    from workbench.documents.files import DownloadDocument
    from workbench.services.transfer.checkpoints import Checkpoint, JobCheckpoint

Whose = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job's id, a unique part of it, its name, or @last; a search's id or name; or a checkpoint's UUID.",
        autocompletion=job_and_search_names,
    ),
]
Steps = Annotated[
    list[int] | None, typer.Option("--step", metavar="N", help="Only the one of this step (repeatable).")
]
Best = Annotated[
    int | None, typer.Option("--best", min=1, metavar="N", help="Only the N best, of all trials of a search.")
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="METRIC",
        help="With --best: by this metric, the smallest first; `-METRIC` the largest first; default: the search's.",
    ),
]
Latest = Annotated[bool, typer.Option("--latest", help="Only the last one.")]
Dest = Annotated[
    str, typer.Argument(metavar="[DEST]", help="Destination; default: a new folder named after the job.")
]
All = Annotated[bool, typer.Option("--all", help="All checkpoints of the job.")]


@command(
    "list",
    "fabric checkpoint list @last",
    "fabric checkpoint list digits --json",
    "fabric checkpoint list digits --best 3",
    "fabric checkpoint list digits --best 1 --by -accuracy",
)
def list_(job: Whose, best: Best = None, by: By = "", json: Json = False) -> None:
    """List checkpoints of a job or search: step, size, metrics, where each is.

    With --best those that are still there, the best one first, by the search's metric unless --by names another.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.transfer.checkpoints import (
        CheckpointChoice,
        chosen_checkpoints,
        document_of,
        store_with_checkpoints,
    )

    with store_with_checkpoints(job) as (store, owner), shown_transfer() as report:
        found, metric = chosen_checkpoints(store, owner, CheckpointChoice((), best, by), report)
    if json:
        from workbench.terminal.json_output import print_document

        print_document([document_of(each) for each in found])
        return
    if not found:
        short = owner.found.id.rpartition("-")[2]
        narrate(f"{short} has reported no checkpoints; fabric_learner.checkpoint(PATH, STEP) does")
        return
    sys.stdout.write(_table(found, metric=metric, with_jobs=owner.search is not None))


@command(
    "download",
    "fabric checkpoint download @last",
    "fabric checkpoint download digits out --step 400",
    "fabric checkpoint download digits out --best 1",
    "fabric checkpoint download @last --json",
)
def download(
    job: Whose,
    dest: Dest = "",
    step: Steps = None,
    best: Best = None,
    by: By = "",
    latest: Latest = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Copy checkpoints of a job here: all, some steps, the last or the best.

    Of a search --best N copies the best of all its trials, into a folder for each of these.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.transfer.checkpoints import (
        CheckpointChoice,
        chosen_files,
        store_with_checkpoints,
    )
    from workbench.services.transfer.download import DownloadOptions
    from workbench.services.transfer.download import download as download_files

    choice = CheckpointChoice(tuple(step or ()), best, by, latest)
    with store_with_checkpoints(job) as (store, owner), shown_transfer(progress=not json) as report:
        folder, targets = Path(dest or owner.found.id), {}
        for row, include in chosen_files(store, owner, choice, report):
            target = (folder / row.id if owner.search else folder) / "checkpoints"
            download_files(store, row, "checkpoints", target, DownloadOptions(include, force), report)
            targets[row.id] = target
    if json:
        from workbench.terminal.json_output import print_document

        documents: list[DownloadDocument] = [
            {"schema": "fabric.download/1", "id": name, "folders": {"checkpoints": str(target.absolute())}}
            for name, target in targets.items()
        ]
        print_document(documents if owner.search else documents[0])
        return
    for target in targets.values():
        print(target)


@command(
    "delete",
    "fabric checkpoint delete @last --step 100 --yes",
    "fabric checkpoint delete digits --all --yes --json",
)
def delete(job: Whose, step: Steps = None, all: All = False, yes: Yes = False, json: Json = False) -> int:
    """Remove checkpoints of an ended job, here and from the store that holds them.

    Checkpoints on another machine are removed when the job is deleted.
    """
    from workbench.formats import count
    from workbench.services.transfer.checkpoints import checkpoint_document, names_of_checkpoints

    names = names_of_checkpoints(job) or [job]
    removed = [each for name in names for each in _remove(name, step, is_all=all, is_sure=yes)]
    if json:
        from workbench.terminal.json_output import print_document

        print_document([{**checkpoint_document(each), "removed": True} for each in removed])
    elif removed:
        narrate(f"removed {count(len(removed), 'checkpoint')}")
    else:
        narrate("nothing was removed")
    return 0


def _remove(whose: str, steps: list[int] | None, *, is_all: bool, is_sure: bool) -> list[Checkpoint]:
    """Remove checkpoints of a job, or the one with such a UUID; return them, none where the person says no."""
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.formats import count
    from workbench.services.transfer.checkpoints import (
        checkpoints_of,
        checkpoints_of_steps,
        remove_checkpoints,
        store_with_checkpoints,
    )
    from workbench.store.db.rows import JobRow

    with store_with_checkpoints(whose, steers=True) as (store, owner), shown_transfer() as report:
        row = owner.found
        if not isinstance(row, JobRow):
            short = row.id.rpartition("-")[2]
            raise UsageError(
                f"{row.name} is a search, not a job",
                hint=f"`fabric checkpoint list {short}` says which job has which",
            )
        if not owner.name and bool(steps) == is_all:
            raise UsageError("which checkpoints?", hint="--step N, or --all")
        if row.state not in TERMINAL:
            raise UsageError(
                f"{short_id(row.id)} has not ended, and may resume from them", hint="fabric halt first"
            )
        those = [each.checkpoint for each in checkpoints_of(store, owner, report) if each.checkpoint.where]
        picked = checkpoints_of_steps(those, steps, row) if steps else those
        question = f"Remove {count(len(picked), 'checkpoint')} of {short_id(row.id)}?"
        if picked and not confirm(question, yes=is_sure):
            return []
        remove_checkpoints(store, row, picked)
    return picked


def _table(found: Sequence[JobCheckpoint], *, metric: str, with_jobs: bool) -> str:
    """Return a table, with the value of the metric where one is named."""
    from workbench.formats import size, stamp
    from workbench.terminal.table import Column, render

    columns = [
        *([Column("JOB")] if with_jobs else []),
        Column("STEP", right=True),
        *([Column(metric.rpartition("/")[2].upper(), right=True)] if metric else []),
        Column("SAVED"),
        Column("SIZE", right=True),
        Column("WHERE"),
        Column("NAME"),
        Column("METRICS", stretch=True),
    ]
    rows = []
    for one in found:
        each = one.checkpoint
        rows.append(
            [
                *([short_id(one.row.id)] if with_jobs else []),
                "-" if each.step is None else str(each.step),
                *([_value(one.value)] if metric else []),
                stamp(each.time_us),
                "-" if each.size_bytes is None else size(each.size_bytes),
                ", ".join(each.where) or "gone",
                each.name,
                " ".join(f"{name}={_value(value)}" for name, value in each.metrics.items()),
            ]
        )
    return render(columns, rows, width=width(120))


def _value(value: object) -> str:
    from workbench.formats import number

    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


checkpoint = Family(
    "checkpoint",
    "List, fetch and remove checkpoints of jobs and searches.",
    (list_, download, delete),
    default="list",
)
