"""Opens the home's store for a command, and finds the jobs that its words name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.errors import UnknownName
from workbench.job import TERMINAL
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@contextmanager
def open_store() -> Iterator[Store]:
    """Open the store of this home, which is made where it is missing."""
    from workbench.store.db.database import Store

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


def chosen_jobs(store: Store, names: Sequence[str], label: str, *, only_open: bool = False) -> list[JobRow]:
    """Return the jobs that words name, as they are named, and the others with a label, oldest first.

    Raises:
        UsageError: neither is given.
        UnknownName: there is no such job, or none with that label.
        AmbiguousName: a word fits several.
    """
    from workbench.errors import UsageError
    from workbench.store.jobs import list_jobs, resolve

    if not names and not label:
        raise UsageError("which job?", hint="its id, a part of it, its name, @last, or --label KEY=VALUE")
    rows = [resolve(store, name) for name in names]
    if label:
        found = list_jobs(store, label=label)[::-1]
        if not found:
            raise UnknownName(f"no job has the label {label}", hint=_nearest_label(store, label))
        named = {row.id for row in rows}
        wanted = [row for row in found if not only_open or row.state not in TERMINAL or row.next_try_us]
        rows += [row for row in wanted if row.id not in named]
    return rows


def _nearest_label(store: Store, label: str) -> str:
    from workbench.manifest.yaml.faults import nearest

    sql = "SELECT DISTINCT key || '=' || value FROM jobs, json_each(jobs.labels) WHERE deleted_us IS NULL"
    known = [text for (text,) in store.rows(sql)]
    close = nearest(label, known)
    return f"did you mean {close}?" if close else "`fabric list --columns id,name,labels` shows them"
