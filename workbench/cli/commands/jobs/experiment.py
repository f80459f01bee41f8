"""``fabric experiment``: searches for hyper-parameters."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import Family, Function, command
from workbench.cli.framework.options import Json, Yes
from workbench.errors import AmbiguousName, UnknownName, UsageError
from workbench.terminal.console import confirm, narrate, width

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workbench.documents.experiments import TrialDocument
    from workbench.store.db.database import Store
    from workbench.store.queries.experiments import ExperimentRow

Which = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="An id, the beginning of one, a name, or @last.")
]

Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="TIME", help="Give up after this time, e.g. 90s or 2h, with exit code 124."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once, without waiting.")]


def _takes_jobs(name: str = "", *, by_id: bool = False) -> Callable[[Function], Function]:
    """Have a command of searches take a job, too: where no search has the name, ``name`` does to the job the same.

    For Determined a job is an experiment of one trial. With ``by_id`` the job's id is needed, whole: what ends or
    removes something must not hit another thing than is meant.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def of_either(which: str, **options: Any) -> int | None:
            try:
                return function(which, **options)
            except UnknownName:
                job_id = _job_id(which, is_whole=by_id)
                if not job_id:
                    raise
            if not name:
                raise UsageError(f"{which} is a job, not a search", hint=f"`fabric tag {which} TAG` marks it")
            from workbench.cli.framework import dispatch, registry

            entry = registry.find(name)
            assert entry is not None
            return dispatch.invoke(entry, [job_id, *_option_words(options)])

        return of_either

    return decorate


def _job_id(text: str, *, is_whole: bool) -> str:
    """Return the id of the job that a text stands for, empty for none; of one that is not made yet the text itself.

    ``@last`` is a search here, and a number was an id of Determined's.
    """
    from workbench.job import short_id
    from workbench.services.open_store import existing_store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.members import NotMade
    from workbench.store.queries.resolve import resolve_any

    if text.startswith("@") or text.isdecimal():
        return ""
    try:
        with existing_store() as store:
            found = None if store is None else resolve_any(store, text, one=True)
    except (UnknownName, AmbiguousName):
        return ""
    except NotMade:
        return "" if is_whole else text
    if not isinstance(found, JobRow) or (is_whole and text not in (found.id, short_id(found.id))):
        return ""
    return found.id


def _option_words(options: Mapping[str, Any]) -> list[str]:
    """Return options as they are typed."""
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, str):
            words += [option, value]
        else:
            words += [word for each in value or () for word in (option, each)]
    return words


@command("list", "fabric experiment list", "fabric experiment list --all", "fabric experiment list --json")
def list_experiments(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that are archived, too.")] = False,
    json: Json = False,
) -> int:
    """List searches, newest first."""
    from workbench.services.open_store import existing_store
    from workbench.services.submit.experiments import experiment_documents

    with existing_store() as store:
        documents = [] if store is None else experiment_documents(store)
    found = [each for each in documents if everything or not each["archived"]]
    if json:
        from workbench.terminal.json_output import print_document

        print_document(found)
        return 0
    if not found:
        if documents:
            narrate("every experiment is archived; `fabric experiment list --all` shows them")
        else:
            narrate("there are no experiments; `fabric run` of a manifest with search: starts one")
        return 0
    from workbench.services.submit.experiments import best_text
    from workbench.terminal.table import Column, render

    columns = (
        Column("ID"),
        Column("NAME", stretch=True),
        Column("STATE"),
        Column("METHOD"),
        Column("TRIALS", right=True),
        Column("RUNNING", right=True),
        Column("BEST", stretch=True),
    )
    rows = [
        (
            each["id"].rpartition("-")[2],
            each["name"],
            each["state"],
            each["method"],
            f"{each['trials']}/{each['expected_trials']}",
            str(each["running"]),
            best_text(each["metric"], each["best"]),
        )
        for each in found
    ]
    print(render(columns, rows, width=width()), end="")
    return 0


@command("show", "fabric experiment show digits", "fabric experiment show @last --json")
@_takes_jobs("show")
def show(which: Which, json: Json = False) -> int:
    """Show how a search stands: its state, why, how far it has come, when it ends, and the best trial so far."""
    from workbench.cli.follow.report import print_experiment
    from workbench.services.open_store import store_of
    from workbench.store.queries.experiments import resolve_experiment

    with store_of(which) as store:
        print_experiment(store, resolve_experiment(store, which), json=json)
    return 0


