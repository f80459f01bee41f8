"""``fabric run``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.completion import metric_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import NoPrefix
from workbench.cli.framework.run_options import takes_run_options
from workbench.services.submit.options import RunOptions

Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, and return.")]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="With --detach: start even if the results are lost unless somebody fetches them.",
    ),
]
OnInterrupt = Annotated[
    str | None,
    typer.Option(
        "--on-interrupt",
        metavar="detach|halt|kill",
        help="What ctrl-c, SIGTERM and a hang-up do to the job; default: detach on a terminal, else halt.",
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
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="CONDITION",
        help="Exit with 1 unless this holds at the end, e.g. 'accuracy>=0.9' or 'min(loss)<0.1' (repeatable).",
        autocompletion=metric_names,
    ),
]
Junit = Annotated[str, typer.Option("--junit", metavar="FILE", help="Write a JUnit report at the end.")]
Summary = Annotated[
    str, typer.Option("--summary", metavar="FILE", help="Write a summary in Markdown at the end.")
]
Notify = Annotated[
    bool,
    typer.Option("--notify", help="Notify when the job ends (bell, terminal and desktop notification)."),
]
NotifyWhen = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-when",
        metavar="CONDITION",
        help="Notify when this holds, e.g. 'loss<0.1'.",
        autocompletion=metric_names,
    ),
]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Show what would be started, and start nothing.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the job's output, no narration.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print events, one JSON line each; with -d or --plan a document.")
]


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
    "fabric run manifest.yml --after prepare:completed",
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
    on_interrupt: OnInterrupt = None,
    timeout: Timeout = None,
    require: Require = None,
    junit: Junit = "",
    summary: Summary = "",
    notify: Notify = False,
    notify_when: NotifyWhen = None,
    plan: OnlyPlan = False,
    no_prefix: NoPrefix = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Run a training job and follow it.

    The job's output goes to stdout byte for byte, everything else to stderr; the exit code is the job's own.
    The job keeps running when this command ends: ctrl-c only detaches (`fabric attach` follows it again).
    Without a terminal, ctrl-c halts the job. Several values in --set, or several documents in MANIFEST, start
    several jobs: the values as a product with one label `sweep`, the documents one after the other.
    """
    from workbench.cli.commands.jobs.run_flow import start
    from workbench.cli.follow.options import read_follow_options
    from workbench.cli.follow.report import check_reports
    from workbench.services.submit.batch import read_batch

    batch = read_batch(options)
    if plan:
        from workbench.cli.commands.manifests.plan import print_previews

        return print_previews(batch, json=json)
    follow = read_follow_options(
        on_interrupt=on_interrupt,
        detach=detach,
        accept_loss=accept_loss,
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
    check_reports(follow)
    return start(batch, follow)
