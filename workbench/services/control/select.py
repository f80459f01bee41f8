"""Selects the jobs, and the searches, that a person means by names or by a label."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import UnknownName, UsageError
from workbench.job import TERMINAL
from workbench.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow
    from workbench.store.queries.members import UnmadeJob


@dataclass(frozen=True, slots=True)
class JobSelector:
    """Which jobs are meant: those with one of the names, and those with the label."""

    names: tuple[str, ...] = ()
    """Ids, unique parts of them, names, ``@last``, or jobs of an array by their numbers, as ``NAME[1..3]``."""
    label: str = ""
    """``KEY`` or ``KEY=VALUE``."""
    where: tuple[str, ...] = ()
    """Filters, as ``list --where`` takes them; all of them have to fit."""
    one: bool = False
    """Whether a name that several jobs have is refused, instead of meaning the newest."""
    only_open: bool = False
    """Whether jobs that have ended are left out of those with the label, or that match."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs and the searches that are meant, in the order of the names."""

    found: tuple[JobRow | ExperimentRow, ...]

    @property
    def jobs(self) -> tuple[JobRow, ...]:
        """The jobs alone."""
        from workbench.store.db.rows import JobRow

        return tuple(each for each in self.found if isinstance(each, JobRow))

    @property
    def searches(self) -> tuple[ExperimentRow, ...]:
        """The searches alone."""
        from workbench.store.queries.experiments import ExperimentRow

        return tuple(each for each in self.found if isinstance(each, ExperimentRow))


def select(store: Store, selector: JobSelector) -> tuple[JobRow, ...]:
    """Return the jobs in the order of the names, then the others with the label or that match, oldest first.

    A job that several names stand for comes once.

    Raises:
        UsageError: the selector is empty, or a filter cannot be read.
        UnknownName: there is no such job, or none with that label.
        AmbiguousName: a name fits several jobs.
    """
    from workbench.store.queries.resolve import each_name, resolve

    _check(selector)
    named = [resolve(store, name, one=selector.one) for name in each_name(store, selector.names)]
    rows = list({row.id: row for row in named}.values())
    return (*rows, *_further(store, selector, rows))


def select_all(store: Store, selector: JobSelector) -> Selection:
    """Return the jobs as :func:`select` does, and the searches that names stand for which no job fits.

    Raises:
        UsageError: the selector is empty, or a filter cannot be read.
        UnknownName: there is no such job or search, or no job with that label.
        AmbiguousName: a name fits several.
    """
    from workbench.store.queries.resolve import each_name, resolve_any

    _check(selector)
    named = [resolve_any(store, name, one=selector.one) for name in each_name(store, selector.names)]
    found = Selection(tuple({each.id: each for each in named}.values()))
    return Selection((*found.found, *_further(store, selector, found.jobs)))


def select_awaited(store: Store, selector: JobSelector) -> tuple[JobRow | ExperimentRow | UnmadeJob, ...]:
    """Return the same, and among them the jobs of arrays whose turn has not come.

    Raises:
        NotMade: the array of such a job has ended.
    """
    from workbench.store.queries.members import NotMade
    from workbench.store.queries.resolve import each_name, resolve_any

    found: list[JobRow | ExperimentRow | UnmadeJob] = []
    for name in each_name(store, selector.names):
        try:
            found.append(resolve_any(store, name, one=selector.one))
        except NotMade as error:
            if not error.unmade.will_be_made:
                raise
            found.append(error.unmade)
    made = replace(selector, names=())
    others = select_all(store, made).found if selector.label or selector.where or not found else ()
    return tuple({each.id: each for each in (*found, *others)}.values())


def _check(selector: JobSelector) -> None:
    if not selector.names and not selector.label and not selector.where:
        raise UsageError(
            "which job?", hint="its id, a part of it, its name, @last, --label KEY=VALUE, or --where"
        )


def _further(store: Store, selector: JobSelector, rows: Sequence[JobRow]) -> list[JobRow]:
    """Return the jobs with the label or that match, but those that were named."""
    from workbench.services.inspect.job_query import JobQuery, find
    from workbench.store.queries.jobs import list_jobs

    further: list[JobRow] = []
    if selector.label:
        labelled = list_jobs(store, label=selector.label)[::-1]
        if not labelled:
            raise UnknownName(
                f"no job has the label {selector.label}", hint=_nearest_label(store, selector.label)
            )
        further += _others(labelled, rows, selector)
    if selector.where:
        matching = find(store, JobQuery(where=selector.where)).rows[::-1]
        further += _others(matching, [*rows, *further], selector)
    return further


def _others(found: Sequence[JobRow], rows: Sequence[JobRow], selector: JobSelector) -> list[JobRow]:
    """Return the jobs that were found and are not among the rows yet."""
    known = {row.id for row in rows}
    return [
        row
        for row in found
        if row.id not in known and (not selector.only_open or row.state not in TERMINAL or row.next_try_us)
    ]


def _nearest_label(store: Store, label: str) -> str:
    from workbench.manifest.yaml.faults import nearest

    sql = "SELECT DISTINCT key || '=' || value FROM jobs, json_each(jobs.labels) WHERE deleted_us IS NULL"
    known = [text for (text,) in store.rows(sql)]
    close = nearest(label, known)
    return f"did you mean {close}?" if close else "`fabric list --columns id,name,labels` shows them"
