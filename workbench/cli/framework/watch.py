"""Shows a list again and again as the store changes: drawn in place on a terminal, else as lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from workbench.terminal.console import is_terminal

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

POLL_SECONDS: Final = 0.1
REDRAW_SECONDS: Final = 1.0
"""How often times are counted on where nothing else changes."""

HOME: Final = "\x1b[H"
CLEAR_BELOW: Final = "\x1b[J"
CLEAR_LINE: Final = "\x1b[K"
SCREEN: Final = ("\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l")
"""The terminal's second screen without a cursor, and back."""


def watch_list(store: Store, page: Callable[[], tuple[list[JobRow], str]], *, json: bool) -> None:
    """Show what ``page`` returns until ctrl-c; with ``json`` one line for each job that changed."""
    if json:
        _watch_json(store, page)
        return
    drawn = is_terminal(sys.stdout)
    if drawn:
        sys.stdout.write(SCREEN[0])
    try:
        shown = ""
        for _ in _moments(store, REDRAW_SECONDS if drawn else None):
            _, text = page()
            if drawn:
                _draw(text)
            elif text != shown:
                sys.stdout.write(text if not shown else f"\n{text}")
                sys.stdout.flush()
            shown = text
    finally:
        if drawn:
            sys.stdout.write(SCREEN[1])
            sys.stdout.flush()


def _watch_json(store: Store, page: Callable[[], tuple[list[JobRow], str]]) -> None:
    from workbench.services.inspect.job_document import job_document
    from workbench.terminal.json_output import print_event

    told: dict[str, int] = {}
    for _ in _moments(store, None):
        for row in page()[0]:
            if told.get(row.id) != row.revision:
                told[row.id] = row.revision
                print_event("job", {**job_document(row), "schema": "fabric.event/1"})


def _moments(store: Store, redraw_seconds: float | None) -> Iterator[None]:
    """Yield at once, when the store has changed, and where it is asked for when so much time has passed."""
    from contextlib import nullcontext

    from workbench.services.follow.keeper import Keeper
    from workbench.store.db.home_folder import is_home
    from workbench.store.jobs import open_jobs

    with Keeper(store.home) if open_jobs(store) and is_home(store.home) else nullcontext():
        version, due = -1, 0.0
        while True:
            now = time.monotonic()
            if (found := store.data_version()) != version or (redraw_seconds is not None and now >= due):
                version, due = found, now + (redraw_seconds or 0.0)
                yield
            time.sleep(POLL_SECONDS)


def _draw(text: str) -> None:
    import shutil

    lines = text.splitlines()[: max(1, shutil.get_terminal_size().lines - 1)]
    sys.stdout.write(HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)
    sys.stdout.flush()
