"""Keeps a controller running while somebody waits for a job."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from workbench.errors import FabricError

if TYPE_CHECKING:
    from workbench.paths import Home


class Keeper:
    """Notices within a second that the controller has ended, and starts another, in a thread of its own.

    ``at_once`` checks at the beginning, too; a caller that has just started the controller leaves it out.

    Entering it raises HomeNotBound in a copy of a home, where no controller runs and nothing would happen.
    """

    EVERY_SECONDS = 0.7

    def __init__(self, home: Home, *, at_once: bool = True) -> None:
        self._home = home
        self._at_once = at_once
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self.error = ""
        """Why no controller can be started, or why it cannot write to the store; empty where all is well."""

    def __enter__(self) -> Self:
        from workbench.store.db.home_folder import require_home

        require_home(self._home)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _keep(self) -> None:
        from workbench.controller.runtime.client import ensure_controller

        wait = 0.0 if self._at_once else self.EVERY_SECONDS
        while not self._ended.wait(wait):
            wait = self.EVERY_SECONDS
            try:
                self.error = ensure_controller(self._home)
            except (FabricError, OSError) as error:
                self.error = f"no controller can be started: {error}"
