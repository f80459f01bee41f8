"""``fabric adopt``: jobs on a backend that were submitted from another machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import backend_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.services.submit.adoption import AdoptableJob

Backend = Annotated[
    str, typer.Argument(metavar="BACKEND", help="The backend where they run.", autocompletion=backend_names)
]
Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="The jobs to take over; without any, list them."),
]
All = Annotated[bool, typer.Option("--all", help="All jobs.")]
Watch = Annotated[bool, typer.Option("--watch", help="Watch only: do not restart or remove jobs.")]


@command("adopt", "fabric adopt gpubox", "fabric adopt gpubox k3f9x2mtq", "fabric adopt gpubox --all --watch")
def adopt(
    backend: Backend, jobs: Jobs = None, all: All = False, watch: Watch = False, json: Json = False
) -> None:
    """Take over jobs that you submitted from another machine.

    Both machines must reach the host as the same user. Without a job, the jobs there are listed. An adopted
    job can be followed, halted, resumed and downloaded as if it had been submitted here. The other machine
    can keep using it, too.
    """
    from workbench.services.open_store import open_store
    from workbench.services.submit.adoption import adopt as take_up
    from workbench.services.submit.adoption import chosen, find

    with open_store(steers=bool(jobs or all)) as store:
        found = find(store, backend)
        if jobs or all:
            found = chosen(store, found, jobs or [], watch=watch)
            adopted = [take_up(store, each, watch=watch) for each in found]
            for each, one in zip(found, adopted, strict=True):
                if one.missing_secrets:
                    _warn_of(each, one.missing_secrets)
        if json:
            _print_document(found, adopted=bool(jobs or all))
        elif jobs or all:
            new = sum(one.is_new for one in adopted)
            known = f", {len(found) - new} here already" if new < len(found) else ""
            narrate(f"adopted {new}{known}; `fabric list` shows them")
        else:
            _print_table(found)


def _warn_of(found: AdoptableJob, missing: Sequence[str]) -> None:
    from workbench.job import short_id
    from workbench.terminal.errors import warn

    names = ", ".join(missing)
    warn(
        f"{short_id(found.job_id)} cannot be started again from here: its secrets ({names}) are not on this machine"
    )


def _print_table(found: list[AdoptableJob]) -> None:
    from workbench.job import short_id
    from workbench.terminal.table import Column, render

    if not found:
        narrate("no jobs of your other machines were found")
        return
    columns = [
        Column("ID"),
        Column("NAME"),
        Column("RUNNER"),
        Column("ATTEMPT", right=True),
        Column("NOW", stretch=True),
    ]
    rows = [
        [
            short_id(each.job_id),
            each.spec.name,
            each.runner,
            str(each.attempt),
            each.now,
        ]
        for each in found
    ]
    sys.stdout.write(render(columns, rows, width=width(100)))


def _print_document(found: list[AdoptableJob], *, adopted: bool) -> None:
    from workbench.terminal.json_output import print_document

    print_document(
        [
            {
                "schema": "fabric.adoptable/1",
                "id": each.job_id,
                "name": each.spec.name,
                "home": each.home,
                "runner": each.runner,
                "attempt": each.attempt,
                "alive": each.alive,
                "now": each.now,
                "adopted": adopted,
            }
            for each in found
        ]
    )
