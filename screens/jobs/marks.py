"""Which jobs are meant by an action on marked ones: those that were marked when it was asked for, as they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import JobList, listed_of
from workbench.store.queries.jobs import jobs_by_id
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Targets:
    """The jobs that an action concerns, and what a question about them has to say besides."""

    jobs: tuple[JobRow, ...]
    unlisted: frozenset[str] = frozenset()
    """The ids of those that are marked, but not in the list in view: a filter hides them."""
    deleted: int = 0
    """How many that were marked are deleted by now."""
    changed: int = 0
    """How many have changed since the question about them was confirmed, so that it is asked again."""


Act = Callable[[Targets], None]
"""What is to be done with the jobs that it concerns."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeToMark:
    """Jobs that are to be marked once they are read: from one to another, loaded or not, or those of a fold."""

    listing: JobList
    """The list that was in view: another one may be on its way."""
    anchor: JobRow | None
    """Where it begins; None where it is the one job alone."""
    job: JobRow | None
    """Where it ends; None where the row under the cursor is still on its way."""
    rank: int
    """How many rows of the list stand before that one."""
    job_ids: tuple[str, ...] = ()
    """Those of a fold as it was shown; empty for all from the anchor to the job."""
    marking: int = 0
    """Which set of marks it belongs to: after all were removed, another."""


@dataclass(slots=True)
class PendingAct:
    """What was asked for while ranges were still to be marked: it concerns what was marked then, and these ranges."""

    act: Act
    job_ids: set[str]
    ranges: list[RangeToMark]
    marking: int
    """As of the ranges: after all marks were removed, nothing is done."""

    def take(self, request: RangeToMark, jobs: Iterable[JobRow]) -> None:
        """Take what a range has come to."""
        if request in self.ranges:
            self.ranges.remove(request)
            self.job_ids |= {job.id for job in jobs}


def read_targets(home: Home, listing: JobList, job_ids: Sequence[str], now_us: int) -> Targets:
    """Read jobs as they are now, newest first, and which of them the list in view has."""
    with Store.open(home) as store:
        found = jobs_by_id(store, job_ids)
        listed = listed_of(store, listing, [row.id for row in found], now_us=now_us)
    unlisted = frozenset(row.id for row in found if row.id not in listed)
    return Targets(tuple(found), unlisted, len(set(job_ids)) - len(found))
