"""Follows many jobs at once: a line for each that begins or ends, and at the end how they compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.cli.follow.signals import EXIT_TIMED_OUT, Detached, Interruption, Policy, TimeLimit
from workbench.formats import count
from workbench.job import State
from workbench.services.follow.job_text import ended_lines, quiet_lines, state_line
from workbench.store.db.rows import is_over
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

SHOWN_STATES = (State.PROCESSING,)
"""States on the way that are worth a line where there are many jobs."""


def follow_all(
    store: Store,
    rows: Sequence[JobRow],
    *,
    policy: Policy,
    json: bool,
    quiet: bool,
    come_back: str,
    timeout_seconds: float | None = None,
) -> tuple[list[JobRow], int | None]:
    """Follow jobs until all have ended; return them, and an exit code where it is not the jobs' own.

    ``come_back`` is the command that a person who leaves comes back with.
    """
    from workbench.cli.follow.attach import JobStopper
    from workbench.services.follow.full_disk import UnrecordedEnd, check_every_second
    from workbench.services.follow.wait import UnconfirmedRequest, wait_until
    from workbench.store.queries.jobs import job
    from workbench.terminal.errors import warn

    printer = _ChangePrinter(rows, json=json, quiet=quiet)
    stoppers = {row.id: JobStopper(store, row) for row in rows}
    unrecorded, unconfirmed = UnrecordedEnd(store.home, warn), UnconfirmedRequest("stop", narrate)

    def check(current: Sequence[JobRow], trouble: str) -> None:
        for each in stoppers.values():
            if each.failure is not None:
                raise each.failure
        if all(stoppers[row.id].was_asked or is_over(row) for row in current):
            unrecorded.check(current, trouble)
            unconfirmed.check(current)

    def stop(kind: Policy) -> None:
        # The newest first: what still waits must not begin because something before it ended.
        for row in reversed(rows):
            now = printer.known.get(row.id, row)
            if not is_over(now):
                stoppers[row.id](kind)

    def leave() -> None:
        left = sum(not is_over(printer.known.get(row.id, row)) for row in rows)
        narrate(f"left {count(left, 'job')} that have not ended yet. `{come_back}` waits for them")

    limit = TimeLimit(timeout_seconds, 0.0, stop)
    try:
        with Interruption(policy, stop, leave), limit:
            ended, _ = wait_until(store, list(rows), printer.take, check=check_every_second(check))
    except Detached as left:
        narrate(f"left {count(len(rows), 'job')}; they keep running. `{come_back}` waits for them")
        return [job(store, row.id) or row for row in rows], left.exit_code
    return ended, EXIT_TIMED_OUT if limit.over else None


class _ChangePrinter:
    """Prints what changed since it last got the jobs."""

    def __init__(self, rows: Sequence[JobRow], *, json: bool, quiet: bool) -> None:
        self.known: dict[str, JobRow] = {}
        self._json = json
        self._quiet = quiet
        self._total = len(rows)

    def take(self, rows: list[JobRow]) -> bool:
        """Print what is new; return whether all have ended."""
        for row in rows:
            before = self.known.get(row.id)
            self.known[row.id] = row
            if before is None or (before.state, before.attempt) != (row.state, row.attempt):
                self._print(row)
        return all(is_over(row) for row in rows)

    def _print(self, row: JobRow) -> None:
        if self._json:
            from workbench.services.inspect.job_document import job_event
            from workbench.terminal.json_output import print_event

            print_event(job_event(row, "end" if is_over(row) else "state"))
            sys.stdout.flush()
        elif self._quiet:
            for line in quiet_lines(row) if is_over(row) else ():
                narrate(line)
        elif is_over(row):
            done = sum(is_over(each) for each in self.known.values())
            narrate(f"[{done}/{self._total}] {ended_lines(row, '')[0]}")
        elif row.state in SHOWN_STATES:
            narrate(state_line(row))


def print_ended(rows: Sequence[JobRow], label: str) -> None:
    """Say how many ended how, and the command that compares them."""
    counts = {state: sum(row.state is state for row in rows) for state in State}
    amounts = ", ".join(f"{amount} {state.lower()}" for state, amount in counts.items() if amount)
    chosen = f"fabric list --label {label}" if label else f"fabric list --limit {len(rows)}"
    narrate(f"{count(len(rows), 'job')}: {amounts}   ({chosen})")
