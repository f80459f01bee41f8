"""Options of commands that follow jobs or wait for their end, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.completion import metric_names

Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, and return.")]
OnInterrupt = Annotated[
    str | None,
    typer.Option(
        "--on-interrupt",
        metavar="detach|halt|kill",
        help="What ctrl-c, SIGTERM and a hang-up do to the job; default: detach on a terminal, else halt.",
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
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only the job's output, and failures that are not its own.")
]
JsonEvents = Annotated[
    bool, typer.Option("--json", help="Print events, one JSON line each; with -d or --plan a document.")
]
