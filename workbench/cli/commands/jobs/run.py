"""``fabric run``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.follow_options import (
    Detach,
    JsonEvents,
    Junit,
    Notify,
    NotifyWhen,
    OnInterrupt,
    Quiet,
    Require,
    Summary,
)
from workbench.cli.framework.options import NoPrefix
from workbench.cli.framework.run_options import takes_run_options
from workbench.services.submit.options import RunOptions
from workbench.terminal.console import narrate

AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="With --detach: start even if the results are lost unless somebody fetches them.",
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        help="Halt the job after this time, e.g. 90s or 2h, including waiting and start; exit code 124.",
    ),
]
FollowFirstTrial = Annotated[
    bool,
    typer.Option(
        "--follow-first-trial",
        help="Of a search: follow the output of its first trial; ctrl-c only leaves it.",
    ),
]
Every = Annotated[
    str,
    typer.Option(
        "--every",
        metavar="CRON",
        help="Start it again and again: '0 22 * * *' (minute hour day month weekday, local time), @daily, @hourly;"
        " see `fabric schedule`.",
    ),
]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Show what would be started, and start nothing.")]


@command(
    "run",
    "fabric run manifest.yml",
    "fabric run manifest.yml src/ --set params.lr=0.01 --name quick",
    "fabric run -d -e WANDB_API_KEY -e EPOCHS=3 manifest.yml",
    "fabric run manifest.yml --template gpu --profile ci",
    "fabric run manifest.yml --data ~/mnist --results lab:results",
    "fabric run --backend k8s --namespace team manifest.yml",
    "fabric run manifest.yml --timeout 2h --require 'accuracy>=0.9' --junit fabric.xml --summary fabric.md",
    "fabric run manifest.yml --set params.lr=0.1,0.01,0.001 --set params.seed=1..5 --at-most 2",
    "fabric run manifest.yml --set params.seed=1..50000 --at-most 100",
    "fabric run manifest.yml --after prepare:completed",
    "fabric run -d manifest.yml --begin 22:00",
    "fabric run manifest.yml --every '0 22 * * *'",
    "fabric run manifest.yml --notify --notify-when 'loss<0.1'",
    "fabric run manifest.yml --from digits@300",
    "fabric run --gpus 1 -- python train.py --lr 0.1",
    takes_command_line=True,
)
@takes_run_options()
def run(
    options: RunOptions,
    detach: Detach = False,
    accept_loss: AcceptLoss = False,
    follow_first_trial: FollowFirstTrial = False,
    on_interrupt: OnInterrupt = None,
    timeout: Timeout = None,
    require: Require = None,
    junit: Junit = "",
    summary: Summary = "",
    notify: Notify = False,
    notify_when: NotifyWhen = None,
    every: Every = "",
    plan: OnlyPlan = False,
    no_prefix: NoPrefix = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> int:
    """Run a training job and follow it.

    Without MANIFEST and COMMAND it is that of ./manifest.yml.
    The job's output goes to stdout byte for byte, everything else to stderr; the exit code is the job's own.
    The job keeps running when this command ends: ctrl-c only detaches (`fabric attach` follows it again).
    Without a terminal, ctrl-c halts the job. Several values in --set, or several documents in MANIFEST, start
    several jobs: the values as a product with one label `sweep`, the documents one after the other. More than 1,000
    values are an array, which makes its jobs in the background when their turn comes (`fabric experiment show`), as a
    search does: with --require, --junit, --summary, --timeout or --notify this command stays until it is over.
    """
    from workbench.cli.commands.jobs.run_flow import start
    from workbench.cli.follow.options import read_follow_options
    from workbench.services.submit.batch import read_batch

    batch = read_batch(options)
    if not (options.manifest or options.command or quiet):
        narrate(f"running {batch.options[0].manifest} of this folder")
    if plan:
        from workbench.cli.commands.manifests.plan import print_previews

        return print_previews(batch, json=json)
    follow = read_follow_options(
        on_interrupt=on_interrupt,
        detach=detach,
        accept_loss=accept_loss,
        first_trial=follow_first_trial,
        json=json,
        no_prefix=no_prefix,
        quiet=quiet,
        timeout=timeout,
        notify=notify,
        notify_when=tuple(notify_when or ()),
        require=tuple(require or ()),
        junit=junit,
        summary=summary,
    )
    if every:
        from workbench.cli.commands.jobs.run_flow import start_schedule

        return start_schedule(options, every, follow)
    follow.report_files.check()
    return start(batch, follow)
