"""``fabric metrics``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import job_names, metric_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import JsonStream, Learner

if TYPE_CHECKING:
    from workbench.cli.commands.inspect.metric_tables import MetricSelection
    from workbench.documents.events import PointEvent
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

SHOWN = 50
"""How many rows a terminal shows by default."""

MICROSECONDS = 1_000_000

Csv = Annotated[bool, typer.Option("--csv", help="Print all values, comma-separated.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow new values until the job ends.")]
Tail = Annotated[
    int | None, typer.Option("--tail", "-n", min=1, metavar="N", help=f"The last N steps; default: {SHOWN}.")
]
All = Annotated[bool, typer.Option("--all", "-a", help="All steps.")]
Latest = Annotated[
    bool, typer.Option("--latest", help="Only the last value of each, with minimum and maximum.")
]


OneJob = Annotated[
    str,
    typer.Argument(
        metavar="[JOB]",
        help="Its id, a part of it, or its name; default: the last job. With --try, a manifest or a preset's name.",
        autocompletion=job_names,
    ),
]
Log = Annotated[str, typer.Argument(metavar="[LOG]", help="With --try: a file, a job, or `-` for stdin.")]
Try = Annotated[
    bool, typer.Option("--try", help="Show line by line what a manifest extracts from a log, and why not.")
]
Attempt = Annotated[
    int | None,
    typer.Option(
        "--attempt", metavar="N", help="Only this attempt's values, all of them; default: all attempts'."
    ),
]
Superseded = Annotated[
    bool,
    typer.Option(
        "--superseded", help="Also show values that a later attempt went over again, and mark them."
    ),
]
Plot = Annotated[bool, typer.Option("--plot", "-p", help="Draw charts in the terminal.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        metavar="NAME",
        help="With --plot: only this one (repeatable).",
        autocompletion=metric_names,
    ),
]


Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAMES",
        help="Only these metrics, in this order, separated by commas; the last part of a name is enough.",
        autocompletion=metric_names,
    ),
]
AsManifest = Annotated[
    bool,
    typer.Option(
        "--as-manifest",
        help="Print the evaluation_metrics that read the same from the output as is recognised without any.",
    ),
]


@command(
    "metrics",
    "fabric metrics @last",
    "fabric metrics digits --csv",
    "fabric metrics digits --columns loss,accuracy",
    "fabric metrics digits --as-manifest",
    "fabric metrics @last --plot --metric loss",
    "fabric metrics --try manifest.yml train.log",
    "fabric metrics --try auto train.log",
    "fabric metrics --try keras @last",
    "fabric metrics @last -f --json",
)
def metrics(
    job: OneJob = "@last",
    log: Log = "",
    try_: Try = False,
    plot: Plot = False,
    metric: Names = None,
    follow: Follow = False,
    tail: Tail = None,
    all: All = False,
    latest: Latest = False,
    learner: Learner = None,
    attempt: Attempt = None,
    superseded: Superseded = False,
    columns: Columns = "",
    as_manifest: AsManifest = False,
    csv: Csv = False,
    json: JsonStream = False,
) -> int:
    """Print what a job measured.

    Nothing has to be configured: numbers that a program prints again and again (loss=0.3, dictionaries, JSON
    lines, bars, columns) are recognised, and files that libraries write are read (TensorBoard, CSV, JSON lines,
    Lightning, the Trainer, wandb, MLflow, trackio). `evaluation_metrics` in a manifest sets an extractor instead,
    and `type: plain` none; --as-manifest prints the one that reads the same from the output. Training code can
    also call report(). Losses are shown first, then accuracies, scores and errors.

    The table has one row for each step of each learner; --csv and --json print all steps. Values that a later
    attempt went over again are left out: those of earlier attempts behind the step or checkpoint that it went
    on from. --try reads a log with the expressions of a manifest, or with the preset caffe, keras, lightning,
    huggingface or tqdm, or with `auto`, which recognises metrics without any; the exit code is 1 if nothing matches.
    """
    if as_manifest:
        from workbench.cli.commands.inspect.metric_tables import print_manifest

        print_manifest(log if try_ else job, is_job=not try_)
        return 0
    if try_:
        from workbench.cli.commands.inspect.metric_tables import print_dry_run

        return print_dry_run(job, log, json=json)
    from workbench.cli.commands.inspect.metric_tables import (
        MetricSelection,
        print_csv,
        print_latest,
        print_rows,
        print_table,
    )
    from workbench.errors import UsageError
    from workbench.services.open_store import store_with

    if log:
        raise UsageError(
            f"unexpected argument {log}", hint="reading a log needs --try: fabric metrics --try MANIFEST LOG"
        )
    if csv and json:
        raise UsageError("--csv and --json exclude each other")
    with store_with(job) as (store, row):
        _check_learner(row, learner)
        selection = MetricSelection(
            learner, attempt, superseded, tuple(name.strip() for name in columns.split(",") if name.strip())
        )
        if plot:
            from workbench.cli.commands.inspect.plot import print_plots

            print_plots(store, row, names=metric or [], selection=selection)
        elif follow:
            _follow(store, row, selection, csv=csv, json=json)
        elif latest:
            print_latest(store, row, selection, json=json)
        elif json:
            print_rows(store, row, selection)
        elif csv:
            print_csv(store, row, selection)
        else:
            print_table(store, row, selection, None if all else tail or SHOWN)
    return 0


def _check_learner(row: JobRow, learner: int | None) -> None:
    if learner is not None and not 1 <= learner <= row.learners:
        from workbench.errors import UnknownName

        raise UnknownName(f"there is no learner {learner}", hint=f"learners are 1 to {row.learners}")


def _follow(store: Store, row: JobRow, selection: MetricSelection, *, csv: bool, json: bool) -> None:
    from workbench.cli.commands.inspect.metric_tables import step_text, write_csv_rows
    from workbench.formats import MICROSECONDS, iso, number, stamp
    from workbench.learner.texts import escaped
    from workbench.services.follow.metric_points import follow_points
    from workbench.terminal.json_output import print_event

    followed = follow_points(
        store, row, learner=selection.learner, attempt=selection.attempt, superseded=selection.superseded
    )
    for each in followed:
        name, point = each.name, each.point
        step = step_text(point.step)
        if json:
            event: PointEvent = {
                "schema": "fabric.event/1",
                "event": "metric",
                "name": name,
                "value": point.value,
                "learner": each.learner,
                "attempt": point.attempt,
                "step": point.step,
                "time": iso(point.time_us),
                "superseded": each.is_superseded,
            }
            print_event(event)
        elif csv:
            value = "nan" if point.value is None else repr(point.value)
            time = f"{point.time_us / MICROSECONDS:.6f}"
            write_csv_rows([[str(each.learner), str(point.attempt), step, time, escaped(name), value]])
        else:
            learner_word = f"[{each.learner}] " if row.learners > 1 else ""
            step_word = f"step {step}  " if step else ""
            print(f"{stamp(point.time_us)}  {learner_word}{step_word}{escaped(name)}={number(point.value)}")
        sys.stdout.flush()
