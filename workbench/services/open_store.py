"""Opens the home's store, and finds a job in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.errors import UnknownName
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

_report_copy: Callable[[str], None] | None = None


def report_copies_by(report: Callable[[str], None]) -> None:
    """Have a front end report that a home which is read is a copy; it gets the sentence that says so."""
    global _report_copy
    _report_copy = report


@contextmanager
def open_store(*, steers: bool = False) -> Iterator[Store]:
    """Open the store of this home; it is created where it is missing.

    ``steers`` says that jobs are to be started or changed. In a copy of a home everything else works, and
    the front end reports that it is one.

    Raises:
        HomeNotBound: jobs are to be changed, and the home is a copy.
    """
    from workbench.store.db.database import Store
    from workbench.store.db.home_folder import require_home, why_not

    home = Home(default_home())
    if steers:
        require_home(home)
    with Store.open(home) as store:
        if _report_copy is not None and not steers and (why := why_not(home)) is not None:
            _report_copy(why)
        yield store


@contextmanager
def existing_store(*, steers: bool = False) -> Iterator[Store | None]:
    """Open the store of this home; None where there is none yet: reading creates nothing."""
    if not Home(default_home()).database.exists():
        yield None
        return
    with open_store(steers=steers) as store:
        yield store


@contextmanager
def store_with(text: str, *, steers: bool = False) -> Iterator[tuple[Store, JobRow]]:
    """Open the store and find a job by an id, a unique part of one, a name, or ``@last``.

    Raises:
        HomeNotBound: jobs are to be changed, and the home is a copy.
        UnknownName: there is no such job.
        AmbiguousName: the text fits several.
    """
    from workbench.store.jobs import resolve

    with existing_store(steers=steers) as store:
        if store is None:
            home = default_home()
            hint = "`fabric run` starts one; FABRIC_HOME says where jobs are kept"
            if any((home / "jobs").glob("training-*")):
                hint = "its database is lost; `fabric doctor --rebuild` restores it"
            raise UnknownName(f"there is no job '{text}': no job was ever started from {home}", hint=hint)
        yield store, resolve(store, text)
