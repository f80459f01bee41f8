"""``fabric cp``: files of a job here, and files from here into a job."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from workbench.cli.commands.jobs.exec import Which
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Attempt, Force, Json
from workbench.errors import CannotWrite, InputMissing, UsageError
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.backends.learner_access import LearnerAccess

STDOUT = "-"
EXECUTABLE = 0o111

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="JOB:PATH or a path here. PATH begins with results, checkpoints, logs, data, job or code (the "
        "working folder), is absolute as the learner sees it, or else in the working folder.",
    ),
]
Target = Annotated[str, typer.Argument(metavar="DEST", help="A path here (- prints a file), or JOB:PATH.")]


@dataclass(frozen=True, slots=True)
class JobPath:
    """A path of a job."""

    job: str
    path: str


@command(
    "cp",
    "fabric cp @last:results/model.pt .",
    "fabric cp digits:checkpoints saved --force",
    "fabric cp @last:train.log - -l 2",
    "fabric cp stop_now @last:code/",
    "fabric cp @last:results out --json",
)
def cp(
    source: Source,
    target: Target,
    learner: Which = 1,
    attempt: Attempt = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Copy files out of a job or into it, while it runs or afterwards.

    A folder is copied with everything in it. If DEST is a folder, the copy goes into it; existing files are
    kept unless --force. In a running container, any other absolute path works, too.
    """
    from workbench.services.backends.learner_access import reached

    here, there = _sort_out(source, target)
    with reached(there.job, learner, attempt, steers=target != here) as found:
        if target == here:
            to, files, size_bytes = _fetch(found, there.path, target, force=force)
        else:
            to, files, size_bytes = _send(found, Path(source), there.path, force=force)
    if json and to != STDOUT:
        from workbench.terminal.json_output import print_document

        told = {"from": source, "to": to, "files": files, "size_bytes": size_bytes}
        print_document({"schema": "fabric.copy/1", "id": found.row.id, **told})
    elif to != STDOUT:
        from workbench.formats import count, size

        narrate(f"copied {count(files, 'file')}, {size(size_bytes)}, to {to}")


def _sort_out(source: str, target: str) -> tuple[str, JobPath]:
    """Return which of both is here, and what the other one names."""
    one, other = _named(source), _named(target)
    if one and other:
        raise UsageError("SOURCE and DEST are both files of jobs", hint="copy them here first")
    if one:
        return target, one
    if other:
        return source, other
    raise UsageError("neither SOURCE nor DEST is a file of a job", hint="fabric cp JOB:results/FILE .")


def _named(text: str) -> JobPath | None:
    """Read ``JOB:PATH``; a path here that has a colon begins with ``./`` or ``/``."""
    job, colon, path = text.partition(":")
    if not colon or "/" in job or not job or job == ".":
        return None
    return JobPath(job, path)


def _fetch(found: LearnerAccess, path: str, target: str, *, force: bool) -> tuple[str, int, int]:
    entries = found.runner.files(found.ref, path)
    if not entries:
        raise InputMissing(
            f"{short_id(found.row.id)} has no {path or 'such file'}",
            hint=f"fabric files {short_id(found.row.id)}",
        )
    single = len(entries) == 1 and entries[0].kind == "file"
    if target == STDOUT:
        if not single:
            raise UsageError(f"{path} is a folder; - prints one file")
        return STDOUT, *_print(found, path)
    to = Path(target)
    if to.is_dir() or target.endswith("/"):
        to /= PurePosixPath(path).name or "code"
    return (str(to), *(_write_file if single else _write_folder)(found, path, to, force))


def _print(found: LearnerAccess, path: str) -> tuple[int, int]:
    from workbench.services.transfer.extract import receive_file

    def receive(stream: BinaryIO) -> None:
        receive_file(stream, sys.stdout.buffer)

    found.runner.fetch(found.ref, path, receive)
    sys.stdout.buffer.flush()
    return 1, 0


def _write_file(found: LearnerAccess, path: str, to: Path, force: bool) -> tuple[int, int]:
    """Write a file beside its place, and move it there when it is whole."""
    from workbench.services.transfer.extract import receive_file

    if os.path.lexists(to) and (to.is_dir() or not force):
        hint = "--force replaces it" if not to.is_dir() else ""
        raise CannotWrite(f"{to} already exists", hint=hint)
    beside = to.with_name(f".{to.name}.{os.getpid()}")
    sizes: list[int] = []
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file:
            found.runner.fetch(
                found.ref, path, lambda stream: sizes.append(receive_file(stream, file).size_bytes)
            )
        beside.rename(to)
    except OSError as error:
        raise CannotWrite(f"cannot write {to}: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
    return 1, sum(sizes)


def _write_folder(found: LearnerAccess, path: str, to: Path, force: bool) -> tuple[int, int]:
    from workbench.services.transfer.extract import Received, receive_folder, write_folder

    got: list[Received] = []
    write_folder(
        to,
        lambda place: found.runner.fetch(
            found.ref, path, lambda stream: got.append(receive_folder(stream, place))
        ),
        force=force,
    )
    for name in (name for each in got for name in each.left_out):
        narrate(f"skipped {name}: it points outside the folder, or is not a file")
    return sum(each.files for each in got), sum(each.size_bytes for each in got)


def _send(found: LearnerAccess, source: Path, path: str, *, force: bool) -> tuple[str, int, int]:
    """Write a file or folder from here into the job."""
    if not source.exists():
        raise InputMissing(f"{source} does not exist")
    to = path
    there = found.runner.files(found.ref, path) if path else ()
    if not path or path.endswith("/") or (there and there[0].kind == "folder"):
        to = f"{path.rstrip('/')}/{source.resolve().name}" if path else source.resolve().name
        there = found.runner.files(found.ref, to)
    if there and not force:
        raise CannotWrite(f"{to} already exists", hint="--force replaces it")
    files = [source] if source.is_file() else sorted(each for each in source.rglob("*") if each.is_file())
    size_bytes = 0
    for file in files:
        name = to if source.is_file() else f"{to}/{file.relative_to(source).as_posix()}"
        try:
            with file.open("rb") as stream:
                about = os.fstat(stream.fileno())
                found.runner.put(found.ref, name, stream, mode=0o755 if about.st_mode & EXECUTABLE else 0o644)
        except OSError as error:
            raise InputMissing(f"{file} cannot be read: {error.strerror or error}") from error
        size_bytes += about.st_size
    return f"{short_id(found.row.id)}:{to}", len(files), size_bytes
