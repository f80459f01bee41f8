"""``fabric plan``."""

from __future__ import annotations

import sys

import typer

from workbench.cli.commands.jobs import run
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, KubeContext, Namespace, Profile, Template
from workbench.cli.framework.registry import PROGRAM


@command(
    "plan",
    "fabric plan manifest.yml",
    "fabric plan --json manifest.yml src/",
    "fabric plan --gpus 2 -- python train.py",
    takes_command_line=True,
)
def plan(
    context: typer.Context,
    manifest: run.Manifest = "",
    code: run.Code = "",
    backend: Backend = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    runner: run.Runner = "",
    template: Template = None,
    profile: Profile = "",
    data: run.Data = None,
    results: run.Results = "",
    set: run.Set = None,
    env: run.Variable = None,
    name: run.Name = "",
    gpus: run.Gpus = None,
    image: run.Image = "",
    label: run.Labels = None,
    after: run.After = None,
    at_most: run.AtMost = None,
    json: Json = False,
) -> int:
    """Show exactly what a run would start, and start nothing."""
    from workbench.cli.commands.jobs.run_flow import Ways, run_words
    from workbench.config import profile as chosen
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
        argv=(PROGRAM, *sys.argv[1:]),
    )
    with chosen(profile):
        return run_words(words, Ways(plan=True, json=json))
