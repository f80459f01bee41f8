"""Options and arguments that several commands take, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.completion import (
    backend_names,
    job_and_search_names,
    job_names,
    open_job_and_search_names,
    open_job_names,
    profile_names,
    runner_names,
    several_backend_names,
    template_names,
    where_terms,
)

JSON_HELP = "Print one JSON document."

Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
JsonStream = Annotated[bool, typer.Option("--json", help="Print JSON; one line per event when following.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace existing files.")]
Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Its id, a unique part of it, its name, or @last.", autocompletion=job_names
    ),
]
MatchingJobs = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="All jobs that match, e.g. `state:failed age>7d` (repeatable).",
        autocompletion=where_terms,
    ),
]
JobOrSearch = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Its id, a unique part of it, its name, or @last; or a search's id or name.",
        autocompletion=job_and_search_names,
    ),
]
OpenJobsOrSearches = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Ids, unique parts of them, names, or @last; searches, too.",
        autocompletion=open_job_and_search_names,
    ),
]
RunnerName = Annotated[
    str, typer.Option("--runner", metavar="NAME", help="Use another runner.", autocompletion=runner_names)
]
RunningJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Its id, a unique part of it, its name, or @last.", autocompletion=open_job_names
    ),
]
SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...", help="Ids, unique parts of them, names, or @last.", autocompletion=job_names
    ),
]
JobsOrSearches = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Ids, unique parts of them, names, or @last; searches, too.",
        autocompletion=job_and_search_names,
    ),
]
Labelled = Annotated[
    str,
    typer.Option("--label", "-l", metavar="KEY[=VALUE]", help="All jobs with this label."),
]
Learner = Annotated[
    int | None, typer.Option("--learner", metavar="N", help="Only this learner, counted from 1.")
]
LearnerNumber = Annotated[
    int, typer.Option("--learner", "-L", min=1, metavar="N", help="Which learner, counted from 1.")
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
        help="The backend: a name or an address.",
        autocompletion=backend_names,
    ),
]
Backends = Annotated[
    str,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME[,NAME]...",
        help="The backend: a name or an address. Of several with commas a job takes the one where it can start;"
        " with plus signs, box1+box2, its learners are at all of them.",
        autocompletion=several_backend_names,
    ),
]
KubeContext = Annotated[
    str,
    typer.Option("--context", metavar="NAME", help="For a cluster: the context in the kubeconfig."),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="NAME", help="For a cluster: the namespace.")]
LEARNER_LETTER = {"-l": "-L"}
"""``-l`` meant the learner in some commands."""
NoPrefix = Annotated[
    bool, typer.Option("--no-prefix", help="Omit the prefix `[1] ` when there are several learners.")
]
Detached = Annotated[bool, typer.Option("--detach", "-d", help="Return at once, without waiting.")]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Also use this profile of fabric.toml or config.toml.",
        autocompletion=profile_names,
    ),
]
Template = Annotated[
    list[str] | None,
    typer.Option(
        "--template",
        metavar="NAME|FILE",
        help="Take defaults from this template (repeatable; later ones override earlier ones).",
        autocompletion=template_names,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only matching jobs, e.g. `state:failed loss<0.3 tags:best` (repeatable).",
        autocompletion=where_terms,
    ),
]
