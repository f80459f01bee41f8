"""Prints what a job printed: an attempt's output as it is now, or as it comes until the job is over."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from workbench.terminal.console import is_terminal

if TYPE_CHECKING:
    from workbench.documents.metrics import LineEntry
    from workbench.logs.follow import Wait
    from workbench.services.follow.log_reader import LogLine, LogQuery
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


def follow_log(
    store: Store, row: JobRow, query: LogQuery, *, to_the_end: bool = True, json: bool = False
) -> None:
    """Print a job's output until its attempt has ended, and of each later one where ``to_the_end``."""
    from workbench.services.follow.log_reader import follow_attempts

    for one, wait in follow_attempts(store, row, query, to_the_end=to_the_end):
        print_log(store, row, one, wait, json=json)


def print_log(
    store: Store, row: JobRow, query: LogQuery, wait: Wait | None = None, *, json: bool = False
) -> None:
    """Print one attempt's output: what is there now, or with ``wait`` all of it; as ``json`` an event a line."""
    from workbench.services.follow.log_reader import read_lines, read_log

    if json:
        from workbench.terminal.json_output import print_event

        for line in read_lines(store, row, query, wait):
            print_event({"schema": "fabric.event/1", "event": "output", **line_document(line)})
        return
    from workbench.terminal.stdout import write_all

    sys.stdout.flush()
    sanitiser = None
    if is_terminal(sys.stdout):
        from workbench.logs.sanitise import Sanitiser

        sanitiser = Sanitiser()
    for data in read_log(store, row, query, wait):
        write_all(sanitiser.feed(data) if sanitiser else data)
    if sanitiser:
        write_all(sanitiser.finish())


def line_document(line: LogLine) -> LineEntry:
    """Return a line as ``--json`` gives it."""
    return {"attempt": line.attempt, "learner": line.learner, "time": line.time, "text": line.text}
