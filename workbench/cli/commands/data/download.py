"""``fabric download``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Force, Job, Json
from workbench.errors import UnknownName, UsageError
from workbench.job import short_id
from workbench.terminal.console import narrate

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WHAT]... [DEST]",
        help="code, logs, results, checkpoints (default: results); and the destination (default: a new"
        " folder named after the job).",
    ),
]
To = Annotated[str, typer.Option("--to", "-o", metavar="FOLDER", help="Destination folder, same as DEST.")]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="GLOB", help="Only matching files, e.g. '*.pt' (repeatable)."),
]


Definition = Annotated[bool, typer.Option("--definition", help="As in FfDL: the code as a zip.")]
TrainedModel = Annotated[bool, typer.Option("--trainedmodel", help="As in FfDL: the results as a zip.")]
FileName = Annotated[
    str,
    typer.Option(
        "--filename", metavar="FILE", help="With these two: the zip to write; default: ID-definition.zip."
    ),
]


@command(
    "download",
    "fabric download @last",
    "fabric download digits results checkpoints out --force",
    "fabric download @last results --include '*.pt'",
    "fabric download @last logs --json",
    "fabric download @last --trainedmodel --filename model.zip",
)
def download(
    job: Job,
    what: What = None,
    to: To = "",
    include: Include = None,
    definition: Definition = False,
    trainedmodel: TrainedModel = False,
    filename: FileName = "",
    force: Force = False,
    json: Json = False,
) -> None:
    """Copy a job's code, logs, results or checkpoints here.

    They come from this machine, from the store that holds them, or from the job's backend, also while the job
    runs. Each becomes a folder of that name, complete or not at all; interrupted downloads from a store
    resume. Existing
    files are kept unless --force.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.transfer.download import DownloadOptions, download_job

    if definition or trainedmodel:
        parts = [("code", "definition")] if definition else []
        parts += [("results", "trainedmodel")] if trainedmodel else []
        if what or to:
            raise UsageError(
                "--definition and --trainedmodel choose what to download; --filename sets the destination"
            )
        _download_zips(job, parts, filename, force=force, json=json)
        return
    if filename:
        raise UsageError(
            "--filename names the zip of --definition or --trainedmodel", hint="--to takes a folder"
        )
    kinds, target = _read_arguments(what or [], to)
    options = DownloadOptions(tuple(include or ()), force)
    with shown_transfer(progress=not json) as report:
        done = download_job(job, kinds, target, options, report)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.download/1",
                "id": done.row.id,
                "folders": {each: str(path.absolute()) for each, path in done.folders.items()},
            }
        )
        return
    for path in done.folders.values():
        print(path)
    narrate(f"downloaded {', '.join(kinds)} of {short_id(done.row.id)} {done.row.name}")


def _download_zips(job: str, parts: list[tuple[str, str]], filename: str, *, force: bool, json: bool) -> None:
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.open_store import store_with
    from workbench.services.transfer.download import download_zips

    with store_with(job) as (store, row), shown_transfer(progress=not json) as report:
        written = download_zips(store, row, parts, filename, force=force, report=report)
    if json:
        from workbench.terminal.json_output import print_document

        files = {part: str(path.absolute()) for part, path in written.items()}
        print_document({"schema": "fabric.download/1", "id": row.id, "files": files})
        return
    for path in written.values():
        print(path)


def _read_arguments(arguments: list[str], to: str) -> tuple[list[str], str]:
    """Return the kinds and the target folder: the last argument, if it is not a kind and resembles none."""
    from workbench.services.transfer.download import KINDS

    kinds = [argument for argument in arguments if argument in KINDS]
    others = [argument for argument in arguments if argument not in KINDS]
    if len(others) == 1 and arguments[-1] == others[0] and not to and _is_path(others[0]):
        to, others = others[0], []
    if others:
        raise UnknownName(
            f"unknown kind '{others[0]}'",
            hint=f"kinds are {', '.join(KINDS)}; ./{others[0]} is a folder",
        )
    if to.startswith("-"):
        raise UsageError(f"{to} is not a folder")
    return list(dict.fromkeys(kinds or ["results"])), to


def _is_path(word: str) -> bool:
    from workbench.manifest.yaml.faults import nearest
    from workbench.services.transfer.download import KINDS

    return "/" in word or Path(word).exists() or not nearest(word, KINDS)
