"""``fabric exec`` and ``fabric shell``: a command in a running job."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import LEARNER_LETTER, LearnerNumber, RunningJob
from workbench.errors import UsageError

SHELL = ("sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")


@command(
    "exec",
    "fabric exec @last -- nvidia-smi",
    "fabric exec digits -L 2 -- cat /proc/1/status",
    takes_command_line=True,
    former=LEARNER_LETTER,
)
def exec_(context: typer.Context, job: RunningJob, learner: LearnerNumber = 1) -> int:
    """Run a command in a running job.

    The exit code is the command's own. If the job is a container, the command runs inside it, with the job's
    environment except its secrets. If the job is a process, the command runs in the job's folder.
    """
    argv = tuple(context.obj or ())
    if not argv:
        raise UsageError("no command was given", hint="fabric exec JOB -- COMMAND")
    return _run(job, learner, argv, terminal=sys.stdin.isatty() and sys.stdout.isatty())


@command("shell", "fabric shell @last", "fabric shell digits -L 2", former=LEARNER_LETTER)
def shell(job: RunningJob, learner: LearnerNumber = 1) -> int:
    """Open a shell in a running job."""
    return _run(job, learner, SHELL, terminal=sys.stdin.isatty() and sys.stdout.isatty())


def _run(job: str, learner: int, argv: Sequence[str], *, terminal: bool) -> int:
    from workbench.services.backends.learner_access import reached

    with reached(job, learner, steers=True, running=True) as found:
        return found.runner.exec(found.ref, argv, terminal=terminal).wait()
