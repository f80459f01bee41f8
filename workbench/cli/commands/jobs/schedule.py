"""``fabric schedule``: runs that come again."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json
from workbench.errors import UnknownName
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.documents.schedules import ScheduleDocument, ScheduledRun
    from workbench.store.db.database import Store
    from workbench.store.queries.schedules import ScheduleRow

Which = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="An id, the beginning of one, a name, or @last.")
]


@command("list", "fabric schedule list", "fabric schedule list --json")
def list_schedules(json: Json = False) -> int:
    """List schedules, the newest first: when each comes next, and what was missed since it last ran."""
    from workbench.services.open_store import existing_store
    from workbench.services.submit.schedules import schedule_document
    from workbench.store.queries.schedules import schedules
    from workbench.terminal.errors import warn

    with existing_store() as store:
        rows, faults = ([], []) if store is None else schedules(store.home)
        found = [] if store is None else [schedule_document(store.home, row) for row in rows]
    for fault in faults:
        warn(fault)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(found)
        return 0
    if not found:
        narrate("there are no schedules; `fabric run manifest.yml --every '0 22 * * *'` makes one")
        return 0
    from workbench.terminal.table import Column, render

    columns = (
        Column("ID"),
        Column("NAME", stretch=True),
        Column("EVERY"),
        Column("STATE"),
        Column("NEXT"),
        Column("LAST"),
        Column("MISSED", right=True),
        Column("WHY", stretch=True),
    )
    cells = [
        (
            each["id"].rpartition("-")[2],
            each["name"],
            each["every"],
            each["state"],
            _minute(each["next"]),
            _minute(each["last"]),
            str(each["missed"] or ""),
            each["trouble"],
        )
        for each in found
    ]
    print(render(columns, cells, width=width(120)), end="")
    return 0


@command("show", "fabric schedule show nightly", "fabric schedule show @last --json")
def show(
    which: Which,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All that became of it.")] = False,
    json: Json = False,
) -> int:
    """Show a schedule: what it starts and when, and what became of its last 20 times."""
    from workbench.services.submit.schedules import SHOWN, schedule_document
    from workbench.terminal.table import fields

    with _schedule_with(which) as (store, row):
        document = schedule_document(store.home, row, runs=None if everything else SHOWN)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return 0
    import shlex

    pairs = [
        ("schedule", document["id"]),
        ("name", document["name"]),
        ("state", document["state"]),
        ("every", f"{document['every']} ({document['zone']})"),
        ("next", _minute(document["next"]) or "when it is resumed"),
        ("last", _last_text(document)),
        ("missed", _missed_text(document) or "none since"),
        ("command", shlex.join(document["command"])),
        ("folder", document["folder"]),
    ]
    print(fields(pairs), end="")
    for line in _run_lines(document["runs"]):
        print(line)
    return 0


@command("pause", "fabric schedule pause nightly", "fabric schedule pause @last --json")
def pause(which: Which, json: Json = False) -> int:
    """Start no more runs of a schedule until it is resumed; one that goes on is left alone."""
    return _switch(which, json, paused=True)


@command("resume", "fabric schedule resume nightly", "fabric schedule resume @last --json")
def resume(which: Which, json: Json = False) -> int:
    """Let a schedule go on with its next time; what came while it was paused is not made up for."""
    return _switch(which, json, paused=False)


@command("run", "fabric schedule run nightly", "fabric schedule run @last --json")
def run_once(which: Which, json: Json = False) -> int:
    """Start a run of a schedule now, just as it would be started when its time comes.

    Exit code 75: the run before still goes on.
    """
    from workbench.services.submit.schedules import run_now, schedule_document

    with _schedule_with(which, steers=True) as (store, row):
        jobs = run_now(store, row)
        document = schedule_document(store.home, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return 0
    for job in jobs:
        print(job)
    narrate(f"{row.name} runs in the background; `fabric attach {jobs[0].rpartition('-')[2]}` follows it")
    return 0


@command("delete", "fabric schedule delete nightly", "fabric schedule delete @last --json")
def delete(which: Which, json: Json = False) -> int:
    """Delete a schedule; jobs that it has started stay, and go on."""
    from workbench.services.submit.schedules import delete_schedule, schedule_document

    with _schedule_with(which, steers=True) as (store, row):
        document = schedule_document(store.home, row)
        delete_schedule(store.home, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
    else:
        narrate(f"{row.name} is deleted; its jobs stay: `fabric list --label schedule={row.nine}`")
    return 0


def _switch(which: str, json: bool, *, paused: bool) -> int:
    from workbench.services.submit.schedules import pause_schedule, schedule_document

    with _schedule_with(which, steers=True) as (store, row):
        changed = pause_schedule(store.home, row, paused=paused)
        is_changed, row = changed is not row, changed
        document = schedule_document(store.home, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return 0
    already = "" if is_changed else "already "
    what = "paused" if paused else f"active; it comes next at {_minute(document['next'])}"
    narrate(f"{row.name} is {already}{what}")
    return 0


def _run_lines(runs: list[ScheduledRun]) -> Iterator[str]:
    if not runs:
        return
    yield ""
    for run in runs:
        jobs = " ".join(job.rpartition("-")[2] for job in run["jobs"])
        due = f" (due {_minute(run['due'])})" if run["due"] and run["what"] != "started" else ""
        many = f" {run['count']:,}" if run["what"] == "missed" else ""
        why = f": {run['why']}" if run["why"] else ""
        yield f"{_minute(run['time'])}  {run['what']}{many}{due}{' ' if jobs else ''}{jobs}{why}"


def _last_text(document: ScheduleDocument) -> str:
    jobs = " ".join(job.rpartition("-")[2] for job in document["jobs"])
    return f"{_minute(document['last'])}: {jobs}" if document["last"] else "none yet"


def _missed_text(document: ScheduleDocument) -> str:
    if not document["missed"]:
        return ""
    return f"{document['missed']:,} since {_minute(document['missed_since'])}"


def _minute(time: str | None) -> str:
    """Return a time of a document for people: local, to the minute."""
    from workbench.formats import stamp
    from workbench.time_expressions import iso_us

    found = iso_us(time or "")
    return "" if found is None else stamp(found)[:-3]


@contextmanager
def _schedule_with(which: str, *, steers: bool = False) -> Iterator[tuple[Store, ScheduleRow]]:
    from workbench.services.open_store import existing_store
    from workbench.store.queries.schedules import resolve_schedule

    with existing_store(steers=steers) as store:
        if store is None:
            raise UnknownName(
                f"there is no schedule '{which}'", hint="`fabric run manifest.yml --every @daily` makes one"
            )
        yield store, resolve_schedule(store.home, which)


schedule = Family(
    "schedule",
    "Look at runs that come again, pause, resume, start and delete them.",
    (list_schedules, show, pause, resume, run_once, delete),
    default="list",
)
