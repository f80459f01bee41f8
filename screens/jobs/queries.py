"""What the screens read from the store, as values; run in the reader's thread, not on the drawing one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from screens.core.memory import MEMORY_KEY
from screens.jobs.columns import Figures
from screens.jobs.marks import RangeToMark
from workbench.errors import FabricError
from workbench.job import JobId, State
from workbench.paths import Home
from workbench.services.inspect.job_overview import overview
from workbench.services.inspect.job_times import first_of_attempt
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries import jobs
from workbench.store.queries.job_figures import (
    ReportedProgress,
    furthest_progress,
    last_losses,
    last_steps,
)
from workbench.store.queries.job_list import (
    JobList,
    Key,
    Window,
    is_metric,
    jobs_between,
    known_metrics,
    known_values,
    metric_values,
    window,
)
from workbench.store.queries.jobs import jobs_by_id
from workbench.store.queries.metric_values import read_metric
from workbench.store.queries.resolve import resolve
from workbench.store.queries.ui_state import get_state
from workbench.values import dataclass

# What a list of ended jobs does not need is imported when it is read: the table is to be there at once.
if TYPE_CHECKING:
    from screens.base.job_tab import JobPage
    from workbench.metrics.queries import ProgressRow

TABLE_COUNTERS: Final = ("jobs", "series")
JOB_COUNTERS: Final = ("jobs", "transitions", "learners", "requests", "checkpoints", "series")


@dataclass(frozen=True, slots=True)
class JobsPage:
    """Rows of the table of runs, and what their learners reported last."""

    listing: JobList
    window: Window
    figures: Mapping[str, Figures]


def jobs_page(
    listing: JobList, anchor: Key | None, offset: int | None, clock: Callable[[], int], around: str = ""
) -> Callable[[Store], JobsPage]:
    """Return the query for a window of a listing."""

    def read(store: Store) -> JobsPage:
        rows = window(store, listing, now_us=clock(), anchor=anchor, offset=offset, around=around)
        job_ids = [row.id for row in rows.rows]
        found = _with_first_progress(store, rows.rows, figures(store, job_ids))
        if is_metric(listing.sort):
            values = metric_values(store, job_ids, read_metric(listing.sort))
            found |= {
                job_id: replace(found.get(job_id, Figures()), sorted_by=value)
                for job_id, (_, value) in values.items()
            }
        return JobsPage(listing, rows, found)

    return read


def why_not_sorted_by(home: Home, sort: str) -> str:
    """Say why jobs cannot be sorted by something; nothing where they can."""
    from workbench.services.filters import check_sort

    try:
        with Store.open(home) as store:
            check_sort(store, sort)
    except FabricError as error:
        return f"{error}; {near}" if (near := error.hint.partition(" Sort keys")[0]) else str(error)
    return ""


def read_filter_words(home: Home, backends: Sequence[str]) -> list[str]:
    """Return what a term of a filter may begin with, by the jobs that there are and the configured backends."""
    from workbench.services.filters import filter_words

    with Store.open(home) as store:
        values = known_values(store)
        values["backend"] = [*backends, *values["backend"]]
        return filter_words(known_metrics(store), values)


@dataclass(frozen=True, slots=True)
class JobRange:
    """The jobs of a listing from one to another; none where one of the two has left it."""

    jobs: tuple[JobRow, ...]
    missing: JobRow | None = None
    """The one that has left the listing."""
    last: JobRow | None = None
    """Where it ends, where that had to be read."""


def read_range(home: Home, wanted: RangeToMark, now_us: int) -> JobRange:
    """Read all jobs of a listing from one to another, loaded or not."""
    with Store.open(home) as store:
        last = wanted.job
        if last is None:
            found_last = window(store, wanted.listing, now_us=now_us, offset=wanted.rank, limit=1).rows
            if not found_last:
                return JobRange(())
            last = found_last[0]
        first = wanted.anchor or last
        if found := jobs_between(store, wanted.listing, first.id, last.id, now_us=now_us):
            return JobRange(found, last=None if wanted.job is not None else last)
        first_left = not jobs_between(store, wanted.listing, first.id, first.id, now_us=now_us)
    return JobRange((), first if first_left else last)


def read_jobs(home: Home, job_ids: Sequence[str]) -> list[JobRow]:
    """Read jobs as they are now, newest first; those that were deleted are left out."""
    with Store.open(home) as store:
        return jobs_by_id(store, job_ids)


def figures(store: Store, job_ids: Sequence[str]) -> dict[str, Figures]:
    """Return step, loss and progress of many jobs, of their first learners; superseded points do not count."""
    if not job_ids:
        return {}
    losses, steps = last_losses(store, job_ids), last_steps(store, job_ids)
    done = _progress(furthest_progress(store, job_ids))
    known = losses.keys() | steps.keys() | done.keys()
    return {job_id: Figures(steps.get(job_id), losses.get(job_id), done.get(job_id)) for job_id in known}


def _progress(reported: Mapping[str, ReportedProgress]) -> dict[str, ProgressRow]:
    """Return the progress of each job that has reported some; what reads metrics is imported for one alone."""
    if not reported:
        return {}
    from workbench.metrics.queries import ProgressRow

    return {job_id: ProgressRow(*progress) for job_id, progress in reported.items()}


def _with_first_progress(
    store: Store, rows: Sequence[JobRow], found: Mapping[str, Figures]
) -> dict[str, Figures]:
    """Add what resumed jobs that run reported first: the end is expected at the rate since then."""
    resumed = {row.id: row for row in rows if row.attempt > 1 and row.state is State.PROCESSING}
    return {
        job_id: replace(
            each, first_progress=first_of_attempt(store.home, resumed[JobId(job_id)], each.progress)
        )
        if job_id in resumed
        else each
        for job_id, each in found.items()
    }


def job_page(job_id: str, clock: Callable[[], int]) -> Callable[[Store], JobPage | None]:
    """Return the query for one job; it answers None when the job was deleted."""

    def read(store: Store) -> JobPage | None:
        from screens.base.job_tab import JobPage
        from workbench.store.queries import requests

        row = jobs.job(store, job_id)
        if row is None or row.deleted_us is not None:
            return None
        return JobPage(
            overview(store, job_id, clock()),
            tuple(jobs.transitions(store, job_id)),
            tuple(requests.requests(store, job_id)),
        )

    return read


@dataclass(frozen=True, slots=True)
class Params:
    """A job's hyper-parameters in one line."""

    job_id: str
    line: str


