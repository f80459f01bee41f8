"""Words that several commands take, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.completion import (
    backend_names,
    job_names,
    profile_names,
    template_names,
    where_terms,
)

JSON_HELP = "Print one JSON document."

Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
JsonStream = Annotated[bool, typer.Option("--json", help="Print JSON: one line an event while it follows.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace what is there already.")]
Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Its id, a unique part of it, its name, or @last.", autocompletion=job_names
    ),
]
Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...", help="Ids, unique parts of them, names, or @last.", autocompletion=job_names
    ),
]
SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...", help="Ids, unique parts of them, names, or @last.", autocompletion=job_names
    ),
]
Labelled = Annotated[
    str,
    typer.Option("--label", "-l", metavar="KEY[=VALUE]", help="All jobs with this label."),
]
Learner = Annotated[
    int | None, typer.Option("--learner", metavar="N", help="Only this learner, counted from 1.")
]
Attempt = Annotated[
    int | None, typer.Option("--attempt", metavar="N", help="This attempt instead of the last one.")
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="Which place: a name, or an address.",
        autocompletion=backend_names,
    ),
]
KubeContext = Annotated[
    str,
    typer.Option("--context", metavar="NAME", help="Of a cluster: which context of the kubeconfig."),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="NAME", help="Of a cluster: which namespace.")]
NoPrefix = Annotated[bool, typer.Option("--no-prefix", help="Leave out the `[1] ` of several learners.")]
Detached = Annotated[bool, typer.Option("--detach", "-d", help="Return as soon as it is asked for.")]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A part of fabric.toml or config.toml that then counts, too.",
        autocompletion=profile_names,
    ),
]
Template = Annotated[
    list[str] | None,
    typer.Option(
        "--template",
        metavar="NAME|FILE",
        help="Lay the manifest over this part of one (repeatable; later ones lie above).",
        autocompletion=template_names,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only jobs that fit, as `state:failed loss<0.3 tag:best` (repeatable).",
        autocompletion=where_terms,
    ),
]
