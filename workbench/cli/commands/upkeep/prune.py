"""``fabric prune``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, Where, Yes
from workbench.terminal.console import confirm, narrate

if TYPE_CHECKING:
    from workbench.services.upkeep.disk_usage import Use
    from workbench.services.upkeep.retention import Rule, Thing
    from workbench.store.db.database import Store

ORIGIN = "cli"

OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="TIME", help="Jobs that ended so long ago, as 30d or 12h."),
]
KeepLast = Annotated[int | None, typer.Option("--keep-last", min=0, metavar="N", help="Keep the newest N.")]
KeepFailed = Annotated[bool, typer.Option("--keep-failed", help="Keep jobs that failed.")]
LogsOnly = Annotated[
    bool, typer.Option("--logs-only", help="Remove only logs; results, checkpoints and metrics stay.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")]
Caches = Annotated[bool, typer.Option("--caches", help="Only caches that no job uses, and no job.")]


@command(
    "prune",
    "fabric prune --older-than 30d --dry-run",
    "fabric prune --older-than 30d --keep-failed --keep-last 20 --yes",
    "fabric prune --where 'state:failed' --logs-only --dry-run --json",
    "fabric prune --caches --yes",
    "fabric prune --caches --backend gpubox --yes",
)
def prune(
    older_than: OlderThan = None,
    keep_last: KeepLast = None,
    keep_failed: KeepFailed = False,
    where: Where = None,
    logs_only: LogsOnly = False,
    caches: Caches = False,
    backend: Backend = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Remove jobs that ended long ago, and caches that no job uses.

    Nothing goes by itself and nothing goes unsaid: it is listed, and asked for unless --yes is said. Without
    options [retention] of the configuration says what goes. Jobs that are open, that others come after, or that
    have the tag `keep` stay. Caches are code, environments, copies of data, and images built of jobs' code; with
    --backend the copies of data that a host has.
    """
    from workbench.config import load_config
    from workbench.services.open_store import existing_store
    from workbench.services.upkeep.disk_usage import use_of
    from workbench.services.upkeep.retention import chosen, copies_at, rule_of, unused

    said = {
        "older_than": older_than,
        "keep_last": keep_last,
        "keep_failed": keep_failed,
        "logs_only": logs_only,
    }
    rule = rule_of(said, {} if caches else load_config().retention, where)
    with existing_store() as store:
        if store is None:
            narrate("there is nothing: no job was ever started from this home")
            return 0
        _check(rule, caches=caches, backend=backend)
        uses = [] if caches else [use_of(store.home, row) for row in chosen(store, rule)]
        if rule.logs_only:
            uses = [use for use in uses if use.logs]
        things = [] if rule.logs_only or backend else list(unused(store, {use.row.id for use in uses}))
        things += copies_at(backend) if backend else []
        if json and (dry_run or not yes or not (uses or things)):
            _print_document(uses, things, rule, removed=False)
            return 0
        if not json:
            _print(uses, things, rule)
        if dry_run or not (uses or things):
            return 0
        if not confirm(_question(uses, things, rule), yes=yes):
            narrate("nothing was removed")
            return 0
        _remove(store, uses, things, rule)
        if json:
            _print_document(uses, things, rule, removed=True)
        else:
            narrate(f"removed {_sum(uses, things, rule)}")
    return 0


def _check(rule: Rule, *, caches: bool, backend: str) -> None:
    from workbench.errors import UsageError

    if backend and not caches:
        raise UsageError(
            "--backend says where caches are; jobs are chosen by --where 'backend:NAME'", hint="--caches"
        )
    if caches and (rule.says_which or rule.logs_only):
        raise UsageError("--caches removes no job, so nothing chooses among them")
    if not caches and not rule.says_which:
        raise UsageError(
            "which jobs may go?",
            hint="--older-than 30d, --keep-last 100 or --where FILTER, or [retention] in the configuration",
        )


def _print(uses: list[Use], things: list[Thing], rule: Rule) -> None:
    from workbench.clock import now_us
    from workbench.formats import ago, size
    from workbench.job import short_id
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    if not uses and not things:
        narrate("there is nothing to remove")
        return
    columns = [Column("WHAT"), Column("NAME", stretch=True), Column("STATE"), Column("ENDED", right=True)]
    columns.append(Column("SIZE", right=True))
    now = now_us()
    rows = [
        [
            f"{'logs of' if rule.logs_only else 'job'} {short_id(use.row.id)}",
            use.row.name,
            use.row.state,
            ago(use.row.ended_us or use.row.changed_us, now),
            size(_freed(use, rule)),
        ]
        for use in uses
    ]
    rows += [[each.kind, each.name, "", "", size(each.size_bytes)] for each in things]
    sys.stdout.write(render(columns, rows, width=width(120)))
    sys.stdout.flush()
    narrate(f"together {_sum(uses, things, rule)}")


def _freed(use: Use, rule: Rule) -> int:
    return use.logs if rule.logs_only else use.total


def _sum(uses: list[Use], things: list[Thing], rule: Rule) -> str:
    from workbench.formats import count, size

    total = sum(_freed(use, rule) for use in uses) + sum(each.size_bytes for each in things)
    parts = [
        count(
            len(uses),
            "job" if not rule.logs_only else "job's log",
            "jobs" if not rule.logs_only else "jobs' logs",
        )
    ]
    if things:
        parts.append(count(len(things), "unused part of a cache", "unused parts of caches"))
    return f"{', '.join(parts)}: {size(total)}"


def _question(uses: list[Use], things: list[Thing], rule: Rule) -> str:
    return f"Remove {_sum(uses, things, rule)}?"


def _remove(store: Store, uses: list[Use], things: Iterable[Thing], rule: Rule) -> None:
    from workbench.errors import FabricError
    from workbench.terminal.errors import warn

    if rule.logs_only:
        _remove_logs(store, uses)
        return
    _delete(store, uses)
    for each in things:
        try:
            each.remove()
        except FabricError as error:
            warn(str(error))


def _delete(store: Store, uses: list[Use]) -> None:
    from workbench.controller.runtime.client import ask, ensure_controller
    from workbench.services.follow.wait import wait_until

    rows = [use.row for use in uses]
    for row in rows:
        ask(store, row.id, "delete", origin=ORIGIN)
    if rows:
        ensure_controller(store.home)
        wait_until(store, rows, lambda now: all(row.deleted_us is not None for row in now))


def _remove_logs(store: Store, uses: list[Use]) -> None:
    from workbench.services.upkeep.disk_usage import log_files
    from workbench.store.jobs import add_note, who_am_i

    for use in uses:
        for file in list(log_files(store.home.job(use.row.id))):
            file.unlink(missing_ok=True)
        add_note(store, use.row.id, "its logs were removed", who=who_am_i(), origin=ORIGIN)


def _print_document(uses: list[Use], things: list[Thing], rule: Rule, *, removed: bool) -> None:
    from workbench.services.inspect.job_document import job_document
    from workbench.terminal.json_output import print_document

    document: dict[str, Any] = {
        "schema": "fabric.pruning/1",
        "removed": removed,
        "logs_only": rule.logs_only,
        "jobs": [{**job_document(use.row), "freed_bytes": _freed(use, rule)} for use in uses],
        "caches": [{"kind": each.kind, "name": each.name, "freed_bytes": each.size_bytes} for each in things],
        "freed_bytes": sum(_freed(use, rule) for use in uses) + sum(each.size_bytes for each in things),
    }
    print_document(document)
