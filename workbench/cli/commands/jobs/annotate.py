"""``fabric tag`` and ``fabric note``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, Json

ORIGIN = "cli"

Tags = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TAG]...", help="Tags to add; without any, print the job's tags."),
]
Remove = Annotated[
    list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="Remove this tag (repeatable).")
]
Text = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT]...", help="The note; without it, print the note.")
]
Append = Annotated[bool, typer.Option("--append", "-a", help="Append a line to the note.")]
Clear = Annotated[bool, typer.Option("--clear", help="Remove the note.")]


@command("tag", "fabric tag @last best paper", "fabric tag digits --remove best", "fabric tag digits --json")
def tag(job: Job, tags: Tags = None, remove: Remove = None, json: Json = False) -> None:
    """Add, remove or print a job's tags.

    `fabric list --where tag:best` finds jobs by them.
    """
    from workbench.services.control.annotate import Annotations, annotate
    from workbench.services.open_store import store_with

    changes = Annotations(add_tags=tuple(tags or ()), remove_tags=tuple(remove or ()))
    with store_with(job) as (store, row):
        row = annotate(store, row, changes, origin=ORIGIN)
    if json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document(job_document(row))
    elif row.tags:
        print(" ".join(row.tags))


@command(
    "note",
    "fabric note @last 'overfits after epoch 3'",
    "fabric note digits --append 'second look: the data was wrong'",
    "fabric note digits",
)
def note(
    job: Job, text: Text = None, append: Append = False, clear: Clear = False, json: Json = False
) -> None:
    """Write a note on a job, or print it."""
    from workbench.errors import UsageError
    from workbench.services.control.annotate import Annotations, annotate
    from workbench.services.open_store import store_with

    line = " ".join(text or ())
    if clear and line:
        raise UsageError("--clear takes no text")
    with store_with(job) as (store, row):
        if line or clear:
            row = annotate(store, row, Annotations(note=line, append=append), origin=ORIGIN)
    if json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document(job_document(row))
    elif not line and row.note:
        print(row.note)
