"""Attaches this terminal to a job: follows it, obeys signals, and ends with the job's own exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from workbench.cli.follow.signals import Detached, Interruption, Policy
from workbench.errors import FabricError
from workbench.job import EXIT_LOST, short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.follow.options import FollowOptions
    from workbench.services.follow.events import JobView
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


ORIGIN = "cli"


def attach_to(
    store: Store,
    row: JobRow,
    options: FollowOptions,
    *,
    tail: int | None = None,
    fresh: bool = False,
) -> int:
    """Follow a job to its end and return the exit code for this process.

    Args:
        store: where the job is.
        row: the job.
        options: how it is followed.
        tail: begin with the last so many lines; None begins with the first line of the last attempt.
        fresh: whether the controller has just been woken, and need not be looked for.

    Raises:
        BrokenPipeError: stdout was closed; the job keeps running.
    """
    from workbench.cli.follow.signals import EXIT_TIMED_OUT, TimeLimit
    from workbench.cli.follow.views import TerminalView, view_for
    from workbench.services.follow.events import JobEnded
    from workbench.services.follow.follower import follow

    sys.stdout.flush()
    view = view_for(row.learners, json=options.json, prefix=options.prefix, quiet=options.quiet)
    shown: JobView = view
    if options.notify or options.notify_when:
        from workbench.cli.follow.notifications import NotifyingView

        shown = NotifyingView(view, at_end=options.notify, when=options.notify_when)
    stop = stopper(store, row)
    limit = TimeLimit(options.timeout_seconds, _grace_seconds(store, row, options.timeout_seconds), stop)
    try:
        events = follow(store, row, tail=tail, fresh=fresh, copy_to=view.descriptor())
        with Interruption(options.on_interrupt, stop), limit, closing(events):
            for event in events:
                shown.take(event)
                if isinstance(event, JobEnded):
                    row = event.row
    except Detached as left:
        if isinstance(view, TerminalView):
            view.close()
        narrate(
            f"left {short_id(row.id)} {row.name}; it keeps running. `fabric attach {short_id(row.id)}` follows it again"
        )
        return left.exit_code
    finally:
        if isinstance(view, TerminalView):
            view.close()
    return EXIT_TIMED_OUT if limit.over and exit_code_of(row) else exit_code_of(row)


def _grace_seconds(store: Store, row: JobRow, timeout_seconds: float | None) -> float:
    if timeout_seconds is None:
        return 0.0
    from workbench.store.jobs import detail

    return detail(store, row.id).spec.grace_seconds


def exit_code_of(row: JobRow) -> int:
    """Return what a command that waited for this job ends with."""
    return EXIT_LOST if row.exit_code is None else row.exit_code


def stopper(store: Store, row: JobRow) -> Callable[[Policy], None]:
    """Return what asks for a job to be halted or killed, from any thread."""
    home = store.home

    def stop(kind: Policy) -> None:
        from workbench.controller.runtime.client import ask, ensure_controller
        from workbench.store.db.database import Store

        # Called in a thread of its own; a store belongs to the thread that opened it.
        try:
            with Store.open(home) as own:
                ask(own, row.id, kind, origin=ORIGIN)
            ensure_controller(home)
        except FabricError as error:
            narrate(f"error: the {kind} could not be requested: {error}")
            return
        more = "; a second signal kills it" if kind == "halt" else ""
        narrate(f"{kind} of {short_id(row.id)} requested{more}")

    return stop
