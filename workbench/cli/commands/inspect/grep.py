"""``fabric grep``: lines that match in the logs of all jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, Where

if TYPE_CHECKING:
    from workbench.logs.grep import Pattern
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

EXIT_NOTHING: Final = 1
"""As grep does."""

Text = Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.")]
Fixed = Annotated[
    bool, typer.Option("--fixed", "-F", help="PATTERN is plain text, not a regular expression.")
]
IgnoreCase = Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case.")]
OnlyJobs = Annotated[bool, typer.Option("--jobs", "-l", help="Print only the jobs with a matching line.")]
Count = Annotated[
    bool, typer.Option("--count", "-c", help="Print only the number of matching lines of each job.")
]
Most = Annotated[int | None, typer.Option("--max", "-m", min=1, metavar="N", help="At most N lines per job.")]
AllAttempts = Annotated[bool, typer.Option("--all", "-a", help="All attempts, not only the last.")]


@dataclass(frozen=True, slots=True)
class Hit:
    """One line that matches."""

    row: JobRow
    attempt: int
    learner: int
    offset: int
    line: bytes


@command(
    "grep",
    "fabric grep 'CUDA out of memory'",
    "fabric grep -F 'Segmentation fault' --where 'state:failed age<7d' --jobs",
    "fabric grep 'nan|inf' --where name:digits --max 3 --json",
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
    from workbench.clock import now_us
    from workbench.logs.grep import Pattern
    from workbench.services.filters import read_where
    from workbench.services.open_store import existing_store
    from workbench.store.queries.job_list import listed

    wanted = Pattern(pattern, literal=fixed, ignore_case=ignore_case)
    with existing_store() as store:
        if store is None:
            rows: list[JobRow] = []
        else:
            where_ = read_where(store, where)
            rows = listed(store, ["deleted_us IS NULL"], {}, where=where_, now_us=now_us())
        found = _hits(store, rows, wanted, all_attempts=all, most=1 if jobs else max_) if store else iter(())
        if json:
            return _print_json(found)
        if jobs:
            return _print_jobs(found)
        return _print_counts(found) if count else _print_lines(found)


def _hits(
    store: Store, rows: list[JobRow], pattern: Pattern, *, all_attempts: bool, most: int | None
) -> Iterator[Hit]:
    from contextlib import closing

    from workbench.logs.parallel_search import search

    places = [
        (row, attempt, learner)
        for row in rows
        for attempt in range(1 if all_attempts else row.attempt, row.attempt + 1)
        for learner in range(1, row.learners + 1)
    ]
    folders = [store.home.job(row.id).attempt(attempt).learner(learner) for row, attempt, learner in places]
    given: dict[str, int] = {}
    with closing(search(folders, pattern, most)) as found:
        for number, (offset, line) in found:
            row, attempt, learner = places[number]
            given[row.id] = given.get(row.id, 0) + 1
            if most is None or given[row.id] <= most:
                yield Hit(row, attempt, learner, offset, line)


def _print_lines(found: Iterator[Hit]) -> int:
    from workbench.job import short_id
    from workbench.terminal.console import is_terminal
    from workbench.terminal.stdout import write_all

    sanitiser = None
    if is_terminal(sys.stdout):
        from workbench.logs.sanitise import Sanitiser

        sanitiser = Sanitiser()
    sys.stdout.flush()
    any_ = False
    pieces: list[bytes] = []
    size = 0
    for hit in found:
        any_ = True
        learner = f"[{hit.learner}]" if hit.row.learners > 1 else ""
        piece = f"{short_id(hit.row.id)}{learner}: ".encode() + hit.line + b"\n"
        pieces.append(piece)
        size += len(piece)
        if size > 1 << 16 or sanitiser:
            block = b"".join(pieces)
            write_all(sanitiser.feed(block) if sanitiser else block)
            pieces, size = [], 0
    write_all(b"".join(pieces))
    return 0 if any_ else EXIT_NOTHING


def _print_jobs(found: Iterator[Hit]) -> int:
    from workbench.job import short_id

    names = [f"{short_id(hit.row.id)}  {hit.row.name}  {hit.row.state}" for hit in found]
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0 if names else EXIT_NOTHING


def _print_counts(found: Iterator[Hit]) -> int:
    from workbench.job import short_id

    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for hit in found:
        counts[hit.row.id] = counts.get(hit.row.id, 0) + 1
        names[hit.row.id] = hit.row.name
    sys.stdout.write("".join(f"{short_id(key)}  {counts[key]:>8,}  {names[key]}\n" for key in counts))
    return 0 if counts else EXIT_NOTHING


def _print_json(found: Iterator[Hit]) -> int:
    from workbench.terminal.json_output import print_document

    documents = [
        {
            "schema": "fabric.hit/1",
            "id": hit.row.id,
            "name": hit.row.name,
            "attempt": hit.attempt,
            "learner": hit.learner,
            "offset": hit.offset,
            "text": hit.line.decode(errors="replace"),
        }
        for hit in found
    ]
    print_document(documents)
    return 0 if documents else EXIT_NOTHING
