"""``fabric show``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, Json

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow

Origin = Annotated[bool, typer.Option("--origin", help="Each setting, and where its value came from.")]
History = Annotated[bool, typer.Option("--history", help="Everything that happened, with who and when.")]
ShowManifest = Annotated[bool, typer.Option("--manifest", help="The manifest as it was submitted.")]


@command("show", "fabric show @last", "fabric show digits --origin", "fabric show @last --json")
def show(
    job: Job,
    origin: Origin = False,
    history: History = False,
    manifest: ShowManifest = False,
    json: Json = False,
) -> None:
    """Show one job: state, why, times, settings, results."""
    from workbench.services.open_store import store_with
    from workbench.store.jobs import detail

    with store_with(job) as (store, row):
        if json:
            from workbench.services.inspect.job_document import describe
            from workbench.terminal.json_output import print_document

            print_document(describe(store, row.id))
        elif manifest:
            sys.stdout.write(detail(store, row.id).manifest_text.rstrip("\n") + "\n")
        elif origin:
            _print_origins(detail(store, row.id))
        elif history:
            _print_history(store, row)
        else:
            from workbench.cli.commands.inspect.overview_text import overview_text
            from workbench.clock import now_us
            from workbench.services.inspect.job_overview import overview

            now = now_us()
            page = overview(store, row.id, now)
            if page.error:
                raise page.error
            sys.stdout.write(overview_text(page, now))


def _print_origins(detail: JobDetail) -> None:
    from workbench.services.inspect.settings import job_settings, origin_of
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    rows = [
        [key, _plain(value), origin_of(detail.origins, key)] for key, value in job_settings(detail).items()
    ]
    columns = [Column("SETTING"), Column("VALUE", stretch=True), Column("FROM")]

    sys.stdout.write(render(columns, rows, width=width(120)))


def _plain(value: Any) -> str:
    if value is None or value == {} or value == []:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _print_history(store: Store, row: JobRow) -> None:
    from workbench.formats import stamp
    from workbench.store.jobs import transitions
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    rows = [
        [
            stamp(event.time_us),
            str(event.attempt),
            event.state or event.kind,
            event.who,
            event.origin,
            event.text,
        ]
        for event in transitions(store, row.id)
    ]
    columns = [Column("TIME"), Column("ATTEMPT", right=True), Column("WHAT"), Column("WHO"), Column("FROM")]
    columns.append(Column("WHY", stretch=True))
    sys.stdout.write(render(columns, rows, width=width(140)))
