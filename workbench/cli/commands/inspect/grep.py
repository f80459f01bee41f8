"""``fabric grep``: lines that match in the logs of all jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, Where
from workbench.terminal.console import is_terminal

if TYPE_CHECKING:
    from workbench.documents.metrics import HitDocument
    from workbench.services.inspect.log_search import LogHit

EXIT_NOTHING: Final = 1
"""As grep does."""

Text = Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.")]
Fixed = Annotated[
    bool, typer.Option("--fixed", "-F", help="PATTERN is plain text, not a regular expression.")
]
IgnoreCase = Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case.")]
OnlyJobs = Annotated[bool, typer.Option("--jobs", "-j", help="Print only the jobs with a matching line.")]
Count = Annotated[
    bool, typer.Option("--count", "-c", help="Print only the number of matching lines of each job.")
]
Most = Annotated[int | None, typer.Option("--max", "-m", min=1, metavar="N", help="At most N lines per job.")]
AllAttempts = Annotated[bool, typer.Option("--all", "-a", help="All attempts, not only the last.")]


@command(
    "grep",
    "fabric grep 'CUDA out of memory'",
    "fabric grep -F 'Segmentation fault' --where 'state:failed age<7d' --jobs",
    "fabric grep 'nan|inf' --where name:digits --max 3 --json",
    former={"-l": "-j"},
)
def grep(
    pattern: Text,
    where: Where = None,
    fixed: Fixed = False,
    ignore_case: IgnoreCase = False,
    jobs: OnlyJobs = False,
    count: Count = False,
    max_: Most = None,
    all: AllAttempts = False,
    json: Json = False,
) -> int:
    """Search the logs of all jobs.

    The newest job comes first. Each line is prefixed with the job's id, and with the learner's number if
    there are several. The exit code is 1 if nothing matches.
    """
    from workbench.logs.grep import Pattern
    from workbench.services.inspect.log_search import search_logs
    from workbench.services.open_store import existing_store

    searched = Pattern(pattern, literal=fixed, ignore_case=ignore_case)
    with existing_store() as store:
        hits: Iterator[LogHit] = iter(())
        if store is not None:
            hits = search_logs(
                store,
                searched,
                where=where or (),
                all_attempts=all,
                hits_per_job_max=1 if jobs else max_,
            )
        if json:
            return _print_json(hits)
        if jobs:
            return _print_jobs(hits)
        return _print_counts(hits) if count else _print_lines(hits)


def _print_lines(hits: Iterator[LogHit]) -> int:
    from workbench.job import short_id
    from workbench.terminal.stdout import write_all

    sanitiser = None
    if is_terminal(sys.stdout):
        from workbench.logs.sanitise import Sanitiser

        sanitiser = Sanitiser()
    sys.stdout.flush()
    has_hits = False
    pieces: list[bytes] = []
    size = 0
    for hit in hits:
        has_hits = True
        learner = f"[{hit.learner}]" if hit.row.learners > 1 else ""
        piece = f"{short_id(hit.row.id)}{learner}: ".encode() + hit.line + b"\n"
        pieces.append(piece)
        size += len(piece)
        if size > 1 << 16 or sanitiser:
            block = b"".join(pieces)
            write_all(sanitiser.feed(block) if sanitiser else block)
            pieces, size = [], 0
    write_all(b"".join(pieces))
    return 0 if has_hits else EXIT_NOTHING


def _print_jobs(hits: Iterator[LogHit]) -> int:
    from workbench.job import short_id

    names = [f"{short_id(hit.row.id)}  {hit.row.name}  {hit.row.state}" for hit in hits]
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0 if names else EXIT_NOTHING


def _print_counts(hits: Iterator[LogHit]) -> int:
    from workbench.job import short_id

    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for hit in hits:
        counts[hit.row.id] = counts.get(hit.row.id, 0) + 1
        names[hit.row.id] = hit.row.name
    sys.stdout.write("".join(f"{short_id(key)}  {counts[key]:>8,}  {names[key]}\n" for key in counts))
    return 0 if counts else EXIT_NOTHING


def _print_json(hits: Iterator[LogHit]) -> int:
    from workbench.terminal.json_output import print_document

    documents: list[HitDocument] = [
        {
            "schema": "fabric.hit/1",
            "id": hit.row.id,
            "name": hit.row.name,
            "attempt": hit.attempt,
            "learner": hit.learner,
            "offset": hit.offset,
            "text": hit.line.decode(errors="replace"),
        }
        for hit in hits
    ]
    print_document(documents)
    return 0 if documents else EXIT_NOTHING
