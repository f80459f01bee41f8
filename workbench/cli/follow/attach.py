"""Attaches this terminal to a job: follows it, obeys signals, and ends with the job's own exit code."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from workbench.cli.follow.signals import EXIT_TIMED_OUT, Detached, Interruption, Policy, TimeLimit
from workbench.errors import CannotWrite, FabricError
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
        fresh: whether the controller was just woken, and need not be checked.

    Raises:
        BrokenPipeError: stdout was closed; the job keeps running.
        CannotWrite: a signal asked for its end, which cannot be recorded.
        BackendUnreachable: a signal asked for its end, which is recorded, and the backend does not answer.
    """
    from workbench.cli.follow.views import TerminalView, view_for
    from workbench.services.follow.events import Idle, JobEnded, Notice, StateChanged
    from workbench.services.follow.follower import follow
    from workbench.services.follow.wait import request_check

    sys.stdout.flush()
    view = view_for(row.learners, json=options.json, prefix=options.prefix, quiet=options.quiet)
    shown: JobView = view
    if options.notify or options.notify_when:
        from workbench.cli.follow.notifications import NotifyingView

        shown = NotifyingView(view, at_end=options.notify, when=options.notify_when)
    stop = JobStopper(store, row)
    check, trouble = request_check(store.home, "stop"), ""
    limit = TimeLimit(options.timeout_seconds, _grace_seconds(store, row, options.timeout_seconds), stop)

    def leave() -> None:
        if isinstance(view, TerminalView):
            view.close()
        again = f"`fabric attach {short_id(row.id)}` follows it again"
        narrate(f"left {short_id(row.id)} {row.name}, which has not ended yet. {again}")

    try:
        events = follow(store, row, tail=tail, fresh=fresh, copy_to=view.descriptor())
        with Interruption(options.on_interrupt, stop, leave), limit, closing(events):
            for event in events:
                shown.take(event)
                if isinstance(event, JobEnded | StateChanged):
                    row = event.row
                elif isinstance(event, Notice):
                    trouble = event.text
                elif isinstance(event, Idle) and stop.was_asked:
                    if stop.failure is not None:
                        raise stop.failure
                    check([row], trouble)
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
    from workbench.store.queries.jobs import detail

    return detail(store, row.id).spec.grace_seconds


def exit_code_of(row: JobRow) -> int:
    """Return what a command that waited for this job ends with."""
    return EXIT_LOST if row.exit_code is None else row.exit_code


class JobStopper:
    """Asks for a job to be halted or killed, from any thread."""

    def __init__(self, store: Store, row: JobRow) -> None:
        self._home = store.home
        self._row = row
        self.was_asked = False
        self.failure: CannotWrite | None = None
        """Why the request is not in the store: nobody will see there how the job ends."""

    def __call__(self, kind: Policy) -> None:
        """Ask for it, and say so."""
        from workbench.services.control.requests import have_stop_heard, record_request
        from workbench.store.db.database import Store
        from workbench.store.queries.jobs import job

        self.was_asked = True
        assert kind != "detach"
        name = short_id(self._row.id)
        # Called in a thread of its own; a store belongs to the thread that opened it.
        try:
            with Store.open(self._home) as own:
                record_request(own, self._row, kind, origin=ORIGIN)
                more = "; a second signal kills it" if kind == "halt" else ""
                narrate(f"{kind} of {name} requested{more}")
                have_stop_heard(own, [job(own, self._row.id) or self._row], kind, narrate)
        except CannotWrite as error:
            self.failure = error
        except FabricError as error:
            narrate(f"error: the {kind} could not be requested: {error}")