@command("trials", "fabric experiment trials digits", "fabric experiment trials @last --json")
@_takes_jobs("list")
def trials(which: Which, json: Json = False) -> int:
    """List the trials of a search: their jobs, parameters, how far they got and what they reported."""
    from workbench.services.open_store import store_of
    from workbench.services.submit.experiments import trial_documents
    from workbench.store.queries.experiments import resolve_experiment

    with store_of(which) as store:
        found = trial_documents(store, resolve_experiment(store, which))
    if json:
        from workbench.terminal.json_output import print_document

        print_document(found)
    else:
        _print_trials(found)
    return 0


@command("best", "fabric experiment best digits", "fabric experiment best @last --json")
def best(which: Which, json: Json = False) -> int:
    """Show the trial with the best value of the metric that it has reported.

    The exit code is 1 where none has reported it.
    """
    from workbench.services.open_store import store_of
    from workbench.services.submit.experiments import experiment_document
    from workbench.store.queries.experiments import resolve_experiment

    with store_of(which) as store:
        document = experiment_document(store, resolve_experiment(store, which))
    found = document["best"]
    if found is None:
        narrate(f"no trial has reported {document['metric'] or 'a metric that the search has named'} yet")
        return 1
    if json:
        from workbench.terminal.json_output import print_document

        print_document(found)
    else:
        _print_trials([found])
    return 0


@command("pause", "fabric experiment pause digits")
@_takes_jobs("halt")
def pause(which: Which, json: Json = False) -> int:
    """Halt the trials of a search and begin no others, until it is resumed."""
    from workbench.services.submit.experiments import pause_experiment

    return _steer(which, json, pause_experiment, "is being paused; `fabric experiment resume` continues it")


@command("resume", "fabric experiment resume digits")
@_takes_jobs("resume")
def resume(which: Which, json: Json = False) -> int:
    """Continue a search that is paused, its trials from their checkpoints."""
    from workbench.services.submit.experiments import resume_experiment

    return _steer(which, json, resume_experiment, "goes on")


