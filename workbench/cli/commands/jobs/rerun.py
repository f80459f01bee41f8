"""``fabric rerun``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.follow_options import Detach, JsonEvents, OnInterrupt, Quiet
from workbench.cli.framework.options import Job, NoPrefix
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail

Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="A new name; default: the name of the first one.")
]


@command("rerun", "fabric rerun @last", "fabric rerun digits --name digits-again --detach")
def rerun(
    job: Job,
    name: Name = "",
    detach: Detach = False,
    on_interrupt: OnInterrupt = None,
    no_prefix: NoPrefix = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> int:
    """Run a job again with exactly its code, settings and Python.

    Differences that cannot be avoided (packages, driver, machine) are named on stderr.
    """
    from workbench.cli.commands.jobs.run_flow import print_detached, submit_and_narrate
    from workbench.cli.follow.attach import attach_to
    from workbench.cli.follow.options import FollowOptions
    from workbench.cli.follow.signals import policy_of
    from workbench.services.inspect.job_overview import runs_with_submitted_python
    from workbench.services.open_store import store_with
    from workbench.services.submit.rerun import differences, prepare_rerun
    from workbench.services.submit.submit import ControllerStart
    from workbench.store.queries.jobs import detail

    follow = FollowOptions(on_interrupt=policy_of(on_interrupt), json=json, prefix=not no_prefix, quiet=quiet)
    with store_with(job, steers=True) as (store, row), ControllerStart(store.home):
        whole = detail(store, row.id)
        submission = prepare_rerun(store, whole, name=name, argv=("fabric", *sys.argv[1:]))
        found = differences(
            whole.recorded, submission.recorded, uses_packages=runs_with_submitted_python(whole.row)
        )
        _print_differences(found, whole, quiet=quiet or json)
        again = submit_and_narrate(store, submission, quiet=quiet or json)
        if detach:
            return print_detached(again, json=json, quiet=quiet)
        code = attach_to(store, again, follow, fresh=True)
        _print_changed_data(store, whole, again.id)
        return code


def _print_changed_data(store: Store, whole: JobDetail, again: str) -> None:
    """Say where the data is no longer what the first job read."""
    from workbench.data.stores.fingerprints import fingerprints
    from workbench.job import short_id
    from workbench.terminal.errors import warn

    job = store.home.job
    before = {each.store: each.fingerprint for each in fingerprints(job(whole.row.id), whole.row.attempt)}
    for each in fingerprints(job(again), 1):
        if before.get(each.store, each.fingerprint) != each.fingerprint:
            warn(
                f"differs from {short_id(whole.row.id)}: the data in {each.path} of the data store {each.store}"
            )


def _print_differences(found: list[str], whole: JobDetail, *, quiet: bool) -> None:
    from workbench.job import short_id
    from workbench.terminal.errors import warn

    for text in found:
        warn(f"differs from {short_id(whole.row.id)}: {text}")
    if not found and not quiet:
        narrate(f"no known differences from {short_id(whole.row.id)}")
