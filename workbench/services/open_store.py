"""Opens the home's store, and finds a job in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from workbench.errors import FabricError, UnknownName
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow

_report_copy: Callable[[str], None] | None = None
_note: Callable[[str], None] | None = None
_attend: Callable[[Home], None] | None = None


def report_copies_by(report: Callable[[str], None]) -> None:
    """Have a front end report that a home which is read is a copy; it gets the sentence that says so."""
    global _report_copy
    _report_copy = report


def attend_by(attend: Callable[[Home], None]) -> None:
    """Have a front end start the controller where open jobs have none, after it has shown what it read."""
    global _attend
    _attend = attend


def note_by(note: Callable[[str], None]) -> None:
    """Have a front end show notes of the stores that are opened here: a name that several jobs have."""
    global _note
    _note = note


def report_nothing() -> None:
    """Have nothing reported of stores that are opened, and the controller started at once where it is missing.

    For a front end that shows by itself what a home is, and must not write to the terminal.
    """
    global _report_copy, _note, _attend
    _report_copy = _note = _attend = None


def note(text: str) -> None:
    """Show a note, if a front end asked for them."""
    if _note is not None:
        _note(text)


@contextmanager
def open_store(*, steers: bool = False, attends: bool = True) -> Iterator[Store]:
    """Open the store of this home; it is created where it is missing.

    ``steers`` says that jobs are to be started or changed. In a copy of a home everything else works, and
    the front end reports that it is one. What only reads starts the controller in the end, where jobs are open
    and none looks after them, unless ``attends`` is false.

    Raises:
        HomeNotBound: jobs are to be changed, and the home is a copy.
    """
    from workbench.services.controller_watch import attend, is_unattended, last_look_us
    from workbench.store.db.database import Store
    from workbench.store.db.errors import require_reachable
    from workbench.store.db.home_folder import require_home, why_not

    home = Home(default_home())
    require_reachable(home)
    if steers:
        require_home(home)
    with Store.open(home) as store:
        store.note_by(note)
        if not steers:
            store.date_rows_by(partial(last_look_us, home))
        if _report_copy is not None and not steers and (why := why_not(home)) is not None:
            _report_copy(why)
        try:
            yield store
        finally:
            if attends and not steers and is_unattended(store):
                (_attend or attend)(home)


def attend_open_jobs() -> None:
    """Start the controller where jobs are open and none runs: for what shows what jobs wait for, and reads none."""
    with suppress(FabricError), existing_store():
        pass


@contextmanager
def existing_store(*, steers: bool = False, attends: bool = True) -> Iterator[Store | None]:
    """Open the store of this home; None where there is none yet: reading creates nothing.

    Raises:
        InputMissing: there are jobs, and the database is lost.
    """
    from workbench.store.db.errors import require_reachable

    home = Home(default_home())
    require_reachable(home)
    if not home.database.exists():
        if attends:
            from workbench.store.db.setup import refuse_lost_database

            refuse_lost_database(home)
        yield None
        return
    with open_store(steers=steers, attends=attends) as store:
        yield store


@contextmanager
def store_of(text: str, *, steers: bool = False) -> Iterator[Store]:
    """Open the store of this home, where jobs are; ``text`` is what was asked for.

    Raises:
        HomeNotBound: jobs are to be changed, and the home is a copy.
        UnknownName: there is no home yet.
    """
    with existing_store(steers=steers) as store:
        if store is None:
            raise UnknownName(
                f"there is no job '{text}': no job was ever started from {default_home()}"
                if text
                else f"no job was ever started from {default_home()}",
                hint="`fabric run` starts one; FABRIC_HOME says where jobs are kept",
            )
        yield store


@contextmanager
def store_with(text: str, *, steers: bool = False, one: bool = False) -> Iterator[tuple[Store, JobRow]]:
    """Open the store and find a job by an id, a unique part of one, a name, or ``@last``.

    ``one`` refuses a name that several jobs have.

    Raises:
        HomeNotBound: jobs are to be changed, and the home is a copy.
        UnknownName: there is no such job.
        AmbiguousName: the text fits several.
    """
    from workbench.store.queries.resolve import resolve

    with store_of(text, steers=steers) as store:
        yield store, resolve(store, text, one=one)


@contextmanager
def store_with_any(text: str, *, steers: bool = False) -> Iterator[tuple[Store, JobRow | ExperimentRow]]:
    """Open the store and find a job as :func:`store_with` does, or a search where no job fits.

    Raises:
        HomeNotBound: something is to be changed, and the home is a copy.
        UnknownName: there is neither.
        AmbiguousName: the text fits several.
    """
    from workbench.store.queries.resolve import resolve_any

    with store_of(text, steers=steers) as store:
        yield store, resolve_any(store, text)