def params_of(job_id: str) -> Callable[[Store], Params]:
    """Return the query for a job's hyper-parameters; one that cannot be read has none to show."""

    def read(store: Store) -> Params:
        try:
            found = jobs.detail(store, job_id).spec.params
        except FabricError:
            found = {}
        return Params(job_id, "  ".join(f"{name}={value}" for name, value in found.items()))

    return read


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the app needs to open where it was left."""

    memory: Mapping[str, Any]
    job: JobRow | None
    """The job to open: asked for, or left open, or at the very first time the newest running one."""
    trouble: str = ""


def beginning(asked: str | None) -> Callable[[Store], Beginning]:
    """Return the query for where to begin."""

    def read(store: Store) -> Beginning:
        memory = get_state(store, MEMORY_KEY, {})
        if not isinstance(memory, dict):
            memory = {}
        if asked:
            try:
                return Beginning(memory, resolve(store, asked))
            except FabricError as error:
                return Beginning(memory, None, f"{error}" + (f" ({error.hint})" if error.hint else ""))
        if memory:
            left = memory.get("job") if memory.get("screen") == "run" else None
            row = jobs.job(store, str(left)) if left else None
            return Beginning(memory, row if row and row.deleted_us is None else None)
        running = jobs.list_jobs(store, states=[State.PROCESSING, State.STORING, State.DOWNLOADING], limit=1)
        return Beginning(memory, running[0] if running else None)

    return read


@dataclass(frozen=True, slots=True)
class OpenJobs:
    """Jobs of which something goes on or is to come, and those that have ended since the last look."""

    open: tuple[JobRow, ...]
    ended: tuple[JobRow, ...]


def open_and_ended(clock: Callable[[], int]) -> Callable[[Store], OpenJobs]:
    """Return the query for both; at the first look nothing has ended.

    A job may come and end between two reads: one that was never read as open has ended since the last read when its end
    is later than that. What was adopted long after its end, or changed after it, is not news.
    """
    before: set[JobId] = set()
    reported: set[tuple[JobId, int | None]] = set()
    since: int | None = None
    last_us = 0

    def read(store: Store) -> OpenJobs:
        nonlocal before, reported, since, last_us
        begun_us, revision = clock(), jobs.revision(store)
        found = tuple(jobs.open_jobs(store))
        now = {row.id for row in found}
        ended = tuple(
            row
            for row in (jobs.changed_jobs(store, since) if since is not None else ())
            if row.id not in now and row.deleted_us is None and (row.id, row.ended_us) not in reported
            if row.id in before or (row.ended_us or 0) >= last_us
        )
        # What ends while this is read may be among the changes of the next look again.
        before, reported, since, last_us = now, {(row.id, row.ended_us) for row in ended}, revision, begun_us
        return OpenJobs(found, ended)

    return read
