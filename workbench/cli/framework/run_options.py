"""The options of a run, declared once for the commands that start or preview jobs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, cast, get_type_hints

import typer

from workbench.cli.framework.completion import job_refs, manifest_keys, runner_names
from workbench.cli.framework.declare import HELP_OPTIONS
from workbench.cli.framework.options import Backends, KubeContext, Namespace, Profile, Template
from workbench.cli.framework.registry import PROGRAM
from workbench.errors import UsageError
from workbench.services.submit.options import RunOptions, RunRequest

_NEEDS_WAITING: Final = ("plan", "json", "timeout", "require", "junit", "summary")
"""Options of ``fabric run`` that say nothing of a job which starts in the background."""

Manifest = Annotated[
    str,
    typer.Argument(
        metavar="[MANIFEST]", help="A manifest, or `-` for stdin; omit it if a command follows `--`."
    ),
]
Code = Annotated[
    str,
    typer.Argument(metavar="[CODE]", help="Folder, zip or tar with the code; else the manifest's folder."),
]
CodeAnyway = Annotated[
    bool,
    typer.Option(
        "--code-anyway", help="Take the code even if it is a home folder, a file system's root or very large."
    ),
]
Runner = Annotated[
    str,
    typer.Option(
        "--runner",
        metavar="NAME",
        help="The runner: process, container or pod.",
        autocompletion=runner_names,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the manifest, e.g. `params.lr=0.1` (repeatable); a list `0.1,0.01` or a range"
        " `1..5` starts one job for each value.",
        autocompletion=manifest_keys,
    ),
]
Variable = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        metavar="KEY[=VALUE]",
        help="Set an environment variable; without a value, pass on your own as a secret.",
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="[ID=]PATH|URL",
        help="What DATA_DIR holds: a local folder, STORE:CONTAINER or s3://... (repeatable; ID: a store"
        " of the manifest).",
    ),
]
Results = Annotated[
    str, typer.Option("--results", metavar="PATH|URL", help="Where results go; same forms as --data.")
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="JOB[@STEP]|UUID",
        help="Start from a checkpoint of another job: the last one, that of STEP, or the one with a UUID; `none`:"
        " from nothing, whatever the file or the script names.",
        autocompletion=job_refs,
    ),
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The job's name.")]
Gpus = Annotated[int | None, typer.Option("--gpus", min=0, metavar="N", help="GPUs for each learner.")]
Image = Annotated[str, typer.Option("--image", metavar="IMAGE", help="The container image.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="KEY=VALUE", help="Mark the job with a label (repeatable)."),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="JOB[:completed|ended]",
        help="Start after that job has completed (or ended in any way; repeatable).",
        autocompletion=job_refs,
    ),
]
Begin = Annotated[
    str,
    typer.Option(
        "--begin", metavar="TIME", help="Start at that time: 22:00, 2026-12-24T08:00 (local time), +2h."
    ),
]
AtMost = Annotated[
    int | None,
    typer.Option(
        "--at-most", min=1, metavar="N", help="Run at most N jobs with the same label `sweep` at once."
    ),
]


def takes_run_options(*left_out: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Declare that a command takes the options of a run, less those that are named.

    The command's first parameter gets them as one :class:`RunOptions`; its other parameters are options of its
    own, which follow in its help. The profile is in force while the command runs.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        shared = _parameters(_run_options)
        for name in left_out:
            del shared[name]
        own = _parameters(function)
        del own[next(iter(own))]

        @functools.wraps(function)
        def command(**values: Any) -> int:
            from workbench.config import profile as in_force

            given = {name: values.pop(name) for name in shared}
            with in_force(given.pop("profile")):
                return function(_run_options(**given), **values)

        parameters = [*shared.values(), *own.values()]
        # Typer reads both.
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def read_run_options(words: Sequence[str]) -> RunRequest:
    """Read the words of ``fabric run`` as the command does, without running it.

    For clients that show what a command line would start, or start it in the background.

    Raises:
        UsageError: the words are not such as the command takes.
    """
    from typer.main import get_command

    from workbench.cli.framework import dispatch, registry

    entry = registry.find("run")
    assert entry is not None
    command = dispatch.load(entry)
    own, after = command.split(words)
    if any(word in HELP_OPTIONS["help_option_names"] for word in own):  # it would be printed
        raise UsageError("--help shows help and starts no job")
    try:
        with get_command(command.app()).make_context(f"{PROGRAM} run", own, obj=after) as context:
            found = context.params
            given = {name: found[name] for name in _parameters(_run_options) if name != "context"}
            profile = str(given.pop("profile") or "")
            options = _run_options(cast("typer.Context", context), **given)
            waiting = tuple(f"--{name}" for name in _NEEDS_WAITING if found[name])
            return RunRequest(
                replace(options, argv=(PROGRAM, "run", *words)),
                profile,
                every=found["every"],
                accept_loss=found["accept_loss"],
                needs_waiting=waiting,
            )
    except typer.TyperException as complaint:
        message, hint = dispatch.usage_message(complaint, "run")
        raise UsageError(message, hint=hint) from None


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
    }


def _run_options(
    context: typer.Context,
    manifest: Manifest = "",
    code: Code = "",
    backend: Backends = "",
    kube_context: KubeContext = "",
    namespace: Namespace = "",
    runner: Runner = "",
    template: Template = None,
    profile: Profile = "",
    data: Data = None,
    results: Results = "",
    checkpoint: From = "",
    code_anyway: CodeAnyway = False,
    set: Set = None,
    env: Variable = None,
    name: Name = "",
    gpus: Gpus = None,
    image: Image = "",
    label: Labels = None,
    after: After = None,
    begin: Begin = "",
    at_most: AtMost = None,
) -> RunOptions:
    return RunOptions(
        manifest=manifest,
        code=code,
        code_anyway=code_anyway,
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
        begin=begin,
        at_most=at_most,
        data=tuple(data or ()),
        results=results,
        checkpoint=checkpoint,
        argv=(PROGRAM, *sys.argv[1:]),
    )
