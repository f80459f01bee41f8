"""``fabric du``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, SomeJobs, Where
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.documents.files import SpaceDocument
    from workbench.services.upkeep.disk_usage import DiskUse, SharedCache
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

SHOWN = 20

All = Annotated[bool, typer.Option("--all", "-a", help=f"All jobs, not only the {SHOWN} largest.")]


@command(
    "du", "fabric du", "fabric du digits", "fabric du --where 'age>30d' --json", "fabric du --backend gpubox"
)
def du(
    jobs: SomeJobs = None, where: Where = None, backend: Backend = "", all: All = False, json: Json = False
) -> None:
    """Show how much disk space jobs and caches use on this machine.

    The largest jobs come first. `fabric prune` frees space. With --backend, shows the cached copies of data
    on that host.
    """
    if backend:
        from workbench.cli.commands.data.data import print_copies

        print_copies(backend, json=json)
        return
    from workbench.services.open_store import existing_store
    from workbench.services.upkeep.disk_usage import caches, use_of

    with existing_store(attends=False) as store:
        rows = _rows(store, jobs or [], where) if store else []
        uses = sorted(
            (use_of(store.home, row) for row in rows) if store else (),
            key=lambda use: use.total,
            reverse=True,
        )
        shared = caches(store.home) if store and not jobs and not where else []
    if json:
        from workbench.terminal.json_output import print_document

        print_document(_document(uses, shared))
    else:
        _print(uses, shared, None if all else SHOWN)


def _rows(store: Store, jobs: list[str], where: list[str] | None) -> list[JobRow]:
    from workbench.clock import now_us
    from workbench.services.filters import read_where
    from workbench.store.queries.job_list import listed
    from workbench.store.queries.resolve import each_name, resolve

    if jobs and not where:
        return [resolve(store, text) for text in each_name(store, jobs)]
    named = {resolve(store, text).id for text in each_name(store, jobs)}
    found = listed(store, ["deleted_us IS NULL"], {}, where=read_where(store, where), now_us=now_us())
    return [row for row in found if not named or row.id in named]


def _print(uses: list[DiskUse], shared: list[SharedCache], shown: int | None) -> None:
    from workbench.formats import count, size
    from workbench.job import short_id
    from workbench.terminal.table import Column, render

    titles = ("LOGS", "RESULTS", "CHECKPOINTS", "OTHER", "TOTAL")
    columns = [Column("ID"), Column("NAME", stretch=True), Column("STATE")]
    columns += [Column(title, right=True) for title in titles]
    cells = [
        [short_id(use.row.id), use.row.name, use.row.state, *(size(each) for each in _sizes(use))]
        for use in uses[:shown]
    ]
    if cells:
        sys.stdout.write(render(columns, cells, width=width(120)))
    total = sum(use.total for use in uses)
    if shown is not None and len(uses) > shown:
        rest = sum(use.total for use in uses[shown:])
        print(f"and {count(len(uses) - shown, 'job')} more with {size(rest)}; --all shows them")
    print(f"{count(len(uses), 'job')}: {size(total)}")
    if shared:
        rows = [[each.name, size(each.size_bytes), each.about] for each in shared]
        sys.stdout.write(
            "\n"
            + render([Column("SHARED"), Column("SIZE", right=True), Column("WHAT")], rows, width=width(120))
        )
        sys.stdout.flush()
        narrate(f"all together {size(total + sum(each.size_bytes for each in shared))}")


def _sizes(use: DiskUse) -> tuple[int, ...]:
    return (use.logs, use.results, use.checkpoints, use.other, use.total)


def _document(uses: list[DiskUse], shared: list[SharedCache]) -> SpaceDocument:
    return {
        "schema": "fabric.space/1",
        "jobs": [
            {
                "id": use.row.id,
                "name": use.row.name,
                "state": use.row.state.value,
                "logs_bytes": use.logs,
                "results_bytes": use.results,
                "checkpoints_bytes": use.checkpoints,
                "other_bytes": use.other,
                "total_bytes": use.total,
            }
            for use in uses
        ],
        "shared": [
            {"name": each.name, "path": str(each.path), "size_bytes": each.size_bytes} for each in shared
        ],
        "total_bytes": sum(use.total for use in uses) + sum(each.size_bytes for each in shared),
    }
