"""``fabric files``: what lies in a job's folders, running or ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import LEARNER_LETTER, Attempt, Job, Json, LearnerNumber
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.transfer.job_files import LearnerFiles

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
    from workbench.services.transfer.job_files import list_files

    found = list_files(job, path, learner=learner, attempt=attempt)
    if json:
        _print_document(found)
    else:
        _print_table(found)


def _shown(name: str) -> str:
    """Return a name in one line, whatever bytes a job has put into it."""
    from workbench.learner.texts import clean

    return clean(name).replace("\n", "\\x0a").replace("\t", "\\x09")


def _print_document(found: LearnerFiles) -> None:
    from workbench.formats import iso
    from workbench.terminal.json_output import print_document

    print_document(
        {
            "schema": "fabric.files/1",
            "id": found.job_id,
            "attempt": found.attempt,
            "learner": found.learner,
            "files": [
                {
                    "path": each.path,
                    "kind": each.kind,
                    "size_bytes": each.size_bytes,
                    "modified": iso(each.modified_us),
                    "target": each.target,
                }
                for each in found.files
            ],
        }
    )


def _print_table(found: LearnerFiles) -> None:
    import shutil

    from workbench.formats import size, stamp
    from workbench.terminal.table import Column, render

    listed = [each for each in found.files if not each.is_asked or each.kind == "file"]
    if not listed:
        narrate(f"no files yet; fabric files {short_id(found.job_id)} code lists the working folder")
        return
    columns = (Column("SIZE", right=True), Column("MODIFIED"), Column("PATH"))
    rows = [
        (
            size(each.size_bytes) if each.kind == "file" else "-",
            stamp(each.modified_us),
            _shown(each.path)
            + ("/" if each.kind == "folder" else f" -> {_shown(each.target)}" if each.target else ""),
        )
        for each in listed
    ]
    sys.stdout.write(render(columns, rows, width=shutil.get_terminal_size().columns))
