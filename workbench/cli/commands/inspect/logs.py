"""``fabric logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Attempt, JobOrSearch, JsonStream, Learner, NoPrefix

if TYPE_CHECKING:
    from workbench.services.follow.log_reader import LogQuery
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")]
Tail = Annotated[int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="The last N lines.")]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only newer than: 5m, 2h, 2026-01-31T15:04.")
]
Timestamps = Annotated[bool, typer.Option("--timestamps", "-t", help="Print the time before each line.")]
Grep = Annotated[str, typer.Option("--grep", metavar="REGEX", help="Only lines that match.")]
Setup = Annotated[bool, typer.Option("--setup", help="What the setup command printed.")]
Invert = Annotated[bool, typer.Option("--invert", "-v", help="With --grep: only lines that do not match.")]


@command(
    "logs",
    "fabric logs @last",
    "fabric logs digits -f --tail 20",
    "fabric logs @last --learner 2 --since 5m --timestamps",
    "fabric logs @last --grep 'loss|error' --json",
    "fabric logs @last --setup",
)
def logs(
    job: JobOrSearch,
    follow: Follow = False,
    tail: Tail = None,
    since: Since = "",
    learner: Learner = None,
    attempt: Attempt = None,
    timestamps: Timestamps = False,
    grep: Grep = "",
    invert: Invert = False,
    setup: Setup = False,
    no_prefix: NoPrefix = False,
    json: JsonStream = False,
) -> None:
    """Print what a job printed.

    One learner's output is printed byte for byte. With several learners, whole lines are printed in the order
    of their times, with the prefix `[1] ` for learner 1. On a terminal, control sequences are made harmless. A search
    with one trial means that one; `fabric grep` searches the logs of all trials.
    """
    from workbench.cli.follow.log_output import follow_log, print_log
    from workbench.logs.grep import Pattern
    from workbench.services.follow.log_reader import LogQuery, learners_of
    from workbench.services.open_store import store_with_any
    from workbench.store.db.rows import JobRow

    with store_with_any(job) as (store, found):
        row = found if isinstance(found, JobRow) else _only_trial(store, found)
        query = LogQuery(
            learners=learners_of(row, learner),
            attempt=_attempt(row, attempt),
            tail=tail,
            since_us=_since(since),
            pattern=Pattern(grep) if grep else None,
            invert=invert,
            timestamps=timestamps,
            prefix=not no_prefix,
            setup=setup,
        )
        if follow:
            follow_log(store, row, query, to_the_end=attempt is None, json=json)
        elif json:
            _print_document(store, row, query)
        else:
            print_log(store, row, query)


def _only_trial(store: Store, search: ExperimentRow) -> JobRow:
    """Return the job of a search's one trial, or say how the logs of several are read."""
    from workbench.errors import UsageError
    from workbench.formats import count
    from workbench.job import short_id
    from workbench.store.queries.experiments import short_experiment_id, trial_jobs

    found = trial_jobs(store, search.id)
    if len(found) == 1:
        return found[0]
    short = short_experiment_id(search.id)
    if not found:
        raise UsageError(
            f"{search.name} is a search without a trial that has begun",
            hint=f"`fabric experiment show {short}` says how it stands",
        )
    raise UsageError(
        f"{search.name} is a search with {count(len(found), 'trial')}, each with a log of its own",
        hint=f"`fabric logs {short_id(found[0].id)}` prints that of {found[0].name}, `fabric experiment trials"
        f" {short}` lists all, `fabric grep PATTERN --where labels:sweep={short}` searches them",
    )


def _attempt(row: JobRow, attempt: int | None) -> int:
    if attempt is None:
        return row.attempt
    if not 1 <= attempt <= row.attempt:
        from workbench.errors import UnknownName

        raise UnknownName(f"there is no attempt {attempt}", hint=f"attempts are 1 to {row.attempt}")
    return attempt


def _since(text: str) -> int | None:
    if not text:
        return None
    from workbench.clock import now_us
    from workbench.time_expressions import since_us

    return since_us(text, now_us())


def _print_document(store: Store, row: JobRow, query: LogQuery) -> None:
    """Print the lines of one attempt as one document."""
    from workbench.cli.follow.log_output import line_document
    from workbench.services.follow.log_reader import read_lines
    from workbench.terminal.json_output import print_document

    lines = [line_document(line) for line in read_lines(store, row, query)]
    print_document({"schema": "fabric.logs/1", "id": row.id, "attempt": query.attempt, "lines": lines})
