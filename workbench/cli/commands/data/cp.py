"""``fabric cp``: files of a job here, and files from here into a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import LEARNER_LETTER, Attempt, Force, Json, LearnerNumber
from workbench.errors import UsageError
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.transfer.job_copy import CopiedFiles, CopyPath, WhichLearner

STDOUT = "-"

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="JOB:PATH or a path here. PATH begins with results, checkpoints, logs, data, job or code (the "
        "working folder), is absolute as the learner sees it, or else in the working folder.",
    ),
]
Target = Annotated[str, typer.Argument(metavar="DEST", help="A path here (- prints a file), or JOB:PATH.")]


@command(
    "cp",
    "fabric cp @last:results/model.pt .",
    "fabric cp digits:checkpoints saved --force",
    "fabric cp @last:train.log - -L 2",
    "fabric cp stop_now @last:code/",
    "fabric cp @last:results out --json",
    former=LEARNER_LETTER,
)
def cp(
    source: Source,
    target: Target,
    learner: LearnerNumber = 1,
    attempt: Attempt = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Copy files out of a job or into it, while it runs or afterwards.

    A folder is copied with everything in it. If DEST is a folder, the copy goes into it; existing files are
    kept unless --force. In a running container, any other absolute path works, too.
    """
    from workbench.services.transfer.job_copy import WhichLearner, copy_there

    from_job, to_job = _read_paths(source, target)
    if from_job is not None:
        copied = _copy_here(WhichLearner(from_job.job, learner, attempt), from_job.path, target, force=force)
    else:
        assert to_job is not None
        copied = copy_there(
            WhichLearner(to_job.job, learner, attempt), Path(source), to_job.path, force=force
        )
    if copied is None:
        return
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.copy/1",
                "id": copied.job_id,
                "from": source,
                "to": copied.target,
                "files": copied.files,
                "size_bytes": copied.size_bytes,
            }
        )
        return
    from workbench.formats import count, size

    narrate(f"copied {count(copied.files, 'file')}, {size(copied.size_bytes)}, to {copied.target}")


def _read_paths(source: str, target: str) -> tuple[CopyPath | None, CopyPath | None]:
    """Return the job's path of both; exactly one of them is a job's."""
    from workbench.services.transfer.job_copy import read_copy_path

    from_job, to_job = read_copy_path(source), read_copy_path(target)
    if from_job and to_job:
        raise UsageError("SOURCE and DEST are both files of jobs", hint="copy them here first")
    if not from_job and not to_job:
        raise UsageError("neither SOURCE nor DEST is a file of a job", hint="fabric cp JOB:results/FILE .")
    return from_job, to_job


def _copy_here(which: WhichLearner, path: str, target: str, *, force: bool) -> CopiedFiles | None:
    """Copy files of a job; None where one was printed."""
    from workbench.cli.framework.transfer_view import shown_transfer
    from workbench.services.transfer.job_copy import copy_here, print_file

    if target == STDOUT:
        print_file(which, path, sys.stdout.buffer)
        return None
    with shown_transfer(progress=False) as report:
        return copy_here(which, path, target, force=force, report=report)