@command(
    "fork",
    "fabric experiment fork digits --set name=wider --set search.max_concurrent=2",
    "fabric experiment fork @last --set seed=7",
)
def fork(
    which: Which,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set search.KEY, name or seed (repeatable)."),
    ] = None,
    json: Json = False,
) -> int:
    """Begin a new search with the job, code and backend of another one.

    Without another seed it draws the same trials. A search that is over has forgotten its secrets: they are
    looked for again, and those that are not found are named.
    """
    from workbench.services.open_store import open_store
    from workbench.services.submit.experiments import experiment_document, fork_experiment
    from workbench.store.queries.experiments import resolve_experiment

    with open_store(steers=True) as store:
        row = fork_experiment(store, resolve_experiment(store, which), tuple(set or ()))
        document = experiment_document(store, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return 0
    print(row.id)
    narrate(
        f"{row.name}: its trials run in the background; `fabric experiment show @last` says how it stands"
    )
    return 0


@command(
    "continue",
    "fabric experiment continue digits",
    "fabric experiment continue @last --set search.max_trials=20",
)
@_takes_jobs("resume")
def continue_search(
    which: Which,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "--config",
            metavar="KEY=VALUE",
            help="Set search.max_trials or search.max_concurrent (repeatable).",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Take up a search that is over: a random one or a grid.

    Trials that failed or were ended go on from their last checkpoints, as new attempts of the same jobs; those
    that completed stay as they are. With a larger max_trials further ones begin. Its secrets are looked for again.
    """
    from workbench.services.open_store import open_store
    from workbench.services.submit.experiments import continue_experiment, experiment_document
    from workbench.store.queries.experiments import resolve_experiment

    with open_store(steers=True) as store:
        row = resolve_experiment(store, which)
        count = continue_experiment(store, row, tuple(set or ()))
        document = experiment_document(store, resolve_experiment(store, row.id))
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return 0
    trials = (
        f"{count:,} trial{'' if count == 1 else 's'} from the last checkpoint"
        if count
        else "further trials begin"
    )
    narrate(f"{row.name} goes on: {trials}")
    return 0


@command("kill", "fabric experiment kill digits", "fabric experiment kill @last --json")
@_takes_jobs("kill", by_id=True)
def kill(which: Which, json: Json = False) -> int:
    """End a search and all its trials at once; what they have stored stays."""
    from workbench.services.submit.experiments import kill_experiment

    return _steer(which, json, kill_experiment, "is being ended")


@command(
    "wait",
    "fabric experiment wait digits",
    "fabric experiment wait @last --timeout 8h --json",
)
@_takes_jobs("wait")
def wait(which: Which, timeout: Timeout = None, json: Json = False) -> int:
    """Wait until a search is over, and with it all its trials.

    The exit code is 0 if it completed, 1 if it failed and 137 if it was killed.
    """
    from workbench.cli.follow.report import print_ends
    from workbench.job import EXIT_TIMED_OUT
    from workbench.services.control.searches import exit_code_of_search, wait_until_over
    from workbench.services.durations import seconds_of
    from workbench.services.open_store import store_of
    from workbench.services.submit.experiments import experiment_document
    from workbench.store.queries.experiments import resolve_experiment
    from workbench.terminal.errors import warn

    seconds = None if timeout is None else seconds_of(timeout, "--timeout")
    with store_of(which) as store:
        row = resolve_experiment(store, which)
        _, (row,), in_time = wait_until_over(store, (), (row,), timeout_seconds=seconds, warn=warn)
        if json:
            from workbench.terminal.json_output import print_document

            print_document(experiment_document(store, row))
        else:
            print_ends(store, (row,))
    return exit_code_of_search(row) if in_time else EXIT_TIMED_OUT


@command("delete", "fabric experiment delete digits --yes", "fabric experiment delete @last --yes --no-wait")
@_takes_jobs("delete", by_id=True)
def delete(which: Which, yes: Yes = False, no_wait: NoWait = False) -> int:
    """Delete a search and all its trials, with everything that they left behind.

    One that is not over is ended first.
    """
    from workbench.services.control.searches import deletion_question, wait_until_gone
    from workbench.services.open_store import store_of
    from workbench.services.submit.experiments import delete_experiment
    from workbench.store.queries.experiments import resolve_experiment, short_experiment_id

    with store_of(which, steers=True) as store:
        row = resolve_experiment(store, which)
        if not confirm(deletion_question(store, row), yes=yes):
            narrate("nothing was deleted")
            return 0
        delete_experiment(store, row)
        left = None if no_wait else wait_until_gone(store, row, narrate)
    if left:
        narrate(f"still being removed: {left}")
    outcome = "deletion requested" if no_wait else "deleted"
    narrate(f"{short_experiment_id(row.id)} {row.name}: {outcome}")
    return 0


@command("archive", "fabric experiment archive digits", "fabric experiment archive digits --undo")
@_takes_jobs()
def archive(
    which: Which,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back into the list.")] = False,
    json: Json = False,
) -> int:
    """Archive a search that is over: `list` leaves it out, all of it stays."""
    from workbench.services.submit.experiments import archive_experiment

    def change(store: Store, row: ExperimentRow) -> bool:
        return archive_experiment(store, row, undo=undo)

    return _steer(which, json, change, "is in the list again" if undo else "is archived")


def _steer(which: str, json: bool, change: Callable[[Store, ExperimentRow], bool], done: str) -> int:
    """Change a search, and say what became of it; one that is beyond that is named with its state."""
    from workbench.services.open_store import open_store
    from workbench.services.submit.experiments import experiment_document
    from workbench.store.queries.experiments import resolve_experiment

    with open_store(steers=True) as store:
        row = resolve_experiment(store, which)
        is_changed = change(store, row)
        document = experiment_document(store, resolve_experiment(store, row.id))
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
    elif is_changed:
        narrate(f"{row.name} {done}")
    else:
        archived = ", and is archived" if document["archived"] else ""
        had = "is" if row.is_open else "had ended already:"
        narrate(f"{row.name} {had} {document['state']}{archived}")
    return 0


def _print_trials(found: list[TrialDocument]) -> None:
    from workbench.services.submit.search_preview import sample_text
    from workbench.terminal.table import Column, render

    # Said where it tells trials apart.
    several = len({each["backend"] for each in found} - {None}) > 1
    has_rungs = any(each["rung"] is not None for each in found)
    columns = (
        Column("TRIAL", right=True),
        Column("JOB"),
        *((Column("BACKEND"),) if several else ()),
        Column("STATE"),
        Column("UNITS", right=True),
        *((Column("RUNG", right=True),) if has_rungs else ()),
        Column("LAST", right=True),
        Column("BEST", right=True),
        Column("PARAMETERS", stretch=True),
    )
    rows = [
        (
            str(each["number"]),
            each["id"].rpartition("-")[2],
            *((each["backend"] or "",) if several else ()),
            "QUEUED" if each["state"] == "RUNNING" and not each["begun"] else each["state"],
            _number(each["units"]),
            *((str(each["rung"]),) if has_rungs else ()),
            _number(each["last"]),
            _number(each["best"]),
            sample_text(each["hparams"]),
        )
        for each in found
    ]
    print(render(columns, rows, width=width()), end="")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


experiment = Family(
    "experiment",
    "Look at searches for hyper-parameters, pause, continue, end and delete them.",
    (
        list_experiments,
        show,
        trials,
        best,
        wait,
        pause,
        resume,
        continue_search,
        fork,
        kill,
        archive,
        delete,
    ),
    default="list",
)
