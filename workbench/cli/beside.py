"""``fabric exec`` and ``fabric shell``: a command beside a learner that runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.command import command
from workbench.cli.options import Job
from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.store.rows import JobRow

SHELL = ("sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")

Which = Annotated[
    int, typer.Option("--learner", "-l", min=1, metavar="N", help="Beside which learner, from 1.")
]


@command(
    "exec",
    "fabric exec @last -- nvidia-smi",
    "fabric exec digits -l 2 -- cat /proc/1/status",
    takes_command_line=True,
)
def exec_(context: typer.Context, job: Job, learner: Which = 1) -> int:
    """Run a command beside a learner that runs.

    The exit code is the command's own. In a container it runs inside, with the environment of the job but
    its secrets; beside a process it runs in the job's folder.
    """
    words = tuple(context.obj or ())
    if not words:
        raise UsageError("there is no command", hint="fabric exec JOB -- COMMAND")
    return _run(job, learner, words, terminal=sys.stdin.isatty() and sys.stdout.isatty())


@command("shell", "fabric shell @last", "fabric shell digits -l 2")
def shell(job: Job, learner: Which = 1) -> int:
    """Open a shell beside a learner that runs."""
    return _run(job, learner, SHELL, terminal=sys.stdin.isatty() and sys.stdout.isatty())


def _run(job: str, learner: int, argv: Sequence[str], *, terminal: bool) -> int:
    from workbench.cli.open_store import store_with
    from workbench.store.database import home_uuid

    with store_with(job) as (store, row):
        uuid = home_uuid(store.home)
    if learner > row.learners:
        raise UsageError(f"the job has {row.learners} learners, there is no learner {learner}")
    return _beside(row, uuid, learner, argv, terminal=terminal)


def _beside(row: JobRow, uuid: str, learner: int, argv: Sequence[str], *, terminal: bool) -> int:
    from contextlib import closing

    from backends.interface import BackendOptions
    from runners.interface import LearnerRef, Runner
    from runners.registry import load_runner
    from workbench.cli.places import open_backend

    place = row.place
    options = BackendOptions(place.backend, place.type, place.address, place.options)
    with closing(open_backend(options).open()) as reached:
        runner: Runner = load_runner(place.runner)(reached, home_uuid=uuid)
        with closing(runner):
            ref = LearnerRef(uuid, row.id, row.attempt, learner)
            return runner.exec(ref, argv, terminal=terminal).wait()
