"""``fabric files``: what lies in a job's folders, running or ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import LEARNER_LETTER, Attempt, Job, Json, LearnerNumber
from workbench.errors import InputMissing
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from runners.interface import FileEntry
    from workbench.services.backends.learner_access import LearnerAccess

SHOWN = ("results", "checkpoints", "logs")

Where = Annotated[
    str,
    typer.Argument(
        metavar="[PATH]",
        help="results/..., checkpoints/..., logs/..., data/..., job/..., code/... (the working folder);"
        " default: results, checkpoints and logs.",
    ),
]


@command(
    "files",
    "fabric files @last",
    "fabric files digits code -L 2",
    "fabric files @last results --json",
    former=LEARNER_LETTER,
)
def files(
    job: Job, path: Where = "", learner: LearnerNumber = 1, attempt: Attempt = None, json: Json = False
) -> None:
    """List a job's files, also while it runs.

    Without PATH, lists results, checkpoints and logs. An absolute path is a path as the learner sees it.
    """
    from workbench.services.backends.learner_access import reached

    with reached(job, learner, attempt) as found:
        listed = [
            (_whole(asked, entry), entry)
            for asked in ([path] if path else SHOWN)
            for entry in found.runner.files(found.ref, asked)
        ]
    if path and not listed:
        raise InputMissing(
            f"{short_id(found.row.id)} has no {path}", hint=f"fabric files {short_id(found.row.id)}"
        )
    if json:
        _print_document(found, listed)
    else:
        _print_table(found, [(name, entry) for name, entry in listed if entry.path or entry.kind == "file"])


def _whole(asked: str, entry: FileEntry) -> str:
    return f"{asked.rstrip('/')}/{entry.path}" if entry.path else asked


def _shown(name: str) -> str:
    """Return a name in one line, whatever bytes a job has put into it."""
    from workbench.learner.texts import clean

    return clean(name).replace("\n", "\\x0a").replace("\t", "\\x09")


def _print_document(found: LearnerAccess, listed: list[tuple[str, FileEntry]]) -> None:
    from workbench.formats import iso
    from workbench.terminal.json_output import print_document

    print_document(
        {
            "schema": "fabric.files/1",
            "id": found.row.id,
            "attempt": found.ref.attempt,
            "learner": found.ref.learner,
            "files": [
                {
                    "path": name,
                    "kind": entry.kind,
                    "size_bytes": entry.size_bytes,
                    "modified": iso(entry.modified_us),
                    "target": entry.target,
                }
                for name, entry in listed
            ],
        }
    )


def _print_table(found: LearnerAccess, listed: list[tuple[str, FileEntry]]) -> None:
    import shutil
    import sys

    from workbench.formats import size, stamp
    from workbench.terminal.table import Column, render

    if not listed:
        narrate(f"no files yet; fabric files {short_id(found.row.id)} code lists the working folder")
        return
    columns = (Column("SIZE", right=True), Column("MODIFIED"), Column("PATH"))
    rows = [
        (
            size(entry.size_bytes) if entry.kind == "file" else "-",
            stamp(entry.modified_us),
            _shown(name)
            + ("/" if entry.kind == "folder" else f" -> {_shown(entry.target)}" if entry.target else ""),
        )
        for name, entry in listed
    ]
    sys.stdout.write(render(columns, rows, width=shutil.get_terminal_size().columns))
