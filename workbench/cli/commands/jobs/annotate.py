"""``fabric tag`` and ``fabric note``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import job_and_search_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, Json, MatchingJobs
from workbench.formats import count
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.store.db.database import Store
    from workbench.store.queries.experiments import ExperimentRow

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
    """Add, remove or print a job's tags.

    Tags of a search are given to all trials that have begun. With --where all arguments are tags.
    `fabric list --where tags:best` finds jobs by them.
    """
    from workbench.services.control.annotate import Annotations, annotate
    from workbench.services.control.select import JobSelector, select_all
    from workbench.services.inspect.job_document import job_document
    from workbench.services.open_store import store_of
    from workbench.store.queries.experiments import trial_jobs
    from workbench.terminal.json_output import print_document

    names = (job,) if job and not where else ()
    added = (*((job,) if job and where else ()), *(tags or ()))
    changes = Annotations(add_tags=added, remove_tags=tuple(remove or ()))
    with store_of(job) as store:
        selection = select_all(store, JobSelector(names, where=tuple(where or ())))
        searches = selection.searches
        if added or remove:
            _check_begun(store, searches)
        chosen = [*selection.jobs, *(row for each in searches for row in trial_jobs(store, each.id))]
        rows = [annotate(store, row, changes, origin=ORIGIN) for row in chosen]
    if json:
        documents = [job_document(row) for row in rows]
        print_document(documents if where or searches else documents[0])
        return
    for search in searches:
        tagged = " tagged" if added else ""
        later = "; those that begin later have no such tag" if added and search.is_open else ""
        narrate(f"{search.name} is a search: {count(len(rows), 'trial')}{tagged}{later}")
    if not rows and not searches:
        narrate("no job matches")
    for row in rows:
        if where or searches:
            print(f"{short_id(row.id)} {row.name}: {' '.join(row.tags)}")
        elif row.tags:
            print(" ".join(row.tags))


def _check_begun(store: Store, searches: Sequence[ExperimentRow]) -> None:
    """Refuse what cannot be tagged: a search without a trial.

    Raises:
        UsageError: no trial of it has begun, or their jobs are deleted.
    """
    from workbench.errors import UsageError
    from workbench.store.queries.experiments import short_experiment_id, trial_jobs, trials

    for search in searches:
        if not trial_jobs(store, search.id):
            why = "their jobs are deleted" if trials(store, search.id) else "none has begun yet"
            raise UsageError(
                f"{search.name} is a search without trials to tag: {why}",
                hint=f"`fabric experiment trials {short_experiment_id(search.id)}` lists them",
            )


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
