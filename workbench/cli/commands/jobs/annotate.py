"""``fabric tag`` and ``fabric note``: what people say of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, Json

ORIGIN = "cli"

Tags = Annotated[
    list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add; none prints those there are.")
]
Remove = Annotated[
    list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="Take this one away (repeatable).")
]
Text = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="The note; none prints it.")]
Append = Annotated[bool, typer.Option("--append", "-a", help="A line more, under what is there.")]
Clear = Annotated[bool, typer.Option("--clear", help="Take the note away.")]


@command("tag", "fabric tag @last best paper", "fabric tag digits --remove best", "fabric tag digits --json")
def tag(job: Job, tags: Tags = None, remove: Remove = None, json: Json = False) -> None:
    """Add tags to a job, take them away, or print them.

    `fabric list --where tag:best` finds jobs by them.
    """
    from workbench.errors import UnknownName, UsageError
    from workbench.manifest.yaml.faults import nearest
    from workbench.services.open_store import store_with
    from workbench.store.jobs import annotate
    from workbench.store.jobs import job as current

    with store_with(job) as (store, row):
        for name in tags or ():
            if not name or name != "".join(name.split()):
                raise UsageError(f"'{name}' is no tag: a tag is one word")
        for name in remove or ():
            if name not in row.tags:
                close = nearest(name, row.tags)
                there = f"its tags are {' '.join(row.tags)}" if row.tags else "it has no tags"
                raise UnknownName(
                    f"{row.name} has no tag '{name}'", hint=f"did you mean {close}?" if close else there
                )
        kept = [name for name in dict.fromkeys((*row.tags, *(tags or ()))) if name not in (remove or ())]
        if tuple(kept) != row.tags:
            annotate(store, row.id, tags=kept, origin=ORIGIN)
        row = current(store, row.id) or row
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
    from workbench.services.open_store import store_with
    from workbench.store.jobs import annotate
    from workbench.store.jobs import job as current

    said = " ".join(text or ())
    if clear and said:
        raise UsageError("--clear takes no text")
    with store_with(job) as (store, row):
        if said or clear:
            whole = f"{row.note}\n{said}" if append and row.note else said
            annotate(store, row.id, note=whole, origin=ORIGIN)
            row = current(store, row.id) or row
    if json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document(job_document(row))
    elif not said and row.note:
        print(row.note)
