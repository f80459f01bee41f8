"""Keeps a controller running while somebody waits for a job."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

from workbench.errors import FabricError
from workbench.store.db.rows import is_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workbench.paths import Home
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

ROUND_SECONDS: Final = 0.1
"""How long what a job brings may go unnoticed by who reads it in rounds."""


class Keeper:
    """Notices within a second that the controller has ended, and starts another, in a thread of its own.

    ``at_once`` checks at the beginning, too; a caller that has just started the controller leaves it out. One that
    hangs is named; with ``stops``, for who waits until jobs are stopped, it is ended, and another one started. ``say``
    gets what is wrong whenever that is something else, for who does not look at :attr:`error`.

    Entering it raises HomeNotBound in a copy of a home, where no controller runs and nothing would happen.
    """

    EVERY_SECONDS = 0.7
    ENDED_SECONDS = 2.0
    """How long it stays said that one was ended: for who looks every second."""

    def __init__(
        self,
        home: Home,
        *,
        at_once: bool = True,
        stops: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._home = home
        self._at_once = at_once
        self._stops = stops
        self._say = say
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self.error = ""
        """Why no controller can be started, or does what it should; empty where all is well."""

    def __enter__(self) -> Self:
        from workbench.store.db.home_folder import require_home

        require_home(self._home)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _keep(self) -> None:
        from workbench.controller.client.connect import ensure_controller

        wait = 0.0 if self._at_once else self.EVERY_SECONDS
        while not self._ended.wait(wait):
            wait = self.EVERY_SECONDS
            try:
                error = ensure_controller(self._home)
                if error and self._stops and (ended := self._end_hanging()):
                    error, wait = ended, self.ENDED_SECONDS
            except (FabricError, OSError) as failure:
                error = f"no controller can be started: {failure}"
            if error and error != self.error and self._say is not None:
                self._say(error)
            self.error = error

    def _end_hanging(self) -> str:
        """End a controller that hangs, if that may be, and start another; return what was done, or empty."""
        from workbench.controller.client.connect import replace_controller
        from workbench.controller.client.hang import unanswering

        found = unanswering(self._home)
        done: list[str] = []
        if found is not None and found.may_be_ended:
            replace_controller(self._home, found, done.append)
        return "; ".join(done)


def rounds(store: Store, row: JobRow, attempt: int | None = None) -> Iterator[bool]:
    """Yield whether a job is over, or an attempt of it, again and again until it is; a controller runs meanwhile.

    Who reads what there is in each round has read all of it after the last one.
    """
    with Keeper(store.home, say=store.note):
        while not is_attempt_over(store, row, attempt):
            yield False
            time.sleep(ROUND_SECONDS)
        yield True


def is_attempt_over(store: Store, row: JobRow, attempt: int | None) -> bool:
    """Say whether a job has ended or was deleted, or is at a later attempt than the one that is named."""
    from workbench.store.queries.jobs import job

    now = job(store, row.id)
    return (
        now is None
        or now.deleted_us is not None
        or is_over(now)
        or (attempt is not None and now.attempt > attempt)
    )
