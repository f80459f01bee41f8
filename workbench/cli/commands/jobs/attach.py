"""``fabric attach``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.follow_options import Notify, NotifyWhen, OnInterrupt, Quiet
from workbench.cli.framework.options import NoPrefix

LastJob = Annotated[
    str,
    typer.Argument(
        metavar="[JOB]",
        help="Its id, a part of it, or its name; default: the last job.",
        autocompletion=job_names,
    ),
]
Tail = Annotated[
    int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Begin with the last N lines.")
]
Json = Annotated[bool, typer.Option("--json", help="Print events, one JSON line each.")]


@command(
    "attach",
    "fabric attach",
    "fabric attach digits --tail 20 --notify",
    "fabric attach @last --notify-when 'loss<0.1'",
    "fabric attach @last --json",
)
def attach(
    job: LastJob = "@last",
    tail: Tail = None,
    on_interrupt: OnInterrupt = None,
    notify: Notify = False,
    notify_when: NotifyWhen = None,
    no_prefix: NoPrefix = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Follow a job's output and end with its exit code.

    Output begins with the first line of the job's last attempt. For a job that has ended, all of it is printed.
    """
    from workbench.cli.follow.attach import attach_to
    from workbench.cli.follow.options import FollowOptions
    from workbench.cli.follow.signals import policy_of
    from workbench.services.filters import read_conditions
    from workbench.services.open_store import store_with

    options = FollowOptions(
        on_interrupt=policy_of(on_interrupt),
        json=json,
        prefix=not no_prefix,
        quiet=quiet,
        notify=notify,
        notify_when=read_conditions(notify_when or []),
    )
    with store_with(job) as (store, row):
        return attach_to(store, row, options, tail=tail)
