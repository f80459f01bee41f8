"""Opens the home's store, and finds a job in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.errors import UnknownName
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@contextmanager
def open_store() -> Iterator[Store]:
    """Open the store of this home; it is created where it is missing."""
    from workbench.store.db.database import Store

    with Store.open(Home(default_home())) as store:
        yield store


@contextmanager
def existing_store() -> Iterator[Store | None]:
    """Open the store of this home; None where there is none yet: reading creates nothing."""
    if not Home(default_home()).database.exists():
        yield None
        return
    with open_store() as store:
        yield store


@contextmanager
def store_with(text: str) -> Iterator[tuple[Store, JobRow]]:
    """Open the store and find a job by an id, a unique part of one, a name, or ``@last``.

    Raises:
        UnknownName: there is no such job.
        AmbiguousName: the text fits several.
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
