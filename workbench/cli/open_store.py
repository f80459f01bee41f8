"""Opens the home's store for a command, and finds the jobs that its words name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.errors import UnknownName
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from workbench.store.database import Store
    from workbench.store.rows import JobRow


@contextmanager
def open_store() -> Iterator[Store]:
    """Open the store of this home, which is made where it is missing."""
    from workbench.store.database import Store

    with Store.open(Home(default_home())) as store:
        yield store


@contextmanager
def existing_store() -> Iterator[Store | None]:
    """Open the store of this home; None where there is none yet: looking makes nothing."""
    if not Home(default_home()).database.exists():
        yield None
        return
    with open_store() as store:
        yield store


@contextmanager
def store_with(text: str) -> Iterator[tuple[Store, JobRow]]:
    """Open the store and find the job that a word names.

    Raises:
        UnknownName: there is no such job.
        AmbiguousName: the word fits several.
    """
    from workbench.store.jobs import resolve

    with existing_store() as store:
        if store is None:
            home = default_home()
            hint = "`fabric run` starts one; FABRIC_HOME says where jobs are kept"
            if any((home / "jobs").glob("training-*")):
                hint = "its database is lost; `fabric doctor --rebuild` restores it"
            raise UnknownName(f"there is no job '{text}': no job was ever started from {home}", hint=hint)
        yield store, resolve(store, text)
