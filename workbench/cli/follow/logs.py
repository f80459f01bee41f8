"""Prints a job's output: byte for byte, or line by line as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from workbench.terminal.console import is_terminal
from workbench.terminal.stdout import write_all

if TYPE_CHECKING:
    from workbench.logs.follow import Wait
    from workbench.services.follow.log_reader import LogLine, LogQuery
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


def print_log(
    store: Store, row: JobRow, query: LogQuery, wait: Wait | None = None, *, json: bool = False
) -> None:
    """Print one attempt's output: what is there now, or with ``wait`` all of it; as ``json`` an event a line."""
    from workbench.services.follow.log_reader import read_lines, read_log

    if json:
        from workbench.terminal.json_output import print_event

        for line in read_lines(store, row, query, wait):
            print_event("output", line_document(line))
        return
    sys.stdout.flush()
    sanitiser = None
    if is_terminal(sys.stdout):
        from workbench.logs.sanitise import Sanitiser

        sanitiser = Sanitiser()
    for data in read_log(store, row, query, wait):
        write_all(sanitiser.feed(data) if sanitiser else data)
    if sanitiser:
        write_all(sanitiser.finish())


def print_log_document(store: Store, row: JobRow, query: LogQuery) -> None:
    """Print the lines of one attempt as one document."""
    from workbench.services.follow.log_reader import read_lines
    from workbench.terminal.json_output import print_document

    lines = [line_document(line) for line in read_lines(store, row, query)]
    print_document({"schema": "fabric.logs/1", "id": row.id, "attempt": query.attempt, "lines": lines})


def line_document(line: LogLine) -> dict[str, Any]:
    """Return a line as ``--json`` gives it."""
    return {"attempt": line.attempt, "learner": line.learner, "time": line.time, "text": line.text}
