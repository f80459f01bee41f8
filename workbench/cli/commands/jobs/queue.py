"""``fabric queue``: the jobs that wait, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import open_job_and_search_names, open_job_names
from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Backend, Json, Labelled, MatchingJobs
from workbench.errors import UsageError
from workbench.job import short_id
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.services.backends.inventory import BackendQueue, QueuedJob
    from workbench.services.control.requests import Side
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

ORIGIN = "cli"
SIDES = {"ahead": "ahead of", "behind": "behind"}

JobsAndSettings = Annotated[
    list[str],
    typer.Argument(
        metavar="[JOB]... KEY=VALUE...",
        help="Jobs that wait, or searches, and what is set: priority=N (0 to 100, larger goes first), weight=N (0.01"
        " to 1000), begin=TIME (22:00, +2h, now).",
        autocompletion=open_job_and_search_names,
    ),
]
Moved = Annotated[
    str, typer.Argument(metavar="JOB", help="The job that is moved.", autocompletion=open_job_names)
]
AheadOf = Annotated[
    str,
    typer.Option("--ahead-of", metavar="JOB", help="Right ahead of this one.", autocompletion=open_job_names),
]
BehindOf = Annotated[
    str,
    typer.Option("--behind-of", metavar="JOB", help="Right behind this one.", autocompletion=open_job_names),
]
Top = Annotated[bool, typer.Option("--top", help="Ahead of all others of this home at its backend.")]


@command("list", "fabric queue list", "fabric queue list --backend gpubox", "fabric queue list --json")
def list_waiting(backend: Backend = "", json: Json = False) -> int:
    """List the jobs that wait, in the order in which they start.

    RANK is a job's place among all who wait for GPUs at its host, of all homes and people. Of other people's jobs
    only the person and the GPUs are shown, and the name where that person shares it. With --backend its host is asked
    even where no job of yours waits.
    """
    from workbench.services.backends.inventory import home_queues
    from workbench.services.open_store import existing_store

    with existing_store() as store:
        found = home_queues(store, backend)
    if json:
        _print_documents(found)
    else:
        _print_table(found)
    return 0


@command(
    "set",
    "fabric queue set digits priority=70",
    "fabric queue set digits other priority=20",
    "fabric queue set digits weight=2",
    "fabric queue set --label sweep=lr weight=2",
    "fabric queue set digits begin=22:00",
    "fabric queue set digits begin=now",
)
def set_keys(
    jobs: JobsAndSettings, label: Labelled = "", where: MatchingJobs = None, json: Json = False
) -> int:
    """Give jobs that wait another priority, weight or time.

    The order changes at once, and the job's history says who asked. weight=N is the part of your GPUs that the job's
    sweep or search gets, or the job by itself, where the host's policy is fair_share. begin=TIME takes what run --begin
    takes. Of a search, or an array, all trials that wait get it, and those that are made later; with --label and
    --where those that wait. Exit code 65: the priority or weight is out of range, or the time is none.
    """
    from workbench.services.control.requests import change, parse_change, waiting_among
    from workbench.services.control.select import JobSelector, Selection, select, select_all
    from workbench.services.open_store import store_of
    from workbench.store.queries.experiments import short_experiment_id

    names = tuple(word for word in jobs if "=" not in word)
    asked = parse_change([word for word in jobs if "=" in word])
    with store_of(names[0] if names else "", steers=True) as store:
        by_fact = JobSelector(label=label, where=tuple(where or ()), only_open=True)
        has_facts = bool(label or where)
        # Those that are named have to wait; of the others those that do are meant.
        named = Selection(()) if has_facts and not names else select_all(store, JobSelector(names))
        others = waiting_among(store, select(store, by_fact)) if has_facts else []
        rows = tuple({row.id: row for row in (*named.jobs, *others)}.values())
        if not rows and not named.searches:
            narrate("no job that waits matches")
        _wait(store, change(store, rows, asked, searches=named.searches, origin=ORIGIN))
        if not json:
            for each in named.searches:
                narrate(f"{short_experiment_id(each.id)} {each.name}: {asked.text}")
        return _report(store, rows, asked.text, json)


@command(
    "move",
    "fabric queue move digits --ahead-of other",
    "fabric queue move digits --behind-of other",
    "fabric queue move digits --top",
)
def move_job(
    job: Moved, ahead_of: AheadOf = "", behind_of: BehindOf = "", top: Top = False, json: Json = False
) -> int:
    """Move a job that waits ahead of another one, behind it, or to the top.

    Both wait at one backend. Where their priorities differ it gets the other one's. The order is by priority, then
    position, then time of submission; other homes at the host see the priority, a position only changes the turns
    of your own jobs.
    """
    from workbench.services.control.requests import move
    from workbench.services.open_store import store_of
    from workbench.store.queries.resolve import resolve

    given: list[tuple[Side, str]] = []
    given += [("ahead", ahead_of)] if ahead_of else []
    given += [("behind", behind_of)] if behind_of else []
    given += [("top", "")] if top else []
    if len(given) != 1:
        raise UsageError("where to?", hint="one of --ahead-of JOB, --behind-of JOB and --top")
    side, other = given[0]
    with store_of(job, steers=True) as store:
        row = resolve(store, job)
        anchor = resolve(store, other) if other else None
        _wait(store, move(store, row, side, anchor, origin=ORIGIN))
        where = "at the top" if anchor is None else f"right {SIDES[side]} {short_id(anchor.id)} {anchor.name}"
        return _report(store, (row,), where, json)


def _wait(store: Store, asked: dict[int, JobRow]) -> None:
    from workbench.services.follow.wait import wait_for_answers

    if asked:
        wait_for_answers(store, asked)


def _report(store: Store, rows: tuple[JobRow, ...], what: str, json: bool) -> int:
    from workbench.services.backends.inventory import home_queues

    if json:
        _print_documents(home_queues(store))
    else:
        for row in rows:
            narrate(f"{short_id(row.id)} {row.name}: {what}")
    return 0


def _print_documents(found: list[BackendQueue]) -> None:
    from workbench.terminal.json_output import print_document

    print_document([each.document() for each in found])


def _print_table(found: list[BackendQueue]) -> None:
    from workbench.terminal.table import Column, render

    rows = [(each.backend, *_cells(one)) for each in found for one in each.waiting]
    if rows:
        columns = (
            Column("BACKEND"),
            Column("RANK", right=True),
            Column("JOB"),
            Column("NAME", stretch=True),
            Column("PRIORITY", right=True),
            Column("GPUS", right=True),
            Column("SINCE"),
            Column("WHY", stretch=True),
        )
        print(render(columns, rows, width=width(120)), end="")
    else:
        narrate("no job waits")
    for each in found:
        if each.trouble:
            narrate(f"{each.backend}: who else waits there is not known: {each.trouble}")


def _cells(one: QueuedJob) -> tuple[str, ...]:
    from workbench.clock import now_us
    from workbench.formats import clock_time

    rank = "" if one.rank is None else f"{one.rank} of {one.of}"
    gpus = str(one.gpus or "")
    if one.job is None:
        return (rank, "", one.title, "", gpus, "", "")
    row = one.job.row
    since = clock_time(row.changed_us, now_us=now_us())
    return (
        rank,
        short_id(row.id),
        one.title,
        str(one.job.stands.priority),
        gpus,
        since,
        row.reason.text,
    )


queue = Family(
    "queue",
    "Look at the jobs that wait, and change their order.",
    (list_waiting, set_keys, move_job),
    default="list",
)
