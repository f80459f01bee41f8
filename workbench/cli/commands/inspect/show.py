"""``fabric show``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Job, Json

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail

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
        whole = detail(store, row.id)
        if json:
            from workbench.services.inspect.job_document import show_document
            from workbench.terminal.json_output import print_document

            print_document(show_document(store, whole))
        elif manifest:
            sys.stdout.write(whole.manifest_text.rstrip("\n") + "\n")
        elif origin:
            _print_origins(whole)
        elif history:
            _print_history(store, whole)
        else:
            from workbench.cli.commands.inspect.overview_text import overview

            sys.stdout.write(overview(store, whole))


def _print_origins(whole: JobDetail) -> None:
    from workbench.terminal.table import Column, render

    rows = [[key, _plain(value), origin_of(whole.origins, key)] for key, value in settings(whole)]
    columns = [Column("SETTING"), Column("VALUE", stretch=True), Column("FROM")]
    from workbench.terminal.console import width

    sys.stdout.write(render(columns, rows, width=width(120)))


def origin_of(origins: Mapping[str, str], key: str) -> str:
    """Return where a setting came from: a manifest's key has no unit in its name, and may stand for a whole."""
    plain = key.removesuffix("_seconds").removesuffix("_bytes")
    names = [key, plain, f"resources.{plain}"]
    names += [".".join(key.split(".")[:parts]) for parts in range(key.count("."), 0, -1)]
    return next((origins[name] for name in names if name in origins), "default")


def settings(whole: JobDetail) -> list[tuple[str, Any]]:
    """Return every setting of a job by its dotted key."""
    from workbench.spec import spec_to_json

    flat = _flatten("", spec_to_json(whole.spec))
    return sorted(flat.items())


def _flatten(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value:
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        pairs = [(str(number), item) for number, item in enumerate(value)]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in pairs:
        flat |= _flatten(f"{prefix}.{key}" if prefix else key, item)
    return flat


def _plain(value: Any) -> str:
    if value is None or value == {} or value == []:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _print_history(store: Store, whole: JobDetail) -> None:
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
        for event in transitions(store, whole.row.id)
    ]
    columns = [Column("TIME"), Column("ATTEMPT", right=True), Column("WHAT"), Column("WHO"), Column("FROM")]
    columns.append(Column("WHY", stretch=True))
    sys.stdout.write(render(columns, rows, width=width(140)))
