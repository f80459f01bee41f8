"""``fabric run``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from workbench.cli.framework.completion import job_refs, metric_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, KubeContext, Namespace, NoPrefix, Profile, Template

Manifest = Annotated[
    str,
    typer.Argument(
        metavar="[MANIFEST]", help="A manifest, `-` for stdin; nothing where a command follows `--`."
    ),
]
Code = Annotated[
    str,
    typer.Argument(metavar="[CODE]", help="Folder, zip or tar with the code; else the manifest's folder."),
]
Runner = Annotated[
    str, typer.Option("--runner", metavar="NAME", help="The way to start it: process, container, pod.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the manifest, as `params.lr=0.1` (repeatable); a list `0.1,0.01` or a range"
        " `1..5` starts one job for each value.",
    ),
]
Variable = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        metavar="KEY[=VALUE]",
        help="Set a variable; without a value pass yours through as a secret.",
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="[ID=]PATH|URL",
        help="What DATA_DIR holds: a folder here, STORE:CONTAINER or s3://... (repeatable; ID: a store of the"
        " manifest).",
    ),
]
Results = Annotated[
    str, typer.Option("--results", metavar="PATH|URL", help="Where results go: as for --data.")
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="JOB[@STEP]",
        help="Begin with a checkpoint of another job: its last one, or that of a step.",
        autocompletion=job_refs,
    ),
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The job's name.")]
Gpus = Annotated[int | None, typer.Option("--gpus", min=0, metavar="N", help="GPUs for each learner.")]
Image = Annotated[str, typer.Option("--image", metavar="IMAGE", help="The image that learners run in.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="KEY=VALUE", help="Mark the job with a label (repeatable)."),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="JOB[:completed|ended]",
        help="Start when that job has completed, or however it ended (repeatable).",
        autocompletion=job_refs,
    ),
]
AtMost = Annotated[
    int | None,
    typer.Option(
        "--at-most", min=1, metavar="N", help="Of the jobs with the same label `sweep` run N at once."
    ),
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, and return.")]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="With --detach: start it though its results are lost unless they are fetched."
    ),
]
OnInterrupt = Annotated[
    str | None,
    typer.Option(
        "--on-interrupt",
        metavar="detach|halt|kill",
        help="What ctrl-c, SIGTERM and a hang-up do to the job; on a terminal detach, else halt.",
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        help="Halt the job after so long, as 90s or 2h, waiting and start included; exit code 124.",
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="CONDITION",
        help="Exit with 1 unless it holds at the end, as 'accuracy>=0.9' or 'min(loss)<0.1' (repeatable).",
        autocompletion=metric_names,
    ),
]
Junit = Annotated[str, typer.Option("--junit", metavar="FILE", help="Write a JUnit report at the end.")]
Summary = Annotated[
    str, typer.Option("--summary", metavar="FILE", help="Write a summary in Markdown at the end.")
]
Notify = Annotated[
    bool,
    typer.Option("--notify", help="Call me at the end: the terminal's bell and notice, and the desktop's."),
]
NotifyWhen = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-when",
        metavar="CONDITION",
        help="Call me when it holds, as 'loss<0.1'.",
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
def run(
    context: typer.Context,
    manifest: Manifest = "",
    code: Code = "",
    backend: Backend = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    runner: Runner = "",
    template: Template = None,
    profile: Profile = "",
    data: Data = None,
    results: Results = "",
    checkpoint: From = "",
    set: Set = None,
    env: Variable = None,
    name: Name = "",
    gpus: Gpus = None,
    image: Image = "",
    label: Labels = None,
    after: After = None,
    at_most: AtMost = None,
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
    The job lives on when this command ends: ctrl-c only leaves it (`fabric attach` comes back), unless there
    is no terminal: then it halts the job. Several values in --set, and several documents in MANIFEST, start
    several jobs: the values as a product with one label `sweep`, the documents one after the other.
    """
    from workbench.cli.framework.registry import PROGRAM
    from workbench.services.submit.options import Words

    words = Words(
        manifest=manifest,
        code=code,
        command=tuple(context.obj or ()),
        backend=backend,
        context=kube_context,
        namespace=namespace,
        runner=runner,
        overrides=tuple(set or ()),
        environment=tuple(env or ()),
        name=name,
        gpus=gpus,
        image=image,
        labels=tuple(label or ()),
        templates=tuple(template or ()),
        after=tuple(after or ()),
        at_most=at_most,
        data=tuple(data or ()),
        results=results,
        checkpoint=checkpoint,
        argv=(PROGRAM, *sys.argv[1:]),
    )
    from workbench.cli.commands.jobs.run_flow import Ways, run_words
    from workbench.config import profile as chosen

    ways = Ways(
        plan=plan,
        detach=detach or None,
        accept_loss=accept_loss,
        on_interrupt=on_interrupt,
        timeout=timeout,
        require=tuple(require or ()),
        junit=junit,
        summary=summary,
        notify=notify or None,
        notify_when=tuple(notify_when or ()) or None,
        no_prefix=no_prefix or None,
        quiet=quiet or None,
        json=json,
    )
    with chosen(profile):
        return run_words(words, ways)
