"""``fabric download``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.command import command
from workbench.cli.console import narrate
from workbench.cli.options import Force, Job, Json
from workbench.errors import InputMissing, UnknownName
from workbench.job import nine

if TYPE_CHECKING:
    from workbench.store.database import Store
    from workbench.store.rows import JobRow

KINDS = ("code", "logs", "results", "checkpoints")

What = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WHAT]...", help="code, logs, results, checkpoints; else results."),
]
To = Annotated[
    str,
    typer.Option(
        "--to", "-o", metavar="FOLDER", help="Where to; else a new folder named after the job, here."
    ),
]


@command(
    "download",
    "fabric download @last",
    "fabric download digits results checkpoints --to out --force",
    "fabric download @last logs --json",
)
def download(job: Job, what: What = None, to: To = "", force: Force = False, json: Json = False) -> None:
    """Copy a job's code, logs, results or checkpoints here.

    Each becomes a folder of that name, whole or not at all. What is there is not touched without --force.
    """
    from workbench.cli.open_store import store_with

    wanted = list(dict.fromkeys(what or ["results"]))
    for each in wanted:
        if each not in KINDS:
            raise UnknownName(f"there is no '{each}' to download", hint=f"there are {', '.join(KINDS)}")
    with store_with(job) as (store, row):
        target = Path(to or row.id)
        written = {each: _fetch(store, row, each, target / each, force=force) for each in wanted}
    if json:
        from workbench.cli.documents import print_document

        print_document(
            {
                "schema": "fabric.download/1",
                "id": row.id,
                "folders": {each: str(path.absolute()) for each, path in written.items()},
            }
        )
        return
    for path in written.values():
        print(path)
    narrate(f"downloaded {', '.join(wanted)} of {nine(row.id)} {row.name}")


def _fetch(store: Store, row: JobRow, kind: str, target: Path, *, force: bool) -> Path:
    from workbench.cli.copying import copy_folder, write_folder

    folder = store.home.job(row.id)
    if kind == "code":
        from workbench.store.jobs import detail

        code_hash = detail(store, row.id).code_hash
        if not code_hash:
            raise InputMissing(f"{nine(row.id)} has no code")
        snapshot = store.home.snapshot(code_hash)
        if not snapshot.exists():
            raise InputMissing(f"the code of {nine(row.id)} is not there any more: {snapshot}")
        from workbench.data.snapshot import unpack

        def write(place: Path) -> None:
            place.rmdir()  # it is to be made by who unpacks
            unpack(snapshot, place)

        return write_folder(target, write, force=force)
    if kind == "logs":
        return write_folder(target, lambda place: _write_logs(store, row, place), force=force)
    source = folder.results if kind == "results" else folder.checkpoints
    if not source.is_dir():
        raise InputMissing(f"{nine(row.id)} has no {kind} yet")
    return copy_folder(source, target, force=force)


def _write_logs(store: Store, row: JobRow, place: Path) -> None:
    """Write each learner's output, of every attempt, and what was collected in LOG_DIR."""
    import shutil

    for attempt in range(1, row.attempt + 1):
        folder = store.home.job(row.id).attempt(attempt)
        into = place / f"attempt-{attempt}" if row.attempt > 1 else place
        into.mkdir(parents=True, exist_ok=True)
        for learner in range(1, row.learners + 1):
            output = folder.learner(learner).output
            if output.exists():
                shutil.copyfile(output, into / f"learner-{learner}.log")
        if folder.logs.is_dir() and any(folder.logs.iterdir()):
            shutil.copytree(folder.logs, into / "log-dir", symlinks=True)
