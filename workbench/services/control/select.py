"""Selects the jobs that a person means by names or by a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import UnknownName, UsageError
from workbench.job import TERMINAL

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@dataclass(frozen=True, slots=True)
class JobSelector:
    """Which jobs are meant: those with one of the names, and those with the label."""

    names: tuple[str, ...] = ()
    """Ids, unique parts of them, names, or ``@last``."""
    label: str = ""
    """``KEY`` or ``KEY=VALUE``."""
    only_open: bool = False
    """Whether jobs that have ended are left out of those with the label."""


def select(store: Store, selector: JobSelector) -> tuple[JobRow, ...]:
    """Return the jobs in the order of the names, then the others with the label, oldest first.

    Raises:
        UsageError: the selector is empty.
        UnknownName: there is no such job, or none with that label.
        AmbiguousName: a name fits several jobs.
    """
    from workbench.store.jobs import list_jobs, resolve

    if not selector.names and not selector.label:
        raise UsageError("which job?", hint="its id, a part of it, its name, @last, or --label KEY=VALUE")
    rows = [resolve(store, name) for name in selector.names]
    if selector.label:
        labelled = list_jobs(store, label=selector.label)[::-1]
        if not labelled:
            raise UnknownName(
                f"no job has the label {selector.label}", hint=_nearest_label(store, selector.label)
            )
        named = {row.id for row in rows}
        if selector.only_open:
            labelled = [row for row in labelled if row.state not in TERMINAL or row.next_try_us]
        rows += [row for row in labelled if row.id not in named]
    return tuple(rows)


def _nearest_label(store: Store, label: str) -> str:
    from workbench.manifest.yaml.faults import nearest

    sql = "SELECT DISTINCT key || '=' || value FROM jobs, json_each(jobs.labels) WHERE deleted_us IS NULL"
    known = [text for (text,) in store.rows(sql)]
    close = nearest(label, known)
    return f"did you mean {close}?" if close else "`fabric list --columns id,name,labels` shows them"
