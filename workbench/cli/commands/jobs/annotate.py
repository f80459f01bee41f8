"""``fabric tag`` and ``fabric note``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import job_and_search_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import JobOrSearch, Json, MatchingJobs
from workbench.formats import count
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.documents.experiments import ExperimentDocument
    from workbench.documents.jobs import JobDocument

ORIGIN = "cli"

Tags = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TAG]...", help="Tags to add; without any, print the job's tags."),
]
OptionalJob = Annotated[
    str,
    typer.Argument(
        metavar="[JOB]",
        help="Its id, a unique part of it, its name, or @last; or a search's id or name.",
        autocompletion=job_and_search_names,
    ),
]
Remove = Annotated[
    list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="Remove this tag (repeatable).")
]
Text = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT]...", help="The note; without it, print the note.")
]
Append = Annotated[bool, typer.Option("--append", "-a", help="Append a line to the note.")]
Clear = Annotated[bool, typer.Option("--clear", help="Remove the note.")]


@command(
    "tag",
    "fabric tag @last best paper",
    "fabric tag digits --remove best",
    "fabric tag digits --json",
    "fabric tag --where 'accuracy>0.9' best",
)
def tag(
    job: OptionalJob = "",
    tags: Tags = None,
    where: MatchingJobs = None,
    remove: Remove = None,
    json: Json = False,
) -> None:
    """Add, remove or print the tags of a job or a search.

    Tags of a search are its own and those of all its trials. With --where all arguments are tags.
    `fabric list --where tags:best` finds jobs by them.
    """
    from workbench.services.control.annotate import Annotations, annotate, annotate_search_and_trials
    from workbench.services.control.select import JobSelector, select_all
    from workbench.services.inspect.job_document import job_document
    from workbench.services.open_store import store_of
    from workbench.store.queries.experiments import annotations_of, short_experiment_id
    from workbench.terminal.json_output import print_document

    names = (job,) if job and not where else ()
    added = (*((job,) if job and where else ()), *(tags or ()))
    changes = Annotations(add_tags=added, remove_tags=tuple(remove or ()))
    with store_of(job) as store:
        selection = select_all(store, JobSelector(names, where=tuple(where or ())))
        searches = selection.searches
        rows = [annotate(store, row, changes, origin=ORIGIN) for row in selection.jobs]
        for search in searches:
            rows += annotate_search_and_trials(store, search, changes, origin=ORIGIN)
        own_tags = {search.id: annotations_of(store, search.id).tags for search in searches}
    if json:
        documents = [job_document(row) for row in rows]
        print_document(documents if where or searches else documents[0])
        return
    for search in searches:
        tagged = " tagged" if added else ""
        later = "; those that begin later get its tags, too" if added and search.is_open else ""
        narrate(f"{search.name} is a search: {count(len(rows), 'trial')}{tagged}{later}")
        print(f"{short_experiment_id(search.id)} {search.name}: {' '.join(own_tags[search.id])}")
    if not rows and not searches:
        narrate("no job matches")
    for row in rows:
        if where or searches:
            print(f"{short_id(row.id)} {row.name}: {' '.join(row.tags)}")
        elif row.tags:
            print(" ".join(row.tags))


@command(
    "note",
    "fabric note @last 'overfits after epoch 3'",
    "fabric note digits --append 'second look: the data was wrong'",
    "fabric note digits",
)
def note(
    job: JobOrSearch, text: Text = None, append: Append = False, clear: Clear = False, json: Json = False
) -> None:
    """Write a note on a job or a search, or print it."""
    from workbench.errors import UsageError
    from workbench.services.control.annotate import Annotations, annotate, annotate_search
    from workbench.services.open_store import store_with_any
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import annotations_of

    line = " ".join(text or ())
    if clear and line:
        raise UsageError("--clear takes no text")
    changes = Annotations(note=line, append=append) if line or clear else None
    document: JobDocument | ExperimentDocument
    with store_with_any(job) as (store, row):
        if isinstance(row, JobRow):
            from workbench.services.inspect.job_document import job_document

            row = annotate(store, row, changes, origin=ORIGIN) if changes else row
            written, document = row.note, job_document(row)
        else:
            from workbench.services.submit.experiments import experiment_document

            if changes:
                annotate_search(store, row, changes, origin=ORIGIN)
            written, document = annotations_of(store, row.id).note, experiment_document(store, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
    elif not line and written:
        print(written)
