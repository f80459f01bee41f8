"""``fabric prune``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, Where, Yes
from workbench.terminal.console import confirm, narrate, width

if TYPE_CHECKING:
    from workbench.documents.files import PruningDocument
    from workbench.errors import FabricError
    from workbench.services.upkeep.retention import RemovalPlan, RetentionRule
    from workbench.store.db.database import Store

ORIGIN = "cli"

OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", help="Jobs that ended at least this long ago, e.g. 30d or 12h."
    ),
]
KeepLast = Annotated[int | None, typer.Option("--keep-last", min=0, metavar="N", help="Keep the newest N.")]
KeepFailed = Annotated[bool, typer.Option("--keep-failed", help="Keep jobs that failed.")]
LogsOnly = Annotated[
    bool, typer.Option("--logs-only", help="Remove only logs; results, checkpoints and metrics stay.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")]
Caches = Annotated[bool, typer.Option("--caches", help="Only unused caches, no jobs.")]


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

    Nothing is removed automatically. prune lists what it would remove and asks first, unless --yes is given.
    Without options, [retention] in the configuration decides. Jobs that are open, that open jobs wait for or
    begin with, that belong to an open search, or that have the tag `keep` stay. Caches are code, environments,
    copies of data, and images built from jobs' code; with --backend, the copies of data on that host.
    """
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.config import load_config
    from workbench.services.open_store import existing_store
    from workbench.services.upkeep.retention import plan_removal, rule_of

    options = {
        "older_than": older_than,
        "keep_last": keep_last,
        "keep_failed": keep_failed,
        "logs_only": logs_only,
    }
    rule = rule_of(options, {} if caches else load_config().retention, where or ())
    with existing_store(steers=not dry_run) as store:
        if store is None:
            narrate("nothing to do: no job was ever started from this home")
            return 0
        _check(rule, caches=caches, backend=backend)
        with shown_transfer() as report:
            plan = plan_removal(store, rule, caches_only=caches, backend=backend, report=report)
        if json and (dry_run or not yes or not plan):
            _print_document(plan, removed=False)
            return 0
        if not json:
            _print(plan)
        if dry_run or not plan:
            return 0
        if not confirm(f"Remove {_sum(plan)}?", yes=yes):
            narrate("nothing was removed")
            return 0
        errors = _remove(store, plan)
        done = plan.without(errors)
        if json:
            _print_document(done, removed=True)
        else:
            narrate(f"removed {_sum(done)}" if done else "nothing was removed")
    return next((error.exit_code for error in errors.values()), 0)


def _check(rule: RetentionRule, *, caches: bool, backend: str) -> None:
    from workbench.errors import UsageError

    if backend and not caches:
        raise UsageError("--backend selects caches; select jobs with --where 'backend:NAME'", hint="--caches")
    if caches and (rule.chooses or rule.logs_only):
        raise UsageError("--caches removes no jobs, so options that select jobs do not apply")
    if not caches and not rule.chooses:
        raise UsageError(
            "nothing selects the jobs to remove",
            hint="--older-than 30d, --keep-last 100 or --where FILTER, or [retention] in the configuration",
        )


def _print(plan: RemovalPlan) -> None:
    from workbench.clock import now_us
    from workbench.formats import ago, size
    from workbench.job import short_id
    from workbench.terminal.table import Column, render

    if not plan:
        narrate("nothing to remove")
        return
    columns = [Column("WHAT"), Column("NAME", stretch=True), Column("STATE"), Column("ENDED", right=True)]
    columns.append(Column("SIZE", right=True))
    now = now_us()
    rows = [
        [
            f"{'logs of' if plan.logs_only else 'job'} {short_id(use.row.id)}",
            use.row.name,
            use.row.state,
            ago(use.row.ended_us or use.row.changed_us, now),
            size(plan.freed_of(use)),
        ]
        for use in plan.jobs
    ]
    rows += [[each.kind, each.name, "", "", size(each.size_bytes)] for each in plan.caches]
    sys.stdout.write(render(columns, rows, width=width(120)))
    sys.stdout.flush()
    narrate(f"together {_sum(plan)}")


def _sum(plan: RemovalPlan) -> str:
    from workbench.formats import count, size

    names = ("job's log", "jobs' logs") if plan.logs_only else ("job", "jobs")
    parts = [count(len(plan.jobs), *names)]
    if plan.caches:
        parts.append(count(len(plan.caches), "unused part of a cache", "unused parts of caches"))
    return f"{', '.join(parts)}: {size(plan.freed_bytes)}"


def _remove(store: Store, plan: RemovalPlan) -> dict[str, FabricError]:
    """Remove what a plan names; return what stays, by its name, with the reason, which is printed, too."""
    from workbench.services.upkeep.retention import remove
    from workbench.terminal.errors import warn

    errors: dict[str, FabricError] = {}
    for removed in remove(store, plan, origin=ORIGIN):
        if removed.error:
            errors[removed.name] = removed.error
            warn(str(removed.error))
    return errors


def _print_document(plan: RemovalPlan, *, removed: bool) -> None:
    from workbench.services.inspect.job_document import job_document
    from workbench.terminal.json_output import print_document

    document: PruningDocument = {
        "schema": "fabric.pruning/1",
        "removed": removed,
        "logs_only": plan.logs_only,
        "jobs": [{**job_document(use.row), "freed_bytes": plan.freed_of(use)} for use in plan.jobs],
        "caches": [
            {"kind": each.kind, "name": each.name, "freed_bytes": each.size_bytes} for each in plan.caches
        ],
        "freed_bytes": plan.freed_bytes,
    }
    print_document(document)
